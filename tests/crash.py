"""Kill runs with SIGKILL and check that the same command again ends in the same bytes: ``make crash``.

``python tests/crash.py --kills 200`` kills at random instants, then at every step of the save path
(each open, truncation, write, half a write, fsync, close, rename, unlink) and while the picture is drawn. Runs are
forked from one warm process, so that a kill costs a fraction of a second; each is the ordinary command with forked
workers of its own.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy  # noqa: F401 - imported before forking, so that a child starts warm
import sklearn.datasets  # noqa: F401

import fedalpha.analysis.plots
import fedalpha.runs.experiment
from fedalpha.cli import app
from fedalpha.store import files

CASES = (
    ("FedSoftWorse(T=0.2, optima=estimated)", "mlp", 2),
    ("switch(FedSoftBetter(T=0.2), FedAvg, accuracy=0.3)", "softmax", 1),
    ("anneal(FedWorse(k=0.5), FedAvg, rounds=4)", "softmax", 3),
)
WITHOUT_WAITING = ("stale(FedSoftWorse(T=0.2), polynomial(a=0.5))", "softmax", 2)
"""A case of a server that does not wait, with clients in training at every save."""
PACE = ("--clock", "lognormal(sigma=1)", "--server", "buffered(K=2, concurrency=4)")
ROUNDS = 6
DRAWING = ("before", "half-way", "after")
STEPS = ("open", "ftruncate", "write", "fsync", "close", "replace", "unlink")


class Trap:
    """Stands for the module ``os`` and kills its process at the n-th step; ``half`` lets half a write through."""

    def __init__(self, n: int, half: bool = False, count: Path | None = None) -> None:
        self.n, self.half, self.count = n, half, count
        self.steps: list[str] = []

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        return self.step(name, real) if name in STEPS else real

    def step(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*arguments: Any, **more: Any) -> Any:
            self.steps.append(name)
            if self.count is not None:
                self.count.write_text(" ".join(self.steps))
            if len(self.steps) == self.n:
                if self.half and name == "write":
                    real(arguments[0], arguments[1][: len(arguments[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **more)

        return stepped


def command(case: tuple[str, str, int], out: Path, resume: bool = False) -> list[str]:
    strategy, model, workers = case
    if resume:
        return ["resume", str(out), "--workers", str(workers)]
    return [
        *("run", "--strategy", strategy, "--model", model, "--clients", "6", "--rounds", str(ROUNDS)),
        *("--ratio", "0.7", "--seed", "1", "--workers", str(workers), "--out", str(out)),
        *(PACE if case == WITHOUT_WAITING else ()),
    ]


def killed_drawing(moment: str) -> Callable[..., None]:
    """``plot_run`` that dies before, half-way through or after writing the picture."""
    real = fedalpha.analysis.plots.plot_run

    def draw(history: Any, path: Path, **more: Any) -> None:
        if moment != "before":
            real(history, path, **more)
        if moment == "half-way":
            os.truncate(path, path.stat().st_size // 2)
        os.kill(os.getpid(), signal.SIGKILL)

    return draw


def start(arguments: list[str], trap: Trap | None = None, draw: Callable[..., None] | None = None) -> int:
    """Fork the command; its pid. The picture is left out (it would take most of the time) unless ``draw`` is given."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        fedalpha.analysis.plots.plot_run = draw or (lambda *_, **__: None)
        if trap is not None:
            files.os = trap  # type: ignore[assignment]
        app(arguments, standalone_mode=False)
        code = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def finish(arguments: list[str], trap: Trap | None = None, draw: Callable[..., None] | None = None) -> int:
    """Run the command to its end; its status (negative: the signal)."""
    return os.waitstatus_to_exitcode(os.waitpid(start(arguments, trap, draw), 0)[1])


def result(out: Path) -> str:
    """SHA-256 of the model and of the history, times aside."""
    rows = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == list(range(ROUNDS + 1)), out
    for row in rows:
        del row["seconds"]
    digest = hashlib.sha256((out / "model.safetensors").read_bytes())
    digest.update(json.dumps(rows, sort_keys=True).encode())
    return digest.hexdigest()


def random_kills(folder: Path, kills: int, seed: int = 0) -> tuple[int, int, int]:
    """Kill runs at random instants until ``kills`` have hit; (kills, runs, wrong results)."""
    rng = np.random.default_rng(seed)
    expected, seconds = {}, {}
    cases = (*CASES, WITHOUT_WAITING)
    for case in cases:
        begun = time.monotonic()
        assert finish(command(case, folder / "undisturbed" / case[1] / str(case[2]))) == 0
        seconds[case] = time.monotonic() - begun
        expected[case] = result(folder / "undisturbed" / case[1] / str(case[2]))
    done = runs = wrong = 0
    while done < kills:
        case, out = cases[runs % len(cases)], folder / f"random-{runs}"
        for _ in range(100):  # a run that is killed 100 times without getting to its end would be a failure
            resume = (out / "config.json").exists() and rng.random() < 0.5
            pid = start(command(case, out, resume))
            time.sleep(rng.uniform(0, 0.9 * seconds[case]))
            os.kill(pid, signal.SIGKILL)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            done += status == -signal.SIGKILL
            seconds[case] *= 0.8 if status == 0 else 1.05  # follow how fast the machine is just now
            if status == 0 or done >= kills:
                break
            wrong += status != -signal.SIGKILL
        wrong += finish(command(case, out)) != 0 or result(out) != expected[case]
        runs += 1
        print(f"\r{done} kills, {runs} runs, {wrong} wrong", end="", flush=True)
    print()
    return done, runs, wrong


def step_kills(folder: Path, every: int = 1) -> tuple[int, int]:
    """Kill at every (or every ``every``-th) step of the save path; (kills, wrong results)."""
    case = ("FedSoftWorse(T=0.2, optima=estimated)", "softmax", 1)
    whole = folder / "whole"
    counter = folder / "steps"
    assert finish(command(case, whole), Trap(-1, count=counter)) == 0
    expected, steps = result(whole), counter.read_text().split()
    kills = wrong = 0
    for n in range(1, len(steps) + 1, every):
        for half in (False, True) if steps[n - 1] == "write" else (False,):
            out = folder / f"step-{n}-{half}"
            killed = finish(command(case, out), Trap(n, half)) == -signal.SIGKILL
            kills += killed
            wrong += not killed or finish(command(case, out)) != 0 or result(out) != expected
            print(f"\r{kills} kills at {len(steps)} steps, {wrong} wrong", end="", flush=True)
    print()
    return kills, wrong


def drawing_kills(folder: Path) -> tuple[int, int]:
    """Kill while the picture is drawn, after the last save; (kills, wrong results: model, history or picture)."""
    case, real = CASES[1], fedalpha.analysis.plots.plot_run
    assert finish(command(case, folder / "drawn"), draw=real) == 0
    expected, picture = result(folder / "drawn"), (folder / "drawn" / "curves.png").read_bytes()
    kills = wrong = 0
    for moment in DRAWING:
        out = folder / f"drawing-{moment}"
        killed = finish(command(case, out), draw=killed_drawing(moment)) == -signal.SIGKILL
        kills += killed
        again = finish(command(case, out), draw=real) == 0
        wrong += not (killed and again and result(out) == expected and (out / "curves.png").read_bytes() == picture)
    print(f"{kills} kills while the picture is drawn, {wrong} wrong")
    return kills, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--every", type=int, default=1, help="kill at every so many-th step of the save path")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        done, runs, wrong = random_kills(Path(temporary), options.kills, options.seed)
        steps, wrong_steps = step_kills(Path(temporary), options.every)
        drawings, wrong_drawings = drawing_kills(Path(temporary))
    wrong += wrong_steps + wrong_drawings
    found = {"random_kills": done, "runs": runs, "step_kills": steps, "drawing_kills": drawings, "wrong": wrong}
    print(json.dumps(found))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())

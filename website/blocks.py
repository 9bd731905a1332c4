"""Run the code blocks of the documentation: ``python -m website.blocks [--whole] [PAGE …]``.

Python blocks of a page share a namespace and a folder. Commands of fedalpha are run as they stand, but small: few
rounds, clients and seeds of the embedded data; ``--whole`` runs them in full. A comment ``<!-- setup … -->`` before a
block holds Python that a reader has already (an app, a model). ``<!-- not run: reason -->`` exempts the next block.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import resource
import runpy
import shlex
import subprocess
import sys
import tempfile
import textwrap
import tomllib
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[1]
EXEMPT = re.compile(r"<!-- not run: (.+?) -->")
_BLOCK = re.compile(
    r"<!-- setup\n(?P<setup>.*?)^[ ]*-->|<!-- not run: (?P<reason>.*?) -->|"
    r"^(?P<indent>[ ]*)(?P<fence>```+)(?P<language>\w*)\n(?P<code>.*?)^(?P=indent)(?P=fence)[ ]*$",
    re.MULTILINE | re.DOTALL,
)
_SMALL = {
    "run": "--rounds 2 --workers 1",
    "compare": "--rounds 1 --workers 1 --seeds 1",
    "resume": "--workers 1",
    "study": "--jobs 1",
    "theory": "--rounds 5 --replicas 28",
    "partition": "--dataset digits",
}
"""Options that make a command small; the last one given counts."""
_LARGE = ("mnist", "fashion-mnist", "cifar10", "shakespeare", "watch")
_MODELS = ("cnn", "lenet", "resnet", "lstm", "transformer")


_STUDY_PAGE = "docs/tutorial/study.md"
"""A study takes seconds, however small: in small runs only this page's studies are played and reported."""


@dataclass(frozen=True)
class Block:
    """One fenced block, with the setup before it and the reason why it is not run, if there is one."""

    page: str
    line: int
    language: str
    code: str
    setup: str
    reason: str


def pages() -> list[str]:
    """Every page with code that users read."""
    found = [ROOT / "README.md", *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    names = dict.fromkeys(path.relative_to(ROOT).as_posix() for path in found)
    return [name for name in names if not name.startswith("docs/results/")]


def blocks(page: str) -> Iterator[Block]:
    """The blocks of a page in their order."""
    text = (ROOT / page).read_text()
    setup = reason = ""
    for found in _BLOCK.finditer(text):
        if found["setup"] is not None:
            setup += textwrap.dedent(found["setup"])
        elif found["reason"] is not None:
            reason = found["reason"]
        else:
            lines = [line.removeprefix(found["indent"]) for line in found["code"].splitlines()]
            line = text.count("\n", 0, found.start()) + 1
            yield Block(page, line, found["language"], "\n".join(lines) + "\n", setup, reason)
            setup = reason = ""


def run_page(page: str, whole: bool) -> list[str]:
    """Run the blocks of a page in a new folder; returns what failed."""
    module = sys.modules["page"] = ModuleType("page")  # classes of a page belong to a module that exists
    names = module.__dict__
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder), whole)
        os.chdir(folder)
        for block in blocks(page):
            if block.reason:
                continue
            try:
                _run(block, names, whole)
            except BaseException:  # whatever it is, the page does not hold what it says
                failed.append(f"{page}:{block.line}\n{traceback.format_exc()}")
        os.chdir(ROOT)
    return failed


def prepare(folder: Path, whole: bool) -> None:
    """What a reader who works in a clone has: the studies, the stored results, the examples of a plugin."""
    (folder / "studies").mkdir()
    for file in (ROOT / "studies").glob("*.toml"):
        text = file.read_text()
        (folder / "studies" / file.name).write_text(text if whole or "[tune]" in text else small_study(text))
    rules = sorted((ROOT / "docs" / "extending").rglob("*.py"))
    (folder / "rules.py").write_text("\n\n".join(file.read_text() for file in rules))
    (folder / "docs").symlink_to(ROOT / "docs")


def small_study(text: str) -> str:
    """A study on two rounds of four clients of the embedded data."""
    import tomli_w

    values = tomllib.loads(text)
    settings = {**values.get("settings", {}), "rounds": 2, "clients": 4, "dataset": "digits", "model": "softmax"}
    kept = {k: v for k, v in values.items() if k in ("name", "title", "strategies", "reference")}
    chosen = kept["strategies"][:2]
    settings = {**settings, "partition": "iid"}
    kept |= {"strategies": chosen, "reference": chosen[0], "seeds": 1, "measures": ["accuracy"], "settings": settings}
    return tomli_w.dumps(kept)


def _run(block: Block, names: dict[str, Any], whole: bool) -> None:
    exec(compile(block.setup, f"{block.page} (setup)", "exec"), names)
    match block.language:
        case "python":
            place = "\n" * block.line + block.code  # errors name the line of the page
            exec(compile(place, block.page, "exec"), names)
        case "sh":
            for command in commands(block.code):
                if whole or block.page == _STUDY_PAGE or not of_a_study(command):
                    _command(command, whole)
        case "toml":
            _toml(block.code)
        case "json":
            json.loads(block.code)
        case "text" | "ini":
            pass
        case other:
            raise ValueError(f"the language {other!r} of a block is unknown; write python, sh, toml, json or text")


def _toml(code: str) -> None:
    """A file that a command reads is read by it."""
    values = tomllib.loads(code)
    if "strategies" in values:
        from fedalpha.study import read_study

        Path("page.toml").write_text(code)
        read_study(Path("page.toml"))


def commands(code: str) -> list[list[str]]:
    """The commands of a shell block as words, without comments."""
    lines = code.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def _command(words: list[str], whole: bool) -> None:
    match words:
        case ["fedalpha", *rest]:
            _fedalpha(rest if whole else small(rest), whole)
        case ["pip", "install", *packages]:
            _pip(packages)
        case ["make", target]:
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), f"no target {target}"
        case ["python", "-m", "benchmarks", name, *_]:
            from benchmarks.__main__ import app

            known = {c.name or c.callback.__name__ for c in app.registered_commands if c.callback is not None}
            assert name in known, f"no benchmark {name}"
        case ["python", script, *options]:
            _script(script, options)
        case ["flower-superlink" | "flower-supernode" as server, *options]:  # they serve until they are stopped
            command = [str(Path(sys.executable).with_name(server)), "--help"]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            assert [option for option in options if option.startswith("--") and option not in said] == []
        case ["pytest", *options]:
            assert [path for path in options if path.startswith("tests/") and not (ROOT / path).exists()] == []
        case ["mkdir" | "cp", *_]:
            subprocess.run(words, check=True)
        case _:
            raise ValueError(f"no way to check the command {shlex.join(words)}")


def of_a_study(words: list[str]) -> bool:
    """Whether a command plays a study or reads its folder; its options are then read at least."""
    found = words[:2] in (["fedalpha", "study"], ["fedalpha", "status"]) or (
        words[:2] == ["fedalpha", "report"] and words[2] == "runs/digits"
    )
    if found:
        _parsed(words[1:])
    return found


def small(words: list[str]) -> list[str]:
    """The command on little data."""
    if words[0].startswith("-"):
        return words
    words = ["digits" if word in _LARGE else word for word in words]
    if "--model" in words and words[words.index("--model") + 1] in _MODELS:
        words[words.index("--model") + 1] = "softmax"
    if "--clients" in words and int(words[words.index("--clients") + 1]) > 20:
        words[words.index("--clients") + 1] = "20"
    return [*words, *shlex.split(_SMALL.get(words[0], ""))]


def _fedalpha(words: list[str], whole: bool) -> None:
    if words[0] == "reproduce":  # hours of a data set; its name and its options are checked
        from fedalpha.study.reproduction import experiment

        experiment(words[1], "calibrated", form=None, seeds=None, rounds=None).cells()
        return
    if words[0] == "tune" and not whole:  # minutes; tests/study/tuning runs small ones
        _parsed(words)
        return
    if "--live" in words:  # serves until Ctrl-C; the report of the same folder is written instead
        words = [word for word in words if word != "--live"]
    if "--plugin" in words and (child := os.fork()):  # in a process of its own: a plugin stays registered
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
            raise RuntimeError(f"failed: fedalpha {shlex.join(words)}")
        return
    code = _ended(words)
    if "--plugin" in words:
        os._exit(code)
    if code:
        raise RuntimeError(f"exit code {code} of: fedalpha {shlex.join(words)}")


def _parsed(words: list[str]) -> None:
    """Read the options and the file of a command, without running it."""
    import typer.main

    from fedalpha.cli import app
    from fedalpha.study import read_study

    group = typer.main.get_command(app)
    found = group.commands[words[0]].make_context(words[0], words[1:])  # type: ignore[attr-defined]
    if found.params.get("file") is not None:
        read_study(Path(found.params["file"]))


def _ended(words: list[str]) -> int:
    from fedalpha.cli import main

    sys.argv = ["fedalpha", *words]
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else end.code is not None
    return 0


def _pip(packages: list[str]) -> None:
    """Extras that pages name exist."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for package in packages:
        for extra in re.findall(r"\[(.*?)\]", package):
            assert set(extra.split(",")) <= extras.keys(), f"no extra {extra}"


def _script(script: str, options: list[str]) -> None:
    """A short example is run; other scripts have tests of their own, so here they exist and know their options."""
    if (ROOT / script).parent == ROOT / "examples":
        runpy.run_path(str(ROOT / script))
        return
    found = next(path for path in (ROOT / script, ROOT / "examples" / "flower" / script) if path.is_file())
    for option in options:
        if option.startswith("--"):
            assert option in found.read_text(), f"{script} has no option {option}"


def _seconds() -> float:
    """The processor time of the pages so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(arguments: list[str]) -> int:
    """Run the pages, each in a process of its own; print what failed."""
    whole = "--whole" in arguments
    wanted = [name for name in arguments if name != "--whole"] or pages()
    import fedalpha.runs.experiment  # noqa: F401 - once, for all pages

    failed = 0
    for page in wanted:
        if not any(not block.reason for block in blocks(page)):
            continue
        sys.stdout.flush()
        began = _seconds()
        child = os.fork()
        if child == 0:
            said = io.StringIO()
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                found = run_page(page, whole)
            for one in found:
                print(f"{said.getvalue()[-2000:]}\nFAILED {one}", flush=True)
            os._exit(1 if found else 0)
        wrong = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0
        failed += wrong
        print(f"{'failed' if wrong else 'ran'}: {page}, {_seconds() - began:.1f} s of processor time", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

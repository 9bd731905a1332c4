"""One call trains a federated model: federation, model, strategy and settings in, history out."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fedalpha.admission import Admission
from fedalpha.apply import APPLIES, Apply
from fedalpha.callbacks import Callback
from fedalpha.combine import COMBINES, Combine
from fedalpha.data.federations import Federation
from fedalpha.engine import Engine, Evaluation, make_engine
from fedalpha.fairness import fairness
from fedalpha.faults import FAULTS, Fault
from fedalpha.folder import Folder
from fedalpha.history import History, Row
from fedalpha.models import Model, initial
from fedalpha.rng import integer
from fedalpha.round import Algorithm, Played, ServerState, play
from fedalpha.select import SELECTIONS, Select
from fedalpha.strategies import STRATEGIES, Strategy
from fedalpha.task import Task
from fedalpha.theory.diagnostics import diagnostics
from fedalpha.update import UPDATES, Broadcast, Update


def run(
    federation: Federation,
    model: str | Model | nn.Module | Callable[[], nn.Module] = "mlp",
    strategy: str | Strategy = "FedAvg",
    *,
    rounds: int = 30,
    seed: int = 0,
    select: str | Select = "uniform",
    update: str | Update = "sgd",
    combine: str | Combine = "mean",
    apply: str | Apply = "replace",
    quorum: int | float = 1,
    deadline: float | None = None,
    reevaluate: int = 0,
    liars: int = 1,
    fault: str | Fault | None = None,
    task: Task | None = None,
    signal: str = "validation",
    evaluate_every: int = 1,
    workers: int | None = None,
    device: str = "cpu",
    engine: str = "embedded",
    ray_address: str | None = None,
    vectorise: bool | None = None,
    callbacks: Sequence[Callback] = (),
    begin: tuple[ServerState, Sequence[Row]] | None = None,
    out: str | Path | None = None,
    checkpoint_every: int = 1,
    config: Mapping[str, Any] | None = None,
) -> History:
    """Train for ``rounds`` rounds and return what happened.

    Each plug point is an object or its text. With fewer clients than ``quorum`` the model is kept; a report
    after ``deadline`` seconds is refused; the ``reevaluate`` heaviest clients are weighed by losses that the
    server measures on its validation part; the history states what any ``liars`` clients could do;
    ``fault`` is what goes wrong on purpose, such as "drop(p=0.1)".

    ``signal`` names the data whose accuracy a strategy may look at: validation (the default; the
    federation must hold some) or test. ``workers`` is the number of processes (all cores by default) and
    changes no byte of the result, nor does ``engine``: embedded, ray (on the cluster at ``ray_address``, or a
    local one) or flower (its simulation runtime). Cohorts of hundreds of clients with a small dense model are
    trained many at a time; ``vectorise`` forces or forbids it (Flower trains one by one).

    ``begin`` is a state with the rows that led to it, to go on from. ``out`` writes a run folder, where every
    round (or each ``checkpoint_every``-th) is saved: the same call again goes on after the last saved round, to
    the same bytes. ``config`` is stored there, and what it says
    must not change (by default a description of all arguments). Nothing global is touched: torch's generator
    and number of threads are left as they were. Ctrl-C ends the run early; the history says so.

    >>> from fedalpha import federation
    >>> digits = federation("digits", partition="iid", clients=4)
    >>> history = run(digits, "softmax", "FedSoftWorse(T=0.2)", rounds=2, workers=1)
    >>> [row["round"] for row in history.rows]
    [0, 1, 2]
    """
    experiment = Experiment(
        federation,
        Algorithm(
            SELECTIONS.parse(select),
            UPDATES.parse(update),
            STRATEGIES.parse(strategy),
            COMBINES.parse(combine),
            APPLIES.parse(apply),
            Admission(quorum, deadline, (task or Task()).signed),
            reevaluate,
            liars,
            None if fault is None else FAULTS.parse(fault),
        ),
        model,
        task or Task(),
        rounds,
        seed,
        signal,
        evaluate_every,
    )
    with ExitStack() as stack:
        stack.enter_context(single_thread())
        watchers, saved = list(callbacks), begin
        if wrong := [c for c in watchers if not isinstance(c, Callback)]:
            raise TypeError(f"{wrong[0]!r} is no callback; subclass fedalpha.callbacks.Callback")
        if out is not None:
            described = config or {**experiment.describe(), "vectorise": vectorise}
            folder = stack.enter_context(Folder(out, described, checkpoint_every))
            if (finished := folder.finished()) is not None:
                return finished
            watchers.append(folder)
            saved = folder.resume(experiment.start()) or begin
        place = make_engine(
            engine,
            experiment.population,
            experiment.task,
            experiment.algorithm.update,
            seed,
            workers=workers,
            device=device,
            vectorise=vectorise,
            ray_address=ray_address,
        )
        stack.callback(place.close)
        return experiment.run(place, watchers, saved)


@dataclass(frozen=True)
class Experiment:
    """A run before it starts; engines and checkpoints only see this."""

    federation: Federation
    algorithm: Algorithm
    model: str | Model | nn.Module | Callable[[], nn.Module]
    task: Task
    rounds: int
    seed: int
    signal: str = "validation"
    evaluate_every: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.federation, Federation):
            raise TypeError(
                f"expected a federation, got {type(self.federation).__name__}; build one with fedalpha.federation(…)"
            )
        if not isinstance(self.rounds, int) or self.rounds < 0:
            raise ValueError(f"rounds = {self.rounds}; give a whole number ≥ 0")
        if self.evaluate_every < 1:
            raise ValueError(f"evaluate_every = {self.evaluate_every}; give a number of rounds ≥ 1")
        if self.signal not in ("validation", "test"):
            raise ValueError(f"signal = {self.signal!r} is not one of validation, test")
        if "accuracy" in self.algorithm.weigh.requires and self.task.correct is None:
            raise ValueError(
                f"{self.algorithm.weigh} looks at accuracy, but the task has none (correct=None); change at given "
                "rounds instead (at=20), or give the task a `correct`"
            )
        if self.algorithm.reevaluate and self.federation.validation is None:
            raise ValueError("reevaluate needs data of the server's own; build the federation with validation=0.1")
        if self.looks_at("validation") and self.federation.validation is None:
            raise ValueError(
                f"{self.algorithm.weigh} looks at accuracy, but the federation has no validation part; build it with "
                "validation=0.1, or set signal=test to let it look at the test set"
            )

    @property
    def population(self) -> Federation:
        """The federation as its clients have it: with a fault, some may hold flipped labels."""
        fault = self.algorithm.fault
        return self.federation if fault is None else fault.poison(self.federation, self.seed)

    def looks_at(self, part: str) -> bool:
        """Whether the strategy sees the accuracy on this part."""
        return self.signal == part and "accuracy" in self.algorithm.weigh.requires

    def start(self) -> ServerState:
        """The state before round 0: the initial model, drawn from the seed."""
        shape, classes = self.federation.shape, self.federation.classes
        architecture, parameters = initial(self.model, shape, classes, integer(self.seed, "model"))
        return self.algorithm.init(Broadcast(architecture, parameters), self.federation.clients)

    def describe(self) -> dict[str, Any]:
        """The arguments as JSON, to tell whether a folder holds the same run."""
        from safetensors.torch import save

        plugs = {f.name: str(getattr(self.algorithm, f.name)) for f in dataclasses.fields(self.algorithm)}
        broadcast = self.start().broadcast
        with torch.random.fork_rng(devices=[]):
            module = broadcast.architecture.build()
        return {
            "federation": {"clients": self.federation.clients, **self.federation.description},
            "data": self.federation.digest(),
            "task": self.task.describe(),
            "model": str(module),
            "initial_model": hashlib.sha256(save(broadcast.parameters)).hexdigest(),
            "strategy": plugs.pop("weigh"),
            **plugs,
            **{name: getattr(self, name) for name in ("rounds", "seed", "signal", "evaluate_every")},
        }

    def run(
        self,
        engine: Engine,
        callbacks: Sequence[Callback] = (),
        saved: tuple[ServerState, Sequence[Row]] | None = None,
    ) -> History:
        """Play all rounds, or those that are left after ``saved``; a row describes the model after its round."""
        state, earlier = saved or (self.start(), [])
        rows: list[Row] = list(earlier)
        recorded = state
        played: Played | None = None
        complete = interrupted = False
        try:
            for callback in callbacks:
                callback.on_start(self.rounds)
                if rows:
                    callback.on_resume(rows)
            while not complete:
                started = time.perf_counter()
                if rows:
                    if state.round >= self.rounds:  # saved after its last round, before its end
                        break
                    state, played = play(self.algorithm, state, engine, self.federation, self.seed)
                tested = self._test(engine, state)
                state = self._look(engine, state, tested)
                rows.append(self._row(state, played, tested, time.perf_counter() - started))
                recorded = state
                stop = [callback.on_round(rows[-1], state) for callback in callbacks]
                complete = state.round >= self.rounds or any(stop)
            complete = True
        except KeyboardInterrupt:
            interrupted = True
        finally:
            history = History(rows, recorded.broadcast.parameters, interrupted or not complete)
            for callback in callbacks:
                callback.on_end(history)
        return history

    def _test(self, engine: Engine, state: ServerState) -> Evaluation | None:
        due = state.round % self.evaluate_every == 0 or state.round == self.rounds or self.looks_at("test")
        return engine.evaluate(state.broadcast, "test") if due else None

    def _look(self, engine: Engine, state: ServerState, tested: Evaluation | None) -> ServerState:
        """The state with the accuracy that the strategy may see, if it looks at one."""
        if self.looks_at("validation"):
            tested = engine.evaluate(state.broadcast, "validation")
        elif not self.looks_at("test"):
            return state
        return dataclasses.replace(state, accuracy=None if tested is None else tested.accuracy)

    def _row(self, state: ServerState, played: Played | None, tested: Evaluation | None, seconds: float) -> Row:
        row: Row = {
            "round": state.round,
            "accuracy": tested and tested.accuracy,
            "loss": tested and _finite(tested.loss),
        }
        if self.looks_at("validation"):
            row["validation_accuracy"] = state.accuracy
        if tested is not None and tested.correct is not None:
            row |= fairness(self.federation, tested.correct)
        row |= {
            "cohort": played and played.cohort.ids.tolist(),
            "alpha": played and played.alpha.tolist(),
            "losses": played and {k: [_finite(v) for v in values] for k, values in played.losses.items()},
            "steps": played.steps if played else 0,
            "bytes_down": played.bytes_down if played else 0,
            "bytes_up": played.bytes_up if played else 0,
            "refused": [dataclasses.asdict(r) for r in played.refusals] if played else [],
            "idle": list(played.idle) if played else [],
            "kept": played.kept if played else None,
            "influence": played.influence.row() if played and played.influence else None,
            **_diagnosed(played),
            "seconds": round(seconds, 6),
        }
        return row


@contextmanager
def single_thread() -> Iterator[None]:
    """Client arithmetic uses one intra-op thread; the caller's setting comes back afterwards."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _diagnosed(played: Played | None) -> dict[str, float | None]:
    """ρ, π, Π, effective clients and the heaviest share of a round, p being the sizes within the cohort.

    ρ takes the losses *before* training, as the theory does: it is None where the strategy asked for
    none (or for later ones), unless alpha = p, when it is 1. All are None in round 0 and where the model was kept.
    """
    if played is None:
        return diagnostics([], [])
    cohort = played.cohort
    return diagnostics(played.alpha, cohort.sizes, cohort.before, cohort.optima)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None

"""One call trains a federated model: federation, model, strategy and settings in, history out."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fedalpha.analysis import columns
from fedalpha.analysis.fairness import Owners
from fedalpha.analysis.history import History, Row
from fedalpha.apply import APPLIES, Apply
from fedalpha.combine import COMBINES, Combine
from fedalpha.data.federations import Federation
from fedalpha.defence.faults import FAULTS, Fault, Faulty
from fedalpha.defence.tolerance import influence
from fedalpha.engine import ENGINES, Place
from fedalpha.fast.threads import single_thread
from fedalpha.models import Model, fingerprint, initial
from fedalpha.rng import integer
from fedalpha.round import Admission, Algorithm, Engine, Evaluation, Outcome, ServerState, play
from fedalpha.runs.callbacks import Callback
from fedalpha.runs.folder import Folder
from fedalpha.runs.loggers import LOGGERS
from fedalpha.select import SELECTIONS, Select
from fedalpha.strategies import STRATEGIES, Strategy
from fedalpha.update import UPDATES, Broadcast, Update

AnyModel = str | Model | nn.Module | Callable[[], nn.Module]


@dataclass(frozen=True)
class Evaluate:
    """What is measured in a run: the test set every ``every`` rounds, and the influence of any ``liars`` clients.

    ``signal`` names the data whose accuracy a strategy may look at: validation (the federation must hold some) or
    test.
    """

    every: int = 1
    signal: str = "validation"
    liars: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.every, bool) or not isinstance(self.every, int) or self.every < 1:
            raise ValueError(f"evaluate: every = {self.every!r}; give a number of rounds ≥ 1")
        if self.signal not in ("validation", "test"):
            raise ValueError(f"signal = {self.signal!r} is not one of validation, test")
        if self.liars < 0:
            raise ValueError(f"liars = {self.liars}; give a number of clients ≥ 0")


def run(
    federation: Federation,
    model: AnyModel = "mlp",
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
    fault: str | Fault | None = None,
    evaluate: int | Evaluate = 1,
    engine: str | Place = "embedded",
    callbacks: Sequence[str | Callback] = (),
    out: str | Path | Folder | None = None,
) -> History:
    """Train for ``rounds`` rounds and return the history.

    Each plug point is an object or its text. With fewer clients than ``quorum`` the model is kept; a report
    after ``deadline`` seconds is refused; the ``reevaluate`` heaviest clients are weighed by losses that the
    server measures on its validation part; ``fault`` is what goes wrong on purpose, such as "drop(p=0.1)".
    ``evaluate`` says how often the test set is evaluated (a number of rounds), or more with `Evaluate`.

    ``engine`` says where clients are computed: "embedded" (this machine), "embedded(workers=2)",
    "ray(address='head:6379')" or "flower" (its simulation runtime). It changes no byte of the result.

    ``callbacks`` watch the run: objects, or loggers as text, such as "csv(rounds.csv)".

    ``out`` writes a run folder, where every round is saved (`Folder` has more options): the same call again
    continues after the last saved round, to the same bytes. Nothing global is touched: torch's generator and number
    of threads are left as they were. Ctrl-C ends the run early; the history says so.

    >>> from fedalpha import federation
    >>> digits = federation("digits", partition="iid", clients=4)
    >>> history = run(digits, "softmax", "FedSoftWorse(T=0.2)", rounds=2, engine="embedded(workers=1)")
    >>> [row["round"] for row in history.rows]
    [0, 1, 2]
    """
    if not isinstance(federation, Federation):
        raise TypeError(
            f"expected a federation, got {type(federation).__name__}; build one with fedalpha.federation(…)"
        )
    algorithm = Algorithm(
        SELECTIONS.parse(select),
        UPDATES.parse(update),
        STRATEGIES.parse(strategy),
        COMBINES.parse(combine),
        APPLIES.parse(apply),
        Admission(quorum, deadline, federation.task.signed),
        reevaluate,
    )
    watched = evaluate if isinstance(evaluate, Evaluate) else Evaluate(evaluate)
    broken = None if fault is None else FAULTS.parse(fault)
    return Experiment(federation, algorithm, model, rounds, seed, watched, broken).run(engine, callbacks, out)


@dataclass(frozen=True)
class Experiment:
    """A run before it starts."""

    federation: Federation
    algorithm: Algorithm
    model: AnyModel
    rounds: int
    seed: int
    evaluate: Evaluate = field(default_factory=Evaluate)
    fault: Fault | None = None
    """What goes wrong on purpose."""

    def __post_init__(self) -> None:
        if not isinstance(self.rounds, int) or self.rounds < 0:
            raise ValueError(f"rounds = {self.rounds}; give a whole number ≥ 0")
        if "accuracy" in self.algorithm.weigh.requires and self.federation.task.correct is None:
            raise ValueError(
                f"{self.algorithm.weigh} looks at accuracy, but the task has none (correct=None); change at given "
                "rounds instead (at=20), or give the task a `correct`"
            )
        if self.algorithm.reevaluate and self.federation.validation is None:
            raise ValueError("reevaluate needs data of the server's own; build the federation with validation=0.1")
        if "server" in self.algorithm.combine.wants and self.federation.validation is None:
            raise ValueError(
                f"{self.algorithm.combine} learns on data of the server's own; build the federation with validation=0.1"
            )
        if self.looks_at("validation") and self.federation.validation is None:
            raise ValueError(
                f"{self.algorithm.weigh} looks at accuracy, but the federation has no validation part; build it with "
                "validation=0.1, or set signal=test to let it look at the test set"
            )

    @property
    def population(self) -> Federation:
        """The federation as its clients have it: with a fault, some may hold flipped labels."""
        return self.federation if self.fault is None else self.fault.poison(self.federation, self.seed)

    def looks_at(self, part: str) -> bool:
        """Whether the strategy sees the accuracy on this part."""
        return self.evaluate.signal == part and "accuracy" in self.algorithm.weigh.requires

    def start(self) -> ServerState:
        """The state before round 0: the initial model, drawn from the seed."""
        shape, classes = self.federation.shape, self.federation.classes
        architecture, parameters = initial(self.model, shape, classes, integer(self.seed, "model"))
        return self.algorithm.init(Broadcast(architecture, parameters), self.federation.clients)

    def describe(self) -> dict[str, Any]:
        """The arguments as JSON, to tell whether a folder holds the same run."""
        plugs = {f.name: str(getattr(self.algorithm, f.name)) for f in dataclasses.fields(self.algorithm)}
        plugs |= {"liars": str(self.evaluate.liars), "fault": str(self.fault)}
        broadcast = self.start().broadcast
        with torch.random.fork_rng(devices=[]):
            module = broadcast.architecture.build()
        return {
            "federation": {"clients": self.federation.clients, **self.federation.description},
            "data": self.federation.digest(),
            "task": self.federation.task.describe(),
            "model": str(module),
            "initial_model": fingerprint(broadcast.parameters),
            "strategy": plugs.pop("weigh"),
            **plugs,
            "rounds": self.rounds,
            "seed": self.seed,
            "signal": self.evaluate.signal,
            "evaluate_every": self.evaluate.every,
        }

    def run(
        self,
        engine: str | Place = "embedded",
        callbacks: Sequence[str | Callback] = (),
        out: str | Path | Folder | None = None,
        begin: tuple[ServerState, Sequence[Row]] | None = None,
    ) -> History:
        """Start the engine and play all rounds; ``begin`` is a state to continue from, with the rows that led to it."""
        if wrong := [c for c in callbacks if not isinstance(c, str | Callback)]:
            raise TypeError(f"{wrong[0]!r} is not a callback; subclass fedalpha.runs.callbacks.Callback")
        place, watchers = ENGINES.parse(engine), [LOGGERS.parse(callback) for callback in callbacks]
        with ExitStack() as stack:
            stack.enter_context(single_thread())
            if out is not None:
                folder = out if isinstance(out, Folder) else Folder(out)
                if folder.config is None:
                    folder.config = {**self.describe(), "vectorise": getattr(place, "vectorise", None)}
                stack.enter_context(folder)
                if (finished := folder.finished()) is not None:
                    return finished
                watchers.append(folder)
                begin = folder.resume(self.start()) or begin
            clients = place.start(self.population, self.federation.task, self.algorithm.update, self.seed)
            stack.callback(clients.close)
            return self.play(clients, watchers, begin)

    def play(
        self,
        engine: Engine,
        callbacks: Sequence[Callback] = (),
        saved: tuple[ServerState, Sequence[Row]] | None = None,
    ) -> History:
        """Play all rounds, or those that are left after ``saved``; a row describes the model after its round."""
        state, earlier = saved or (self.start(), [])
        rows: list[Row] = list(earlier)
        recorded = state
        outcome: Outcome | None = None
        complete = interrupted = False
        try:
            for callback in callbacks:
                callback.on_start(self.rounds)
                if rows:
                    callback.on_resume(rows)
            while not complete:
                started = time.perf_counter()
                if rows:
                    if state.round >= self.rounds:  # stopped between its last round and its end
                        break
                    outcome = self._play(engine, state)
                    state = outcome.state
                tested = self._test(engine, state)
                state = self._look(engine, state, tested)
                rows.append(self._row(state, outcome, tested, time.perf_counter() - started))
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

    def _play(self, engine: Engine, state: ServerState) -> Outcome:
        if self.fault is not None:
            engine = Faulty(engine, self.fault, self.seed, state.round, self.federation.clients)
        return play(self.algorithm, state, engine, self.federation, self.seed)

    def _influence(self, outcome: Outcome | None) -> dict[str, Any] | None:
        """The influence of any ``liars`` clients in the round."""
        if outcome is None or outcome.kept is not None:
            return None
        rules = self.algorithm.weigh, self.algorithm.combine
        found = influence(*rules, outcome.cohort, outcome.alpha, self.evaluate.liars, outcome.lost)
        return found.row() if found else None

    def _test(self, engine: Engine, state: ServerState) -> Evaluation | None:
        due = state.round % self.evaluate.every == 0 or state.round == self.rounds or self.looks_at("test")
        return engine.evaluate(state.broadcast, "test") if due else None

    def _look(self, engine: Engine, state: ServerState, tested: Evaluation | None) -> ServerState:
        """The state with the accuracy that the strategy may see, if it looks at one."""
        if self.looks_at("validation"):
            tested = engine.evaluate(state.broadcast, "validation")
        elif not self.looks_at("test"):
            return state
        return dataclasses.replace(state, accuracy=None if tested is None else tested.accuracy)

    def _row(self, state: ServerState, outcome: Outcome | None, tested: Evaluation | None, seconds: float) -> Row:
        return columns.row(
            columns.Context(
                round=state.round,
                outcome=outcome,
                influence=self._influence(outcome),
                accuracy=None if tested is None else tested.accuracy,
                loss=None if tested is None else tested.loss,
                correct=None if tested is None else tested.correct,
                owners=None if tested is None or tested.correct is None else Owners.of(self.federation),
                validation_accuracy=state.accuracy if self.looks_at("validation") else None,
                seconds=seconds,
            )
        )

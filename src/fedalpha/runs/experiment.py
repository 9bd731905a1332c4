"""One call trains a federated model: federation, model, strategy and settings in, history out."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fedalpha.analysis import columns
from fedalpha.analysis.conditions import Condition
from fedalpha.analysis.fairness import Owners
from fedalpha.analysis.history import Best, History, Row
from fedalpha.analysis.scores import scores
from fedalpha.analysis.watch import Watch
from fedalpha.apply import APPLIES, Apply
from fedalpha.combine import COMBINES, Combine
from fedalpha.data.federations import Federation
from fedalpha.defence.faults import FAULTS, Fault, Faulty
from fedalpha.defence.tolerance import influence
from fedalpha.engine import ENGINES, Place
from fedalpha.fast.threads import single_thread
from fedalpha.models import Model, fingerprint, initial
from fedalpha.rng import integer
from fedalpha.round import Admission, Algorithm, Engine, Evaluation, Gate, Outcome, ServerState, play
from fedalpha.round.shadow import Asked
from fedalpha.runs.callbacks import Callback
from fedalpha.runs.folder import Folder
from fedalpha.runs.loggers import LOGGERS
from fedalpha.select import SELECTIONS, Select
from fedalpha.strategies import STRATEGIES, Strategy
from fedalpha.task import TASKS
from fedalpha.text import Registry, quoted, whole
from fedalpha.update import UPDATES, Broadcast, Update
from fedalpha.update.fit import check_fit

AnyModel = str | Model | nn.Module | Callable[[], nn.Module]


@dataclass(frozen=True)
class Evaluate:
    """What is measured in a run: the test set every ``every`` rounds, and the influence of any ``liars`` clients.

    ``stop`` ends the run early: "accuracy >= 0.9", "patience(loss, rounds=5)", or several with "or".
    ``keep="best"`` keeps also the model with the best accuracy ("best(loss)": the least loss), as ``history.best`` and
    ``best.safetensors``. ``shadow`` names strategies whose weights are recorded in every row but not applied.

    ``signal`` names the data at which ``stop``, ``keep`` and strategies may look: validation (the federation must
    hold some) or test. What is looked at is measured in every round.
    """

    every: int = 1
    signal: str = "validation"
    liars: int = 1
    stop: str | Condition | None = None
    keep: str = "last"
    shadow: Sequence[str | Strategy] = ()

    def __post_init__(self) -> None:
        whole("evaluate: every", self.every, least=1)
        whole("liars", self.liars)
        if self.signal not in ("validation", "test"):
            raise ValueError(f"signal = {quoted(self.signal)} is not one of validation, test")
        _ = self.watch  # reports mistakes

    @cached_property
    def watch(self) -> Watch:
        return Watch(self.signal, self.stop, self.keep, self.shadow)


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
    of threads are left as they were. Ctrl-C raises `Interrupted`, a KeyboardInterrupt with the history so far; with
    ``out`` everything is saved first.

    >>> from fedalpha import federation
    >>> digits = federation("digits", partition="iid", clients=4)
    >>> history = run(digits, "softmax", "FedSoftWorse(T=0.2)", rounds=2, engine="embedded(workers=1)")
    >>> [row["round"] for row in history.rows]
    [0, 1, 2]
    """
    planned = plan(
        federation,
        model,
        strategy,
        rounds=rounds,
        seed=seed,
        select=select,
        update=update,
        combine=combine,
        apply=apply,
        quorum=quorum,
        deadline=deadline,
        reevaluate=reevaluate,
        fault=fault,
        evaluate=evaluate,
    )
    history = planned.run(engine, callbacks, out)
    if history.interrupted:
        raise Interrupted(history, resumable=out is not None)
    return history


def plan(
    federation: Federation,
    model: AnyModel,
    strategy: str | Strategy,
    *,
    rounds: int,
    seed: int,
    select: str | Select,
    update: str | Update,
    combine: str | Combine,
    apply: str | Apply,
    quorum: int | float,
    deadline: float | None,
    reevaluate: int,
    fault: str | Fault | None,
    evaluate: int | Evaluate,
) -> Experiment:
    """The run that these arguments of `run` describe. The command line builds its runs here, too."""
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
    return Experiment(federation, algorithm, model, rounds, seed, watched, broken)


def _has_text(rule: Any, registry: Registry[Any]) -> bool:
    """Whether a rule can be made from its text: not if it is of a class that is not registered."""
    try:
        return rule is None or registry.parse(str(rule)) == rule
    except ValueError:
        return False


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during `run`. The rounds that were played are in ``history``."""

    def __init__(self, history: History, resumable: bool = False) -> None:
        played = history.rows[-1]["round"] if history.rows else 0
        then = "; the same call resumes it" if resumable else ""
        super().__init__(f"the run was interrupted after round {played}{then} (its history: error.history)")
        self.history = history


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
        object.__setattr__(self, "rounds", whole("rounds", self.rounds))
        object.__setattr__(self, "seed", whole("seed", self.seed))
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
        self.watch.check(self.algorithm, self.federation.task.correct is not None)
        if self.looks_at("validation") and self.federation.validation is None:
            who = "stop or keep" if self.watch.looks else "a shadow rule"
            who = str(self.algorithm.weigh) if "accuracy" in self.algorithm.weigh.requires else who
            raise ValueError(
                f"{who} looks at accuracy or loss, but the federation has no validation part; build it with "
                "validation=0.1, or set signal=test to let it look at the test set"
            )

    @property
    def population(self) -> Federation:
        """The federation as its clients have it: with a fault, some may hold flipped labels."""
        return self.federation if self.fault is None else self.fault.poison(self.federation, self.seed)

    @property
    def watch(self) -> Watch:
        return self.evaluate.watch

    def looks_at(self, part: str) -> bool:
        """Whether anything looks at this part: the strategy, ``stop``, ``keep`` or a shadow rule."""
        rules = self.algorithm.weigh.requires | self.watch.shadows.requires
        return self.evaluate.signal == part and ("accuracy" in rules or bool(self.watch.looks))

    def start(self) -> ServerState:
        """The state before round 0: the initial model, drawn from the seed."""
        shape, classes, clients = self.federation.shape, self.federation.classes, self.federation.clients
        architecture, parameters = initial(self.model, shape, classes, integer(self.seed, "model"))
        state = self.algorithm.init(Broadcast(architecture, parameters), clients)
        return dataclasses.replace(state, watch=self.watch.init(clients))

    def describe(self, place: Place | None = None) -> dict[str, Any]:
        """The arguments as JSON, to tell whether a folder holds the same run.

        With the engine they also say how the run is repeated from the command line, if all of it has a text.
        """
        plugs = {f.name: str(getattr(self.algorithm, f.name)) for f in dataclasses.fields(self.algorithm)}
        plugs |= {"liars": str(self.evaluate.liars), "fault": str(self.fault)}
        broadcast = self.start().broadcast
        settings = None if place is None else self._settings(place)
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
            **self.watch.settings,
            **({} if place is None else {"vectorise": getattr(place, "vectorise", None)}),
            **({} if settings is None else {"settings": settings}),
        }

    def _settings(self, place: Place) -> dict[str, Any] | None:
        """The settings of the command line that describe the same run; None if something in it has no text."""
        data, algorithm = self.federation, self.algorithm
        task = next((name for name, known in TASKS.items() if known == data.task), None)
        rules: dict[str, tuple[Any, Registry[Any]]] = {
            "select": (algorithm.select, SELECTIONS),
            "update": (algorithm.update, UPDATES),
            "strategy": (algorithm.weigh, STRATEGIES),
            "combine": (algorithm.combine, COMBINES),
            "apply": (algorithm.apply, APPLIES),
            "fault": (self.fault, FAULTS),
            "engine": (dataclasses.replace(place, workers=None), ENGINES),
        }
        named = isinstance(self.model, str | Model) and all(_has_text(*rule) for rule in rules.values())
        if data.settings is None or data.settings["seed"] != self.seed or task is None or not named:
            return None
        return {
            **data.settings,
            "model": str(self.model),
            **{name: None if rule is None else str(rule) for name, (rule, _) in rules.items()},
            "rounds": self.rounds,
            "task": task,
            "quorum": algorithm.admission.quorum,
            "deadline": algorithm.admission.deadline,
            "reevaluate": algorithm.reevaluate,
            "liars": self.evaluate.liars,
            "signal": self.evaluate.signal,
            "evaluate_every": self.evaluate.every,
            **dict.fromkeys(("stop", "keep", "shadow")),
            **self.watch.settings,
        }

    def run(
        self,
        engine: str | Place = "embedded",
        callbacks: Sequence[str | Callback] = (),
        out: str | Path | Folder | None = None,
        begin: tuple[ServerState, Sequence[Row]] | None = None,
    ) -> History:
        """Start the engine and play all rounds; ``begin`` is a state to continue from, with the rows that led to it."""
        if isinstance(callbacks, str | Callback):
            callbacks = [callbacks]
        if wrong := [c for c in callbacks if not isinstance(c, str | Callback)]:
            raise TypeError(f"{wrong[0]!r} is not a callback; subclass fedalpha.runs.callbacks.Callback")
        place, watchers = ENGINES.parse(engine), [LOGGERS.parse(callback) for callback in callbacks]
        with ExitStack() as stack:
            stack.enter_context(single_thread())
            check_fit(self.start().broadcast, self.federation, self.algorithm.update)
            if out is not None:
                folder = out if isinstance(out, Folder) else Folder(out)
                if folder.config is None:
                    folder.config = self.describe(place)
                stack.enter_context(folder)
                if (finished := folder.finished()) is not None:
                    return self._continuable(finished, place, out)
                watchers.append(folder)
                begin = folder.resume(self.start()) or begin
                self._forget_end(begin)
            clients = place.start(self.population, self.federation.task, self.algorithm.update, self.seed)
            stack.callback(clients.close)
            if told := [w for w in watchers if type(w).on_config is not Callback.on_config]:
                config = self.describe()
                for watcher in told:
                    watcher.on_config(config)
            return self._continuable(self.play(clients, watchers, begin), place, out)

    def _continuable(self, history: History, place: Place, out: str | Path | Folder | None) -> History:
        """The history with a way to play more rounds."""

        def more(rounds: int, callbacks: Sequence[str | Callback]) -> History:
            longer = dataclasses.replace(self, rounds=rounds)
            begin = None if history.state is None else (history.state, [dict(row) for row in history.rows])
            longer._forget_end(begin)
            folder = out.lengthened(rounds) if isinstance(out, Folder) else out
            return longer.run(place, callbacks, folder, begin)

        return dataclasses.replace(history, more=more)

    def _forget_end(self, begin: tuple[ServerState, Sequence[Row]] | None) -> None:
        """Clear the test figures of the last row, if it has them only because the run was to end there."""
        row = begin[1][-1] if begin and begin[1] else None
        if row is None or "stopped" in row or row["round"] == self.rounds or self._due(row["round"]):
            return
        blank = columns.row(columns.Context(round=row["round"], **self._tested(None)))
        for found in columns.columns():
            if found.tested and found.name in row:
                if found.name in blank:
                    row[found.name] = blank[found.name]
                else:
                    del row[found.name]

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
        complete = interrupted = False
        try:
            for callback in callbacks:
                callback.on_start(self.rounds)
            if rows:
                stop = [callback.on_resume(rows) for callback in callbacks]
                complete = "stopped" in rows[-1] or state.round >= self.rounds or any(stop)
            while not complete:
                started = time.perf_counter()
                outcome, shadow = None, None
                if rows:
                    outcome, shadow = self._play(engine, state)
                    state = outcome.state
                state, row = self._look(engine, state, outcome, shadow, rows, started)
                rows.append(row)
                recorded = state
                stop = [callback.on_round(row, state) for callback in callbacks]
                complete = "stopped" in row or state.round >= self.rounds or any(stop)
            complete = True
        except KeyboardInterrupt:
            interrupted = True
        finally:
            best = recorded.watch.get("best")
            kept = Best(rows[best["round"]], best["model"]) if best else None
            history = History(rows, recorded.broadcast.parameters, interrupted or not complete, kept, recorded)
            for callback in callbacks:
                callback.on_end(history)
        return history

    def _play(self, engine: Engine, state: ServerState) -> tuple[Outcome, dict[str, Any] | None]:
        """The outcome of a round, its state with those of the shadow rules, and what those would have weighed."""
        if self.fault is not None:
            engine = Faulty(engine, self.fault, self.seed, state.round, self.federation.clients)
        outcome = play(self.algorithm, state, engine, self.federation, self.seed)
        shadows = self.watch.shadows
        if not shadows.rules:
            return outcome, None
        asked, states = None, state.watch["shadow"]
        if outcome.kept is None and shadows.asks(states, outcome.cohort):
            asked = Asked(outcome.cohort.ids, engine.losses(state.broadcast, outcome.cohort.ids))
        gate = Gate(self.algorithm.admission, state.broadcast, self.seed, state.round)
        found, states = shadows.weigh(states, outcome, gate, asked, state.watch.get("accuracy"))
        following = dataclasses.replace(outcome.state, watch={**outcome.state.watch, "shadow": states})
        return dataclasses.replace(outcome, state=following), found

    def _influence(self, outcome: Outcome | None) -> dict[str, Any] | None:
        """The influence of any ``liars`` clients in the round."""
        if outcome is None or outcome.kept is not None:
            return None
        rules = self.algorithm.weigh, self.algorithm.combine
        found = influence(*rules, outcome.cohort, outcome.alpha, self.evaluate.liars, outcome.lost)
        return found.row() if found else None

    def _look(
        self,
        engine: Engine,
        state: ServerState,
        outcome: Outcome | None,
        shadow: dict[str, Any] | None,
        rows: Sequence[Row],
        started: float,
    ) -> tuple[ServerState, Row]:
        """Measure the model. Returns the state with what was measured and is used later, and the row."""
        due = self._due(state.round) or state.round == self.rounds
        tested = engine.evaluate(state.broadcast, "test") if due else None
        validated = engine.evaluate(state.broadcast, "validation") if self.looks_at("validation") else None
        state = self._noted(state, tested if self.evaluate.signal == "test" else validated)
        weighs = "accuracy" in self.algorithm.weigh.requires
        best = state.watch.get("best")
        context = columns.Context(
            round=state.round,
            outcome=outcome,
            influence=self._influence(outcome),
            **self._tested(tested),
            validation_accuracy=validated.accuracy if validated and (weighs or self.watch.looks) else None,
            validation_loss=validated.loss if validated and self.watch.looks else None,
            shadow=shadow,
            best_round=None if best is None else best["round"],
            seconds=time.perf_counter() - started,
        )
        row = columns.row(context)
        if stopped := self.watch.stopped([*rows, row]):
            test = {} if tested else self._tested(engine.evaluate(state.broadcast, "test"))
            row = columns.row(dataclasses.replace(context, stopped=stopped, **test))
        return state, row

    def _due(self, round: int) -> bool:
        """Whether the test set is evaluated after this round, even if it is not the last one."""
        return round % self.evaluate.every == 0 or self.looks_at("test")

    def _tested(self, tested: Evaluation | None) -> dict[str, Any]:
        """An evaluation on the test set, or that there is none, as arguments of a row's context."""
        found: dict[str, Any] = {"owners": Owners.of(self.federation)}
        if tested is None:
            return {**found, "scores": dict.fromkeys(self.federation.task.scores)}
        found |= {"accuracy": tested.accuracy, "loss": tested.loss, "correct": tested.correct}
        targets = math.prod(self.federation.test.y.shape[1:])
        return {**found, "scores": scores(self.federation.task, tested.records, targets)}

    def _noted(self, state: ServerState, signal: Evaluation | None) -> ServerState:
        """The state with the accuracy that the strategy may see, if it looks at one, and with the best model."""
        if signal is None:
            return state
        watch = self.watch.best(state.watch, state.round, state.broadcast.parameters, signal.accuracy, signal.loss)
        if self.watch.weighs_by_accuracy:
            watch = {**watch, "accuracy": signal.accuracy}
        seen = signal.accuracy if "accuracy" in self.algorithm.weigh.requires else state.accuracy
        return dataclasses.replace(state, watch=watch, accuracy=seen)

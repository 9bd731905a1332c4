"""One call trains a federated model: federation, model, strategy and settings in, history out."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedalpha.analysis import columns
from fedalpha.analysis.history import Best, History, Row
from fedalpha.apply import APPLIES, Apply
from fedalpha.clock import Availability, Clock, Pace, Server
from fedalpha.combine import COMBINES, Combine
from fedalpha.data.federations import Federation
from fedalpha.defence.faults import FAULTS, Fault, Faulty
from fedalpha.engine import ENGINES, Place
from fedalpha.fast.threads import single_thread
from fedalpha.round import Admission, Algorithm, Engine, Gate, Outcome, ServerState
from fedalpha.round.pacing import play_at
from fedalpha.round.shadow import Asked
from fedalpha.runs.callbacks import Callback
from fedalpha.runs.description import describe
from fedalpha.runs.evaluate import Evaluate
from fedalpha.runs.folder import Folder
from fedalpha.runs.loggers import LOGGERS
from fedalpha.runs.loggers.progress import ShowProgress
from fedalpha.runs.measuring import Measuring, tested_part, timed_part
from fedalpha.runs.setup import AnyModel, Setup
from fedalpha.select import SELECTIONS, Select
from fedalpha.strategies import STRATEGIES, Strategy
from fedalpha.text import shown
from fedalpha.update import UPDATES, Update
from fedalpha.update.compressed import Compressed
from fedalpha.update.fit import check_fit
from fedalpha.upload import UPLOADS, Upload

if TYPE_CHECKING:
    from fedalpha.secure.forms import Secure


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
    fault: str | Fault | None = None,
    secure: str | Secure | None = None,
    upload: str | Upload | None = None,
    server: str | Server = "synchronous",
    clock: str | Clock | None = None,
    availability: str | Availability = "always",
    evaluate: int | Evaluate = 1,
    engine: str | Place = "embedded",
    callbacks: Sequence[str | Callback] = (),
    progress: bool = False,
    out: str | Path | Folder | None = None,
) -> History:
    """Train for ``rounds`` rounds and return the history.

    Each plug point is an object or its text. With fewer clients than ``quorum`` the model is kept; a report
    after ``deadline`` seconds is refused; ``fault`` is a fault or an attack to simulate, such as "drop(p=0.1)";
    ``secure`` lets the server learn sums only, such as "masked" (docs/privacy.md); ``upload`` is how clients write
    their updates for sending, such as "quantised(bits=4)" (docs/uploads.md).

    ``clock`` says how many simulated seconds clients take, such as "lognormal(sigma=1)", and ``availability`` when they
    can be reached, such as "diurnal(share=0.3)"; with a clock ``deadline`` counts simulated seconds. ``server`` says
    which updates the server waits for: "synchronous", "synchronous(take=10)", or "buffered(K=10, concurrency=30)",
    which combines updates as they arrive; a round is then a version of the model.

    ``evaluate`` says how often the test set is evaluated (a number of rounds), or more with `Evaluate`.

    ``engine`` says where clients are computed: "embedded" (this machine), "embedded(workers=2)",
    "ray(address='head:6379')" or "flower" (its simulation runtime). It changes no byte of the result.

    ``callbacks`` watch the run: objects, or loggers as text, such as "csv(rounds.csv)". ``progress=True`` shows how far
    it is: a bar on a terminal, a line that changes in a notebook, plain lines elsewhere.

    ``out`` writes a run folder, where every round is saved (`Folder` has more options): the same call again
    resumes after the last saved round, to the same bytes. Nothing global is changed: torch's generator and number
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
        fault=fault,
        secure=secure,
        upload=upload,
        server=server,
        clock=clock,
        availability=availability,
        evaluate=evaluate,
    )
    history = planned.run(engine, callbacks, out, progress=progress)
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
    fault: str | Fault | None,
    secure: str | Secure | None,
    upload: str | Upload | None,
    server: str | Server | None,
    clock: str | Clock | None,
    availability: str | Availability | None,
    evaluate: int | Evaluate,
) -> Experiment:
    """The run that these arguments of `run` describe. The command line builds its runs here, too."""
    if not isinstance(federation, Federation):
        raise TypeError(
            f"expected a federation, got {type(federation).__name__}; build one with fedalpha.federation(…)"
        )
    watched = evaluate if isinstance(evaluate, Evaluate) else Evaluate(evaluate)
    algorithm = Algorithm(
        SELECTIONS.parse(select),
        UPDATES.parse(update),
        STRATEGIES.parse(strategy),
        COMBINES.parse(combine),
        APPLIES.parse(apply),
        Admission(quorum, deadline, federation.task.signed),
        watched.reevaluate,
        None if secure is None else _secure(secure),
        None if upload is None else UPLOADS.parse(upload),
    )
    broken = None if fault is None else FAULTS.parse(fault)
    pace = Pace.of(server, clock, availability)
    return Experiment(federation, algorithm, model, rounds, seed, watched, broken, pace)


def _secure(text: str | Secure) -> Secure:
    from fedalpha.secure.forms import SECURES

    return SECURES.parse(text)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during `run`. The rounds that were played are in ``history``."""

    def __init__(self, history: History, resumable: bool = False) -> None:
        played = history.rows[-1]["round"] if history.rows else 0
        then = "; the same call resumes it" if resumable else ""
        super().__init__(f"the run was interrupted after round {played}{then} (its history: error.history)")
        self.history = history


class Experiment(Setup):
    """A run that can be played."""

    def run(
        self,
        engine: str | Place = "embedded",
        callbacks: Sequence[str | Callback] = (),
        out: str | Path | Folder | None = None,
        begin: tuple[ServerState, Sequence[Row]] | None = None,
        progress: bool = False,
    ) -> History:
        """Start the engine and play all rounds; ``begin`` is a state to continue from, with the rows that led to it."""
        if isinstance(callbacks, str | Callback):
            callbacks = [callbacks]
        if not isinstance(callbacks, Iterable):
            raise TypeError(f"callbacks = {callbacks!r}; give a list of callbacks, or of loggers' texts")
        if wrong := [c for c in callbacks if not isinstance(c, str | Callback)]:
            what = "a class" if isinstance(wrong[0], type) else "not a callback"
            raise TypeError(
                f"{wrong[0]!r} is {what}; give an object of a subclass of fedalpha.Callback, or a logger's text"
            )
        place, watchers = ENGINES.parse(engine), [LOGGERS.parse(callback) for callback in callbacks]
        watchers = [ShowProgress(), *watchers] if progress else watchers
        with ExitStack() as stack:
            stack.enter_context(single_thread())
            check_fit(self.start().broadcast, self.federation, self.algorithm.update)
            if out is not None:
                if not isinstance(out, str | Path | Folder):
                    raise TypeError(f"out = {out!r}; give the path of a folder")
                folder = out if isinstance(out, Folder) else Folder(out)
                if folder.config is None:
                    folder.config = describe(self, place)
                stack.enter_context(folder)
                if (finished := folder.finished()) is not None:
                    return self._continuable(finished, place, out)
                watchers.append(folder)
                begin = folder.resume(self.start(), self.federation.clients) or begin
                self._forget_end(begin)
            update, upload = self.algorithm.update, self.algorithm.upload
            update = update if upload is None else Compressed(update, upload)
            clients = place.start(self.population, self.federation.task, update, self.seed)
            stack.callback(clients.close)
            if told := [w for w in watchers if type(w).on_config is not Callback.on_config]:
                config = describe(self)
                for watcher in told:
                    watcher.on_config(config)
            return self._continuable(self.play(clients, watchers, begin), place, out)

    def _continuable(self, history: History, place: Place, out: str | Path | Folder | None) -> History:
        """The history with a way to play more rounds."""

        def more(rounds: int, callbacks: Sequence[str | Callback], progress: bool) -> History:
            longer = dataclasses.replace(self, rounds=rounds)
            begin = None if history.state is None else (history.state, [dict(row) for row in history.rows])
            longer._forget_end(begin)
            folder = out.lengthened(rounds) if isinstance(out, Folder) else out
            return longer.run(place, callbacks, folder, begin, progress)

        return dataclasses.replace(history, more=more)

    def _forget_end(self, begin: tuple[ServerState, Sequence[Row]] | None) -> None:
        """Clear the test figures of the last row, if it has them only because the run was to end there."""
        row = begin[1][-1] if begin and begin[1] else None
        if row is None or "stopped" in row or row["round"] == self.rounds or self.due(row["round"]):
            return
        blank = columns.row(
            columns.Context(round=row["round"], **timed_part(self, row.get("time")), **tested_part(self, None))
        )
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
        begun = state if saved else None
        rows: list[Row] = list(earlier)
        recorded = state
        complete = interrupted = False
        measuring = Measuring(self, engine)
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
                    outcome, shadow = self._continued(engine, state) if state is begun else self._play(engine, state)
                    state = outcome.state
                state, row = measuring.look(state, outcome, shadow, rows, started)
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

    def _continued(self, engine: Engine, state: ServerState) -> tuple[Outcome, dict[str, Any] | None]:
        """The first round from a saved state, in which a rule may find something that it has not written."""
        try:
            return self._play(engine, state)
        except (TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
            raise ValueError(
                f"round {state.round + 1} cannot be played from the saved state: {type(error).__name__}: "
                f"{shown(error)}; if the folder came from somebody else, the state may be forged"
            ) from error

    def _play(self, engine: Engine, state: ServerState) -> tuple[Outcome, dict[str, Any] | None]:
        """The outcome of a round, its state with those of the shadow rules, and what those would have weighed."""
        outcome = self._played(engine, state)
        shadows = self.watch.shadows
        if not shadows.rules:
            return outcome, None
        asked, states = None, state.watch["shadow"]
        if outcome.kept is None and shadows.asks(states, outcome.cohort):
            clients = self._in_version(engine)(state.round)
            asked = Asked(outcome.cohort.ids, clients.losses(state.broadcast, outcome.cohort.ids))
        gate = Gate(self.algorithm.admission, state.broadcast, self.seed, state.round)
        found, states = shadows.weigh(states, outcome, gate, asked, state.watch.get("accuracy"))
        following = dataclasses.replace(outcome.state, watch={**outcome.state.watch, "shadow": states})
        return dataclasses.replace(outcome, state=following), found

    def _played(self, engine: Engine, state: ServerState) -> Outcome:
        """The outcome of a round, through the secure sum if there is one."""
        at = self._in_version(engine)
        if self.algorithm.secure is None:
            return play_at(self.pace, self.algorithm, state, at, self.federation, self.seed)
        from fedalpha.engine.backends.veiled import Veiled

        veiled = Veiled(at(state.round), self.algorithm, self.seed, state.round)
        outcome = play_at(self.pace, self.algorithm, state, lambda version: veiled, self.federation, self.seed)
        down = outcome.bytes_down + veiled.costs.down
        return dataclasses.replace(outcome, bytes_down=down, secure=veiled.told)

    def _in_version(self, engine: Engine) -> Callable[[int], Engine]:
        """The engine whose clients work in a round or version; faults happen in versions."""
        if self.fault is None:
            return lambda version: engine
        fault = self.fault
        return lambda version: Faulty(engine, fault, self.seed, version, self.federation.clients)

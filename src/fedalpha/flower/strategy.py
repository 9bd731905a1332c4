"""`FedAlpha`: any fedalpha strategy, with every plug point, as a Flower strategy.

A round follows `fedalpha.round.advance`, as in a simulation; this module carries out the orders by messages.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable, Mapping, Sequence
from logging import INFO
from pathlib import Path
from typing import Any, Literal

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp import strategy as flower
from flwr.supercore import log

from fedalpha.analysis.history import Best
from fedalpha.clock.servers import SERVERS, Server
from fedalpha.flower.buffered import Buffered
from fedalpha.flower.clients import KnownClients, Source, nobody_trained
from fedalpha.flower.dispatch import Dispatch, EvaluateFn, Sending
from fedalpha.flower.exchange import Pulled, exchange
from fedalpha.flower.journal import Journal, digest, form_of
from fedalpha.flower.metrics import Keys, Noted
from fedalpha.flower.packing import check_numbers, opened, packed
from fedalpha.flower.rounds import Round
from fedalpha.flower.rules import (
    BUFFERS,
    Sampling,
    check_arguments,
    check_live,
    check_loop,
    check_wrapped,
    identity,
    rules,
    wrapped,
)
from fedalpha.flower.secure_sums import SecureSum
from fedalpha.flower.secure_sums import check as check_secure
from fedalpha.flower.watching import Watching
from fedalpha.rng import generator
from fedalpha.round import Admission, AskLosses, Measure, Outcome, ServerState, Train
from fedalpha.runs.callbacks import Callback
from fedalpha.runs.evaluate import Evaluate
from fedalpha.select import Select
from fedalpha.strategies import Strategy
from fedalpha.text import whole


class FedAlpha(flower.Strategy):
    """A Flower strategy that weighs clients by a fedalpha strategy (an object or its text).

    Arguments that `fedalpha.run` also has take the same texts and objects. Further arguments
    (``fraction_train=0.5`` …) are passed to Flower's ``FedAvg``.

    **Rules.** ``select``: the selection; without it Flower's ``fraction_train`` is used. ``combine`` and
    ``apply``: as in a simulation. ``over``: a Flower server optimiser such as ``FedAdam(eta=0.01)`` in place of
    ``apply``; its sampling, keys and metrics functions are used. ``buffers``: patterns of the names of arrays that the
    optimiser must not change. ``update``: the client update of `client_app`, if the server computes a part of it
    (scaffold, fedpage). ``states``: the place of the state of such clients, the "server" (saved with the round) or the
    "node". ``model``: the model of `client_app`, for rules that change its width (pfnm, feddist); with it ``buffers``
    are known. ``update``, ``combine``, ``apply``, ``model`` and ``fault`` need torch on the server; the other
    arguments need only NumPy.

    **Losses.** ``losses`` is the source of F_i(w_t) for rules that weigh by this loss. "query" asks each client before
    training. "evaluate" uses the metric ``eval_loss`` of the clients' evaluation of the same model, "train" the
    loss of each client's last training; these two need neither additional messages nor changes of the clients.
    ``loss_keys`` are the names of metrics with losses (kinds "train", "after", "evaluate"), ``accuracy_key`` is the
    evaluation metric that rules may use. ``signed``: losses may be negative.

    **Server.** ``server="buffered(K=10, concurrency=30)"`` combines updates as they arrive instead of waiting for a
    cohort. A round is then a version of the model, and after ``deadline`` the server no longer waits for a client. A
    buffered server needs `start`, and evaluation on the server (``evaluate_fn``), because clients in training do not
    evaluate. With ``secure`` the server learns only sums ("masked", "blind(reference=1.0)"); wrap the clients' apps
    with `secured`. ``upload`` is the encoding of updates by `client_app` ("quantised(bits=4)"); the server sends it to
    the nodes.

    **Protection.** ``quorum``, ``deadline``, ``fault``: as in `fedalpha.run`. ``bound``: a model with a value above
    ``bound`` times the largest one of the same array (at least 1) is refused, and such an aggregate is not installed.
    ``validation``: an evaluation on the server's data, such as `evaluate_on` returns, for ``Evaluate(reevaluate=…)``.

    **Clients.** Clients are identified by the stable id that they report (`add_loss_query`), not by their node id.
    ``clients``: the number of clients, for rules that need it. ``seed`` draws cohorts. ``wait_for_nodes``:
    seconds until enough clients have reported their ids. ``query_timeout``: seconds to wait for losses (by default
    the timeout of `start`).

    **The run.** ``out`` names a run folder: a server app that is killed and started again with the same arguments
    resumes after the last finished round; ``quorum``, ``deadline``, ``liars``, ``bound``, ``wait_for_nodes``,
    ``query_timeout`` and ``min_available_nodes`` may differ. ``evaluate``: a `fedalpha.Evaluate` with early stopping
    (``stop``), the best model (``keep``, `best`), rules whose weights are recorded but not applied (``shadow``),
    ``liars`` and ``reevaluate``. These use the evaluation of each round. ``callbacks``: objects, or loggers such as
    "prometheus(port=9100)".

    >>> FedAlpha("FedWorse(k=0.1)", fraction_train=0.5, seed=1)
    FedAlpha(FedWorse(k=0.1), over=FedAvg)
    """

    _state: ServerState | None = None
    _record: ArrayRecord | None = None
    _now: Round | None = None
    _offset = 0
    _driving = False

    def __init__(
        self,
        strategy: str | Strategy = "FedAvg",
        *,
        select: str | Select | None = None,
        update: Any = None,
        combine: Any = None,
        apply: Any = None,
        over: flower.FedAvg | None = None,
        seed: int = 0,
        clients: int | None = None,
        quorum: float | int = 1,
        deadline: float | None = None,
        validation: EvaluateFn | None = None,
        fault: Any = None,
        server: str | Server = "synchronous",
        secure: Any = None,
        upload: Any = None,
        bound: float | None = 1e4,
        buffers: Sequence[str] = BUFFERS,
        states: Literal["server", "node"] = "server",
        model: Any = None,
        out: str | Path | None = None,
        evaluate: Evaluate | None = None,
        callbacks: Sequence[str | Callback] = (),
        query_timeout: float | None = None,
        wait_for_nodes: float = 600.0,
        loss_keys: Mapping[str, str] | None = None,
        accuracy_key: str = "accuracy",
        signed: bool = False,
        losses: Source = "query",
        **fedavg: Any,
    ) -> None:
        watched, seed = evaluate or Evaluate(), whole("seed", seed)
        waits = {"wait_for_nodes": wait_for_nodes, "query_timeout": query_timeout}
        check_arguments(fedavg, losses, states, watched, validation, **waits)
        own = [name for name in inspect.signature(FedAlpha).parameters if name != "fedavg"]
        self.over = wrapped(over, fedavg, own)
        self.admission = Admission(quorum, deadline, signed, bound)
        self.rules = rules(
            strategy,
            select=select,
            update=update,
            combine=combine,
            apply=apply,
            over=over,
            base=self.over,
            model=model,
            buffers=buffers,
            fault=fault,
            admission=self.admission,
            reevaluate=watched.reevaluate,
            secure=secure,
            upload=upload,
        )
        self.rule, self.secure = self.rules.algorithm.weigh, self.rules.algorithm.secure
        self.server = SERVERS.parse(server)
        evaluating = bool(self.over.fraction_evaluate)
        self._watching = Watching(self.rules.algorithm, watched)
        shadows = self._watching.watch.shadows
        check_live(self.server, self.rules, clients, evaluating, shadows.requires)
        check_secure(self.rules, losses, evaluating, bool(shadows.rules))
        self.seed, self.clients, self.states = seed, clients, states
        keys = Keys.of(loss_keys, accuracy_key)
        given = {"seed": seed, "clients": clients, "states": states, "signed": signed, "losses": losses}
        self._config = identity({**given, **keys.settings}, self.rules, update, self.server, self._watching.watch)
        self._noted = Noted(self.rules.algorithm, watched.liars, keys, evaluating, late=not self.server.waits)
        self._sampling = Sampling(self.over)
        self._clients = KnownClients(self.over.weighted_by_key, losses)
        self._dispatch = Dispatch(self.rules, self._clients, keys.trained, validation, query_timeout, wait_for_nodes)
        self._buffered = None if self.server.waits else Buffered(self.server, self._dispatch, seed, states == "node")
        self._journal = Journal(out, callbacks)

    def __repr__(self) -> str:
        return f"FedAlpha({self.rule}, over={type(self.over).__name__})"

    def summary(self) -> None:
        """Log the settings."""
        plugs = self.rules.algorithm
        log(INFO, "\t├──> FedAlpha: %s over %s, seed %d", self.rule, type(self.over).__name__, self.seed)
        log(INFO, "\t│\t├── Select: %s, combine: %s, quorum: %s", plugs.select, plugs.combine, self.admission.quorum)
        log(INFO, "\t│\t└── Run folder: %s", self._journal.out or "none (pass out=)")

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The history: one row per finished round and one for the initial model, as in ``history.jsonl``."""
        return self._journal.rows

    @property
    def best(self) -> Best | None:
        """The best model so far and the row of its round, with ``keep="best"``."""
        return self._watching.best(self._state, self.rows)

    @property
    def accuracy(self) -> float | None:
        """The last accuracy that the rule may use."""
        return self._noted.accuracy

    # The whole run

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFn | None = None,
    ) -> flower.Result:
        """Like Flower's ``start``; with ``out`` it resumes after the last finished round."""
        num_rounds = whole("num_rounds", num_rounds)
        if not isinstance(initial_arrays, ArrayRecord):
            raise TypeError(
                f"initial_arrays is {type(initial_arrays).__name__}; give an ArrayRecord(model.state_dict())"
            )
        self._dispatch.timeout = timeout
        self._noted.check(self.rule, evaluate_fn is not None, bool(self.over.fraction_evaluate), self._clients.source)
        self._watching.check(evaluate_fn is not None or bool(self.over.fraction_evaluate))
        log(INFO, "Starting %s, %d rounds:", type(self).__name__, num_rounds)
        self.summary()
        arrays, complete = self.resume(initial_arrays), False
        self._driving, self._journal.planned = True, num_rounds
        try:
            self._journal.tell_start()
            if not self.rows:
                self._finish(0, arrays, evaluate_fn)
            for server_round in range(self._offset + 1, num_rounds + 1):
                if self._stopped():
                    break
                log(INFO, "[ROUND %d/%d]", server_round, num_rounds)
                arrays = self._train(grid, server_round, arrays, train_config or ConfigRecord())
                self._evaluate(grid, server_round, arrays, evaluate_config or ConfigRecord())
                self._finish(server_round, arrays, evaluate_fn)
            complete = True
        finally:
            self._driving = False
            self._journal.close(self._model(), complete, self.best)
        if len(self.rows) - 1 > self._offset and self.over.fraction_train and not self._noted.trained:
            raise RuntimeError(nobody_trained(self.rows[1:]))
        where = f"; it is in {self._journal.out} (fedalpha report shows it)" if self._journal.out else ""
        log(INFO, "fedalpha: the run of %d rounds is finished%s", self.rows[-1]["round"], where)
        return self._noted.result(arrays, self.rows)

    def _train(self, grid: Grid, server_round: int, arrays: ArrayRecord, config: ConfigRecord) -> ArrayRecord:
        """Select, ask, weigh and train; the arrays after the round. Replies are pulled in the order of the ids."""
        if self._buffered is not None:
            return self._next_version(self._buffered, server_round, Sending(grid, arrays, config))
        messages = list(self.configure_train(server_round, arrays, config, grid))
        wait = min(self._dispatch.timeout, self.admission.deadline or self._dispatch.timeout)
        if self.secure is not None and self._now is not None:
            timeout = self._dispatch.query_timeout or self._dispatch.timeout
            veiled = SecureSum(self.secure, grid, timeout, wait, self.over.weighted_by_key)
            if self._now.outcome is None:
                told = veiled.play(self._now)
                self._now.secure = told, veiled.costs.down
            installed, _ = self.aggregate_train(server_round, [])
            return arrays if installed is None else installed
        clients = {} if self._now is None else {m.metadata.dst_node_id: i for i, m in self._now.messages.items()}
        replies = Pulled(grid, messages, clients, wait)
        if self._now is None:  # nobody is to train
            return arrays
        installed, _ = self.aggregate_train(server_round, replies)
        return arrays if installed is None else installed

    def _next_version(self, buffered: Buffered, server_round: int, sending: Sending) -> ArrayRecord:
        """The arrays of the next version, on a buffered server."""
        state, least = self._ready(server_round, sending.arrays), self._sampling.least["train"]
        if not self.over.fraction_train:
            return sending.arrays
        connected = self._dispatch.connected(sending.grid, least, server_round, patient=not buffered.flights)
        now = Round(self.rules, state, connected, self.seed)
        self._noted.begin(now, {})
        if self.rules.optimiser is not None:
            self.rules.optimiser.server_round = server_round
        wait = min(self._dispatch.timeout, self.admission.deadline or self._dispatch.timeout)
        now.outcome = buffered.play(now, sending, least, wait)
        self._noted.begin(now, {i: self._clients.label(i) for i in now.outcome.cohort.ids.tolist()})
        installed, _ = self._settle(now)
        return sending.arrays if installed is None else installed

    def _evaluate(self, grid: Grid, server_round: int, arrays: ArrayRecord, config: ConfigRecord) -> None:
        """The clients' evaluation."""
        messages = list(self.configure_evaluate(server_round, arrays, config, grid))
        self.aggregate_evaluate(server_round, list(exchange(grid, messages, self._dispatch.timeout).values()))

    def _finish(self, server_round: int, arrays: ArrayRecord, evaluate_fn: EvaluateFn | None = None) -> None:
        """The server's evaluation; then the row of the round is complete, and the state is saved."""
        if evaluate_fn is not None:
            self._noted.look("server", evaluate_fn(server_round, arrays))
        assert self._state is not None
        if self._record is not arrays:  # a wrapper has changed the arrays: privacy noise
            self._state = self._with(self._state, arrays)
        if "accuracy" in self.rule.requires:
            self._state = dataclasses.replace(self._state, accuracy=self.accuracy)
        self._state = self._watching.look(self._state, *self._noted.measured)
        row = self._noted.row(server_round, self._watching.watch, self.rows, self._watching.best_round(self._state))
        self._journal.write(row, self._state, {"clients": self._clients.memory(), **self._noted.memory()})

    def resume(self, initial_arrays: ArrayRecord) -> ArrayRecord:
        """The arrays with which to continue: those of the last finished round, or ``initial_arrays`` if there is none.

        `start` calls this. Wrappers that do not call it (Flower's differential privacy) need
        ``wrapper.start(grid, fedalpha.resume(initial_arrays), num_rounds=n - fedalpha.rounds_done)``; the
        folder stays locked until `release` or the end of the process.
        """
        return self._begin(initial_arrays)

    def _begin(self, arrays: ArrayRecord, new: bool = False) -> ArrayRecord:
        found = opened(arrays)
        check_numbers(found)
        first = self.rules.algorithm.init(self.rules.form.broadcast(found), self.clients)
        first = self._watching.begin(first, self.clients)
        self._state, self._record = first, arrays
        self._journal.rows = []
        config = {**self._config, "arrays": form_of(found)}
        begun = digest(found) if self._journal.out else ""
        saved = self._journal.open(config, first, begun, self.rules.form.restore, new)
        if saved is None:
            return arrays
        self._state, self._offset = saved, saved.round
        self._clients.recall(self._journal.beside["clients"])
        self._noted.recall(self._journal.beside, saved.accuracy)
        if saved.round:
            log(INFO, "fedalpha: resuming after round %d", saved.round)
        self._record = packed(self.rules.form, saved.broadcast)
        return self._record

    def release(self) -> None:
        """Write the model and the plot into the folder of ``out`` and unlock it; `start` does this when it ends."""
        self._journal.close(self._model() if self.rows else None, True, self.best)

    @property
    def rounds_done(self) -> int:
        """Rounds that were finished before this server app started."""
        return self._offset

    # Training

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Select a cohort; if a rule needs losses before training, ask for them and weigh.

        Clients with alpha = 0 are not asked to train: they upload a number instead of a model.
        """
        if self.secure is not None and not self._driving:
            raise RuntimeError(
                f"secure = {self.secure} needs the loop of FedAlpha.start: a wrapper that sends messages itself "
                "would ask for single models; for privacy use combine='noise(clip(mean, …), …)' instead"
            )
        server_round = self._number(server_round)
        state = self._ready(server_round, arrays)
        self._now = None
        if not self.over.fraction_train:
            return []
        connected = self._dispatch.connected(grid, self._sampling.least["train"], server_round)
        now = self._now = Round(self.rules, state, connected, self.seed)
        self._noted.begin(now, {id: self._clients.label(id) for id in now.population.ids.tolist()})
        sending = Sending(grid, arrays, config)
        while not isinstance(step := now.advance(), Train | Outcome):
            if isinstance(step, AskLosses):
                self._dispatch.ask(now, step, sending)
            else:
                self._dispatch.measure(now, step)
        if isinstance(step, Outcome):
            now.outcome = step
            return []
        now.order = step
        self._watching.ask(now, lambda order: self._dispatch.losses(now, order, sending)[:2])
        now.messages = self._dispatch.training(now, sending, self.states == "node")
        log(INFO, "fedalpha: round %d: %d clients train", server_round, len(now.messages))
        return list(now.messages.values())

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Check the replies one by one, weigh if this was not done before, combine and apply."""
        server_round = self._number(server_round)
        now, self._now = self._now, None
        if now is None or now.number != server_round:
            raise RuntimeError(f"aggregate_train({server_round}) without configure_train({server_round}) before it")
        if now.outcome is None:
            if now.heard.reports is None:
                now.read(replies, self._dispatch.wanted(now))
            if self.rules.optimiser is not None:
                self.rules.optimiser.server_round = server_round
            while isinstance(step := now.advance(), Measure):
                self._dispatch.measure(now, step)
            assert isinstance(step, Outcome)
            now.outcome = step if now.secure is None else _with_costs(step, *now.secure)
        return self._settle(now)

    def _settle(self, now: Round) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Keep the state after a round and what clients reported. Returns the arrays; None if the model was kept."""
        assert now.outcome is not None
        self._clients.sizes.update({id: report.samples for id, report in now.told.items()})
        if self._clients.source == "train":
            self._clients.losses.update({id: (now.number, r.losses["train"]) for id, r in now.told.items()})
        self._state = self._watching.weigh(now, now.outcome, self.accuracy)
        metrics = self._noted.trained_with(now, self.over)
        if now.outcome.kept is not None:
            return None, None
        self._record = packed(self.rules.form, self._state.broadcast)
        return self._record, metrics

    # Evaluation

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Sample clients for evaluation, by the seed."""
        if self._now is not None:  # Flower's privacy wrappers skip a round in which a client failed
            self._now.nothing_came("a wrapper of FedAlpha did not pass the replies on")
            FedAlpha.aggregate_train(self, server_round, [])
        server_round = self._number(server_round)
        if not self._driving and self._state is not None and self._record is not arrays:
            self._state, self._record = self._with(self._state, arrays), arrays
        if not self.over.fraction_evaluate:
            return []
        rng = generator(self.seed, "evaluate", server_round - 1)
        connected = self._dispatch.connected(grid, self._sampling.least["evaluate"], server_round)
        ids, _ = self._sampling.evaluate.select({}, connected, None, rng)
        return self._dispatch.evaluation(server_round, ids, Sending(grid, arrays, config))

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Aggregate evaluation metrics as ``over`` does; malformed replies are logged and left out."""
        server_round = self._number(server_round)
        record = self._noted.evaluated_with(server_round, list(replies), self.over, self._clients)
        if not self._driving and self._record is not None:
            self._finish(server_round, self._record)
        return record

    # Small parts

    def _stopped(self) -> bool:
        """Whether the run is to end: a condition holds, or a callback says so."""
        if "stopped" in self.rows[-1]:
            log(INFO, "fedalpha: stopped after round %d: %s", self.rows[-1]["round"], self.rows[-1]["stopped"])
        return "stopped" in self.rows[-1] or self._journal.stop

    def _number(self, server_round: int) -> int:
        """The round since the run began: wrappers and other loops count from the last start."""
        return server_round if self._driving else server_round + self._offset

    def _ready(self, server_round: int, arrays: ArrayRecord) -> ServerState:
        """The state with the model that is to be sent. If another loop drives the rounds, also lock the folder.

        Raises if this run would overwrite rounds that are in the folder.
        """
        if self._state is None or (server_round == 1 < self._state.round + 1 and self._journal.out is None):
            self._begin(arrays, new=True)
        assert self._state is not None
        if not self._driving:
            self._watching.check_loop()
            if type(self).start is FedAlpha.start:
                check_wrapped(self.rules)
            self._noted.check(self.rule, False, bool(self.over.fraction_evaluate), self._clients.source)
            check_loop(self.server)
        if not self.rows:
            self._finish(0, arrays)
        if server_round != self._state.round + 1:
            raise RuntimeError(
                f"round {server_round} is to be played, but {self._state.round} rounds of this run are finished: start "
                "with resume(initial_arrays) and num_rounds = n - rounds_done"
            )
        if self._record is not arrays:
            self._state, self._record = self._with(self._state, arrays), arrays
        return self._state

    def _with(self, state: ServerState, arrays: ArrayRecord) -> ServerState:
        return dataclasses.replace(state, broadcast=self.rules.form.changed(state.broadcast, opened(arrays)))

    def _model(self) -> dict[str, Any]:
        assert self._state is not None
        return dict(self._state.broadcast.parameters)


def _with_costs(outcome: Outcome, told: dict[str, float] | None, down: int) -> Outcome:
    return dataclasses.replace(outcome, secure=told, bytes_down=outcome.bytes_down + down)

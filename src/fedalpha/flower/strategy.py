"""`FedAlpha`: any fedalpha strategy as a Flower strategy.

The round is `fedalpha.round.advance`, as in a simulation; this module carries out its orders by messages. *Select*
takes Flower's sampling settings, drawn from a seed; *apply* is a Flower server optimiser.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from logging import INFO, WARNING
from pathlib import Path
from typing import Any, get_args

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp import strategy as flower
from flwr.supercore import log

from fedalpha.analysis.columns import Context, row
from fedalpha.defence.tolerance import influence
from fedalpha.flower.exchange import Shown, ask_losses, matched
from fedalpha.flower.metrics import average, report
from fedalpha.flower.plugs import Connected, Mean, Optimiser, Remote, fraction
from fedalpha.flower.queries import WANTED
from fedalpha.flower.replies import Rejected, finite, metrics_of, number
from fedalpha.flower.reports import Model, Reports, Wanted
from fedalpha.flower.roll import Roll, Source, nobody_trained
from fedalpha.flower.saved import Saved, digest
from fedalpha.rng import generator
from fedalpha.round import Admission, Algorithm, AskLosses, Heard, Outcome, ServerState, Train, advance, tell
from fedalpha.strategies import STRATEGIES, Strategy

Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]

_NOT_A_MEAN = (
    flower.Bulyan,
    flower.FedMedian,
    flower.FedTrimmedAvg,
    flower.FedXgbBagging,
    flower.FedXgbCyclic,
    flower.Krum,
    flower.MultiKrum,
    flower.QFedAvg,
)


@dataclass
class _Round:
    """A round between `FedAlpha.configure_train` and `FedAlpha.aggregate_train`."""

    algorithm: Algorithm
    state: ServerState
    population: Connected
    heard: Heard = field(default_factory=Heard)
    wanted: frozenset[Any] = frozenset()
    """what the training replies must contain"""
    messages: dict[int, Message] = field(default_factory=dict)
    """client id → training message"""
    outcome: Outcome | None = None
    """the outcome of a round in which no client trained"""
    started: float = field(default_factory=time.monotonic)


class FedAlpha(flower.Strategy):
    """A Flower strategy that weighs clients by a fedalpha strategy (an object or its text).

    ``over`` is a Flower server optimiser such as ``FedAdam(eta=0.01)``; its sampling, keys and metrics
    functions are used. Without it, further arguments (``fraction_train=0.5`` …) go to Flower's ``FedAvg``.

    Clients are known by the stable id that they report (`add_loss_query`), never by their node id.
    ``seed`` draws the cohorts. ``quorum`` says how many of the clients that were asked must answer (a number,
    or a share below 1); below it the model is kept. Rows state the influence of ``liars`` clients.

    ``save`` names a folder: a server app that is killed and started again with the same arguments continues from
    the last finished round; ``quorum``, ``liars``, ``wait_for_nodes``, ``query_timeout`` and
    ``min_available_nodes`` may differ.
    ``query_timeout`` limits the wait for losses (by default that of `start`), ``wait_for_nodes`` the seconds until
    enough clients have reported their ids. ``loss_keys`` say under which metric a training reply has its
    losses; ``accuracy_key`` which evaluation metric a rule may look at; ``signed`` that losses may be negative.

    ``losses`` says where F_i(w_t) comes from, for rules that weigh by it. ``"query"`` asks each client before it
    trains. ``"evaluate"`` takes the metric ``eval_loss`` (``loss_keys={"evaluate": …}``) of the clients' evaluation of
    the same model, ``"train"`` the loss of each client's last training. These two need no message of their own, and
    no change of the clients.

    >>> FedAlpha("FedWorse(k=0.1)", fraction_train=0.5, seed=1)
    FedAlpha(FedWorse(k=0.1), over=FedAvg)
    """

    def __init__(
        self,
        strategy: str | Strategy = "FedAvg",
        *,
        over: flower.FedAvg | None = None,
        seed: int = 0,
        clients: int | None = None,
        quorum: float | int = 1,
        liars: int = 1,
        save: str | Path | None = None,
        query_timeout: float | None = None,
        wait_for_nodes: float = 600.0,
        loss_keys: Mapping[str, str] | None = None,
        accuracy_key: str = "accuracy",
        signed: bool = False,
        losses: Source = "query",
        **fedavg: Any,
    ) -> None:
        if over is not None and fedavg:
            raise ValueError(f"pass {', '.join(sorted(fedavg))} to {type(over).__name__}(…), not to FedAlpha")
        if unknown := sorted(fedavg.keys() - inspect.signature(flower.FedAvg).parameters.keys()):
            raise TypeError(f"FedAlpha does not take {', '.join(unknown)}; see help(FedAlpha) and Flower's FedAvg")
        if over is not None and (not isinstance(over, flower.FedAvg) or isinstance(over, _NOT_A_MEAN)):
            raise ValueError(
                f"over = {type(over).__name__} does not build on a weighted mean; use FedAvg, FedAvgM, FedAdagrad, "
                "FedAdam, FedYogi, FedProx or a strategy of your own that extends one of them"
            )
        if losses not in (sources := get_args(Source)):
            raise ValueError(f"losses = {losses!r}; give one of {', '.join(sources)}")
        if liars < 0:
            raise ValueError(f"liars = {liars}; give a number of clients ≥ 0")
        self.rule = STRATEGIES.parse(strategy)
        self.admission = Admission(quorum, signed=signed)
        self.liars = liars
        self.seed = seed
        self.query_timeout = query_timeout
        self.wait_for_nodes = wait_for_nodes
        self.loss_keys = {"train": "train_loss", "after": "after_loss", **(loss_keys or {})}
        self._evaluated_loss = self.loss_keys.pop("evaluate", "eval_loss")
        self.accuracy_key = accuracy_key
        self.over = flower.FedAvg(**fedavg) if over is None else copy.copy(over)
        self._identity: dict[str, Any] = {
            "strategy": str(self.rule),
            "seed": seed,
            "clients": clients,
            "loss_keys": self.loss_keys,
            "accuracy_key": accuracy_key,
            "signed": signed,
            "over": type(self.over).__name__,
            **({} if losses == "query" else {"losses": losses, "evaluated_loss": self._evaluated_loss}),
            **{f"{type(self.over).__name__}.{k}": v for k, v in vars(self.over).items() if _is_setting(k, v)},
        }
        self._shares = {"train": self.over.fraction_train, "evaluate": self.over.fraction_evaluate}
        self._least = {"train": self.over.min_train_nodes, "evaluate": self.over.min_evaluate_nodes}
        self._available = self.over.min_available_nodes
        # FedAlpha samples; the strategy below it takes all the nodes that it is shown.
        self.over.fraction_train = 1.0 if self.over.fraction_train else 0.0
        self.over.fraction_evaluate = 1.0 if self.over.fraction_evaluate else 0.0
        self.over.min_train_nodes = self.over.min_evaluate_nodes = self.over.min_available_nodes = 0
        self._fresh = dict(vars(self.over))

        self.rows: list[dict[str, Any]] = []
        """What happened, one row per finished round, as in ``history.jsonl``."""
        self.accuracy: float | None = None
        self._state = self.rule.init(clients)
        self._roll = Roll(self.over.weighted_by_key, losses)
        self._now: _Round | None = None
        self._evaluated = False
        self._trained = False
        self._timeout: float = 3600
        self._offset = 0
        self._warned = False
        self._begun = ""
        self._metrics: dict[str, dict[int, dict[str, Any]]] = {"train": {}, "evaluate": {}, "server": {}}
        self._saved = None if save is None else Saved(save)

    def __repr__(self) -> str:
        return f"FedAlpha({self.rule}, over={type(self.over).__name__})"

    def summary(self) -> None:
        """Log the settings."""
        log(INFO, "\t├──> FedAlpha: %s over %s, seed %d", self.rule, type(self.over).__name__, self.seed)
        log(INFO, "\t│\t├── Fraction: %s, quorum: %s", self._shares, self.admission.quorum)
        log(INFO, "\t│\t└── Saved in: %s", self._saved.folder if self._saved else "nowhere (pass save=)")

    # The whole run

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Evaluate | None = None,
    ) -> flower.Result:
        """Like Flower's ``start``; with ``save`` it resumes after the last finished round."""
        self._timeout = timeout
        if "accuracy" in self.rule.requires and evaluate_fn is None and not self.over.fraction_evaluate:
            raise ValueError(f"{self.rule} looks at accuracy: pass evaluate_fn= to start, or fraction_evaluate > 0")

        if self._roll.source == "evaluate" and not self.over.fraction_evaluate:
            raise ValueError(
                'losses="evaluate" takes the losses of the clients\' evaluation: set fraction_evaluate > 0'
            )

        def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            assert evaluate_fn is not None
            record = evaluate_fn(server_round + self._offset, arrays)
            self._look("server", server_round + self._offset, record)
            return record

        watched = evaluate if evaluate_fn is not None else None
        try:
            arrays = self.resume(initial_arrays)
            left = max(0, num_rounds - self._offset)
            if self._offset:
                log(INFO, "fedalpha: resuming after round %d; Flower counts rounds from there", self._offset)
            result = super().start(grid, arrays, left, timeout, train_config, evaluate_config, watched)
            if not result.arrays:
                result.arrays = arrays
            self._save(result.arrays)
            if left and self.rows and not self._trained:
                raise RuntimeError(
                    f"no client has trained, so the model is the initial one. {nobody_trained(self.rows)}"
                )
        finally:
            self.release()
        for name, kind in (("train", "clientapp"), ("evaluate", "clientapp"), ("server", "serverapp")):
            records = {r: MetricRecord(dict(values)) for r, values in self._metrics[name].items()}
            setattr(result, f"{'train' if name == 'train' else 'evaluate'}_metrics_{kind}", records)
        return result

    def resume(self, initial_arrays: ArrayRecord) -> ArrayRecord:
        """The arrays to continue from: those of the last finished round, or ``initial_arrays`` if there is none.

        `start` calls this. Wrappers that do not call it (Flower's differential privacy) need
        ``wrapper.start(grid, fedalpha.resume(initial_arrays), num_rounds=n - fedalpha.rounds_done)``; the
        folder stays locked until `release` or the end of the process.
        """
        if self._saved is None:
            return initial_arrays
        self._identity["model"] = {name: f"{a.dtype} {list(a.shape)}" for name, a in initial_arrays.items()}
        self._begun = digest({name: a.numpy() for name, a in initial_arrays.items()})
        tree = self._saved.go_on(self._identity, self._begun)
        if tree is None:
            return initial_arrays
        self._offset = tree["round"]
        self._begun = tree["begun"]
        self._state = tree["weigh"]
        self.accuracy = tree["accuracy"]
        self.rows = tree["rows"]
        self._trained = any(row.get("kept") is None for row in self.rows)
        self._metrics |= tree["metrics"]
        self._roll.recall(tree["clients"])
        vars(self.over).update(tree["over"])
        arrays: ArrayRecord = tree["arrays"]
        return arrays

    def release(self) -> None:
        """Unlock the folder of ``save`` for other servers; `start` does so when it ends."""
        if self._saved is not None:
            self._saved.release()

    @property
    def rounds_done(self) -> int:
        """Rounds that were finished before this server app started."""
        return self._offset

    def _own_the_folder(self, server_round: int, arrays: ArrayRecord) -> None:
        """Lock the folder of ``save`` if `resume` did not. Raises if this run would overwrite rounds in it."""
        if self._saved is None:
            return
        if not self._saved.held:
            self._saved.begin()
            self.resume(arrays)
        if self.rows and server_round <= self.rows[-1]["round"]:
            raise RuntimeError(
                f"round {server_round} is to be played, but {self._saved.folder} holds {self.rows[-1]['round']} rounds "
                "of this run: start with resume(initial_arrays) and num_rounds = n - rounds_done"
            )

    def _save(self, arrays: ArrayRecord) -> None:
        """Store what the next round needs."""
        if self._saved is None or not self.rows:
            return
        unset = object()
        changed = {k: v for k, v in vars(self.over).items() if self._fresh.get(k, unset) is not v}
        self._saved.write(
            {
                "identity": self._identity,
                "begun": self._begun,
                "round": self.rows[-1]["round"],
                "arrays": arrays,
                "weigh": dict(self._state),
                "over": changed,
                "accuracy": self.accuracy,
                "clients": self._roll.memory(),
                "rows": self.rows,
                "metrics": self._metrics,
            }
        )

    # Training

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Select a cohort; where the rule looks at losses before training, ask for them and weigh.

        Clients with alpha = 0 are not asked to train: they upload a number instead of a model.
        """
        server_round += self._offset
        self._own_the_folder(server_round, arrays)
        if self._evaluated:
            self._save(arrays)
        self._evaluated, self._now = False, None
        if not self.over.fraction_train:
            return []
        if told := sorted(self.rule.requires & {"after", "labels"}):
            config[WANTED] = [str(need) for need in told]
        model = Model({name: array.numpy() for name, array in arrays.items()})
        state = ServerState(server_round - 1, model, {}, self._state, {}, {}, accuracy=self.accuracy)
        now = self._now = _Round(self._algorithm(), state, self._connected(grid, "train", server_round))

        def messages(ids: list[int]) -> dict[int, Message]:
            """The training messages of these clients, as ``over`` makes them."""
            node = self._roll.nodes
            with _own_random():
                shown = Shown(grid, [node[i] for i in ids])
                made = list(self.over.configure_train(server_round, arrays, config, shown))
            by_node = {m.metadata.dst_node_id: m for m in made}
            return {i: by_node[node[i]] for i in ids if node[i] in by_node}

        while isinstance(step := self._advance(now), AskLosses):
            known = self._roll.estimates(step.ids.tolist(), server_round)
            asked = messages([i for i in step.ids.tolist() if i not in known])
            losses, problems, sizes = ask_losses(
                grid, asked, step.ids, self._timeout_of_queries, self.over.weighted_by_key, known
            )
            self._roll.sizes.update(sizes)
            now.population = dataclasses.replace(now.population, known=dict(self._roll.sizes))
            now.heard = now.heard.and_losses(step, losses, problems)
        if isinstance(step, Outcome):
            now.outcome = step
        else:
            assert isinstance(step, Train)
            now.wanted, now.messages = step.wanted, messages(step.ids.tolist())
            log(INFO, "fedalpha: round %d: %d clients train", server_round, len(now.messages))
        return list(now.messages.values())

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Check the replies one by one, weigh if that is still to do, combine, and let ``over`` apply."""
        server_round += self._offset
        now, self._now = self._now, None
        if now is None or now.state.round != server_round - 1:
            raise RuntimeError(f"aggregate_train({server_round}) without configure_train({server_round}) before it")
        if now.outcome is not None:  # the model was kept before any client trained
            return self._finish(now, now.outcome, [])
        needs = now.wanted | {"train"} if self._roll.source == "train" else now.wanted
        wanted = Wanted(self.over.weighted_by_key, self.loss_keys, needs)
        found, sent = matched(now.messages, replies), now.state.broadcast.arrays
        reports = [wanted.read(id, found.get(id), sent) for id in sorted(now.messages)]
        usable = [r.message for r in reports if r.message is not None]
        contents = [message.content for message in usable]
        now.algorithm = self._algorithm(Optimiser(self.over, server_round, next(iter(usable), None)))
        now.heard = now.heard.and_reports(Reports(reports))
        outcome = self._advance(now)
        assert isinstance(outcome, Outcome)
        heard = [r for r in reports if r.problem is None]
        self._trained = self._trained or bool(heard)
        self._roll.sizes.update({r.id: r.samples for r in heard})
        if self._roll.source == "train":
            self._roll.losses.update({r.id: (server_round, r.losses["train"]) for r in heard})
        return self._finish(now, outcome, contents)

    def _advance(self, now: _Round) -> Any:
        return advance(now.algorithm, now.state, now.population, self.seed, now.heard)

    def _algorithm(self, over: Optimiser | None = None) -> Algorithm:
        select = fraction(self._shares["train"], self._least["train"])
        plugs: dict[str, Any] = {"update": Remote(), "combine": Mean(), "apply": over or Optimiser(self.over)}
        return Algorithm(select, weigh=self.rule, admission=self.admission, **plugs)

    def _influence(self, outcome: Outcome) -> dict[str, Any] | None:
        """The influence of any ``liars`` clients in the round."""
        if outcome.kept is not None:
            return None
        combine: Any = Mean()
        return influence(self.rule, combine, outcome.cohort, outcome.alpha, self.liars, outcome.lost).row()

    def _finish(
        self, now: _Round, outcome: Outcome, contents: list[RecordDict]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Write the row of a round. Returns the arrays to install, if there are any, and the metrics."""
        labels = {id: self._roll.label(id) for id in now.population.ids.tolist()}
        tell(outcome, lambda level, text, *values: log(level, f"fedalpha: {text}", *values), labels)
        server_round = outcome.state.round
        seconds = time.monotonic() - now.started
        self.rows.append(
            row(
                Context(
                    round=server_round,
                    outcome=outcome,
                    influence=self._influence(outcome),
                    nodes=labels,
                    seconds=seconds,
                )
            )
        )
        self._state = outcome.state.weigh
        if outcome.kept is not None:
            return None, None
        metrics = average(contents, self.over.train_metrics_aggr_fn, self.over.weighted_by_key)
        told = report(self.rows[-1], metrics)
        self._metrics["train"][server_round] = dict(told)
        arrays = outcome.state.broadcast.arrays
        return ArrayRecord({name: Array(value) for name, value in arrays.items()}), told

    # Evaluation

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Sample clients for evaluation, by the seed."""
        server_round += self._offset
        messages: list[Message] = []
        if self.over.fraction_evaluate:
            rng = generator(self.seed, "evaluate", server_round - 1)
            rule = fraction(self._shares["evaluate"], self._least["evaluate"])
            ids, _ = rule.select({}, self._connected(grid, "evaluate", server_round), None, rng)
            with _own_random():
                shown = Shown(grid, [self._roll.nodes[i] for i in ids.tolist()])
                messages = list(self.over.configure_evaluate(server_round, arrays, config, shown))
        if not (messages and "accuracy" in self.rule.requires):  # otherwise the round is not over yet
            self._save(arrays)
        return messages

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Aggregate evaluation metrics with ``over``'s function; malformed replies are logged and left out."""
        usable = []
        clients = {node: id for id, node in self._roll.nodes.items()}
        for reply in replies:
            try:
                metrics = metrics_of(reply)
                number(metrics, self.over.weighted_by_key)
                if self._roll.source == "evaluate":
                    told = server_round + self._offset, finite(metrics, self._evaluated_loss)
                    self._roll.losses[clients[reply.metadata.src_node_id]] = told
                usable.append(reply.content)
            except Rejected as reason:
                log(WARNING, "fedalpha: an evaluation of node %d is left out: %s", reply.metadata.src_node_id, reason)
        record = average(usable, self.over.evaluate_metrics_aggr_fn, self.over.weighted_by_key)
        self._look("evaluate", server_round + self._offset, record)
        self._evaluated = record is not None
        return record

    # Small parts

    def _connected(self, grid: Grid, kind: str, server_round: int) -> Connected:
        """The clients that are connected, when there are enough of them."""
        least = max(self._available, self._least[kind], 1)
        timeout = self.query_timeout or self.wait_for_nodes
        ids = self._roll.wait(grid, least, self.wait_for_nodes, timeout, server_round, self._needs_query)
        return Connected(np.array(ids, dtype=np.int64), dict(self._roll.sizes))

    @property
    def _needs_query(self) -> bool:
        """Whether only clients that answer queries can take part."""
        return self._roll.source == "query" and "before" in self.rule.requires

    @property
    def _timeout_of_queries(self) -> float:
        return self._timeout if self.query_timeout is None else self.query_timeout

    def _look(self, name: str, server_round: int, record: MetricRecord | None) -> None:
        """Keep evaluation metrics; the accuracy among them is what a rule may look at."""
        if record is None:
            return
        self._metrics[name][server_round] = dict(record)
        value = record.get(self.accuracy_key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return
        if 0 <= value <= 1:
            self.accuracy = float(value)
            if self.rows and self.rows[-1]["round"] == server_round:
                self.rows[-1]["accuracy"] = self.accuracy
        elif not self._warned:
            self._warned = True
            log(
                WARNING,
                "fedalpha: the metric %r is %g and is ignored: an accuracy is a share between 0 and 1 (0.6, "
                "not 60); let the evaluation return one, or name another metric in accuracy_key=",
                self.accuracy_key,
                value,
            )


def _is_setting(name: str, value: object) -> bool:
    """Whether an attribute of a new Flower strategy is part of what identifies the run."""
    return isinstance(value, bool | int | float | str | np.number) and name != "min_available_nodes"


@contextmanager
def _own_random() -> Iterator[None]:
    """Restore the global random generator afterwards, with which Flower shuffles nodes."""
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)

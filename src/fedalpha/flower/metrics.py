"""The record of a round: its row, the users' own metrics, and the accuracy that rules may use."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from logging import INFO, WARNING
from typing import Any

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import strategy as flower
from flwr.supercore import log

from fedalpha.analysis.columns import Context, row
from fedalpha.analysis.watch import Watch
from fedalpha.defence.tolerance import influence
from fedalpha.flower.clients import KnownClients, advice
from fedalpha.flower.replies import Rejected, finite, metrics_of, number
from fedalpha.flower.rounds import Round
from fedalpha.round import Algorithm, tell
from fedalpha.strategies import Strategy

_KINDS = {"accuracy": "acc", "loss": "loss", "eval_loss": "loss"}
"""For each usual name of a metric (the defaults), a text that names of this kind of metric contain."""
_OF_REPLIES = ("train", "after", "evaluate")
"""The kinds of losses that replies can hold."""
_LONGEST = 1000
"""Metrics, numbers of a list, and characters of a name that a row keeps of a user's metrics."""


@dataclass(frozen=True)
class Keys:
    """The names of the metrics in clients' replies that the server uses."""

    losses: Mapping[str, str]
    """By kind of loss, as ``config.json`` stores them: those of training replies, ``evaluate`` only if it was given."""
    accuracy: str

    @staticmethod
    def of(losses: Mapping[str, str] | None, accuracy: str) -> Keys:
        """From the arguments of `FedAlpha`."""
        if not isinstance(losses, Mapping | None):
            raise TypeError(f"loss_keys = {losses!r}; give a name for each kind: {{'evaluate': 'test_loss'}}")
        if unknown := sorted(losses.keys() - set(_OF_REPLIES)) if losses else []:
            raise ValueError(f"loss_keys: {unknown[0]!r} is not a kind of loss; give {', '.join(_OF_REPLIES)}")
        if not isinstance(accuracy, str):
            raise TypeError(f"accuracy_key = {accuracy!r}; give the name of a metric")
        return Keys({"train": "train_loss", "after": "after_loss", **(losses or {})}, accuracy)

    @property
    def trained(self) -> dict[str, str]:
        """By kind, the metrics of a training reply that hold losses."""
        return {kind: key for kind, key in self.losses.items() if kind != "evaluate"}

    @property
    def evaluated(self) -> str:
        """The metric of an evaluation that holds the loss."""
        return self.losses.get("evaluate", "eval_loss")

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments of `FedAlpha` that give these names."""
        return {"loss_keys": dict(self.losses), "accuracy_key": self.accuracy}


class Noted:
    """The record of the current round, until its row is written."""

    def __init__(self, algorithm: Algorithm, liars: int, keys: Keys, evaluating: bool, late: bool) -> None:
        self.algorithm, self.liars = algorithm, liars
        self.accuracy_key, self.evaluated_loss = keys.accuracy, keys.evaluated
        self.accuracy: float | None = None
        self.evaluating = evaluating
        """whether clients evaluate the model"""
        self.late = late
        """whether the server is buffered, so that updates may be stale"""
        self.trained = False
        """whether a client has ever delivered"""
        self._warned = False
        self._largest: set[int] = set()
        self._clear()

    def _clear(self) -> None:
        self._now: Round | None = None
        self._nodes: dict[int, str] = {}
        self._metrics: dict[str, MetricRecord] = {}
        self._told: dict[int, float] = {}
        self._started = time.monotonic()

    def check(self, rule: Strategy, server: bool, clients: bool, source: str) -> None:
        """Raise if the rule needs a value that is not measured."""
        if "accuracy" in rule.requires and not server and not clients:
            raise ValueError(f"{rule} looks at accuracy: pass evaluate_fn= to start, or fraction_evaluate > 0")
        if source == "evaluate" and not clients:
            raise ValueError(
                'losses="evaluate" takes the losses of the clients\' evaluation: set fraction_evaluate > 0'
            )

    def begin(self, now: Round, nodes: dict[int, str]) -> None:
        self._now, self._nodes, self._started = now, nodes, now.started

    def trained_with(self, now: Round, over: flower.FedAvg) -> MetricRecord | None:
        """Log the outcome, and aggregate the clients' training metrics; None if the model was kept."""
        assert now.outcome is not None
        self._now = now
        self.trained = self.trained or bool(now.told)
        tell(now.outcome, lambda level, text, *values: log(level, f"fedalpha: {text}", *values), self._nodes)
        if now.outcome.kept is not None:
            return None
        metrics = average(now.metrics, over.train_metrics_aggr_fn, over.weighted_by_key)
        if metrics is not None:
            self._metrics["train"] = metrics
        return report(self._row(now.number), metrics)

    def evaluated_with(
        self, server_round: int, replies: list[Message], over: flower.FedAvg, known: KnownClients
    ) -> MetricRecord | None:
        """Aggregate the clients' evaluation metrics; if ``over`` has its own method for that, it is used."""
        clients, usable = {node: id for id, node in known.nodes.items()}, []
        reasons: list[Rejected] = []
        sizes: dict[int, float] = {}
        for reply in replies:
            try:
                metrics = metrics_of(reply)
                size = number(metrics, over.weighted_by_key)
                if (client := clients.get(reply.metadata.src_node_id)) is None:
                    raise Rejected("it comes from a node that was not asked")
                if known.source == "evaluate":
                    known.losses[client] = server_round, finite(metrics, named(metrics, self.evaluated_loss))
                accuracy = under(metrics, self.accuracy_key)
                if accuracy is not None and 0 <= accuracy <= 1:
                    self._told[client] = accuracy
                usable.append(reply)
                sizes[client] = size
            except Rejected as reason:
                reasons.append(reason)
                log(WARNING, "fedalpha: an evaluation of node %d is left out: %s", reply.metadata.src_node_id, reason)
        if known.source == "evaluate" and not known.losses and len(reasons) >= max(1, len(clients)):
            report = f'; let it report {self.evaluated_loss!r}, or name another metric in loss_keys={{"evaluate": …}}'
            raise RuntimeError(
                'losses="evaluate": no evaluation can be used, so that no loss is known: '
                f"{reasons[0]}{advice(str(reasons[0])) or report}"
            )
        self._name_largest(sizes)
        if type(over).aggregate_evaluate is not flower.FedAvg.aggregate_evaluate:
            record = over.aggregate_evaluate(server_round, usable)
        else:
            record = average([reply.content for reply in usable], over.evaluate_metrics_aggr_fn, over.weighted_by_key)
        self.look("evaluate", record)
        return record

    def _name_largest(self, sizes: Mapping[int, float]) -> None:
        """Log, once per client, that a client reports most of the examples: the averages are then its metrics."""
        if len(sizes) < 3:
            return
        client = max(sizes, key=lambda id: sizes[id])
        if sizes[client] > math.fsum(sizes.values()) / 2 and client not in self._largest:
            self._largest.add(client)
            log(
                WARNING,
                "fedalpha: client %d has %.4g %% of the examples in the clients' evaluation, so that the averages are "
                "nearly its own metrics; evaluate_fn= of start depends on no client",
                client,
                100 * sizes[client] / math.fsum(sizes.values()),
            )

    def look(self, name: str, record: MetricRecord | None) -> None:
        """Keep evaluation metrics; rules may use the accuracy among them."""
        if record is None:
            return
        log(INFO, "fedalpha: %s: %s", "evaluation" if name == "server" else "clients' evaluation", record)
        self._metrics[name] = record
        if (value := under(record, self.accuracy_key)) is None:
            return
        if 0 <= value <= 1:
            self.accuracy = value
        elif not self._warned:
            self._warned = True
            log(
                WARNING,
                "fedalpha: the metric %r is %g and is ignored: an accuracy is a share between 0 and 1 (0.6, "
                "not 60); let the evaluation return one, or name another metric in accuracy_key=",
                self.accuracy_key,
                value,
            )

    def row(self, server_round: int, watch: Watch, rows: list[dict[str, Any]], best: int | None) -> dict[str, Any]:
        """The complete row of the round, after which its record is cleared. ``rows`` are the earlier ones."""
        found = self._row(server_round, best)
        if stopped := watch.stopped([*rows, found]):
            found = self._row(server_round, best, stopped)
        self._clear()
        return found

    @property
    def measured(self) -> tuple[float | None, float | None]:
        """The accuracy and the loss of the evaluation of this round."""
        return self._of(self.accuracy_key, 0.0, 1.0), self._of("loss", -math.inf, math.inf)

    def _row(self, server_round: int, best: int | None = None, stopped: str | None = None) -> dict[str, Any]:
        now = self._now
        outcome = None if now is None else now.outcome
        live: dict[str, Any] = {"metrics": {name: _kept(record) for name, record in self._metrics.items()}}
        live["fresh"] = [] if now is None else [id for id, report in now.told.items() if report.fresh]
        context = Context(
            round=server_round,
            outcome=outcome,
            secure=self.algorithm.secure is not None,
            influence=None if outcome is None or outcome.kept is not None else self._influence(outcome),
            accuracy=self.measured[0],
            loss=self.measured[1],
            shadow=None if now is None else now.shadow,
            best_round=best,
            stopped=stopped,
            nodes=self._nodes,
            live=live,
            late=self.late,
            told=self._told if self.evaluating else None,
            seconds=time.monotonic() - self._started,
        )
        return row(context)

    def _of(self, key: str, low: float, high: float) -> float | None:
        """A metric of the server's evaluation, otherwise of the clients'."""
        for name in ("server", "evaluate"):
            value = under(self._metrics[name], key) if name in self._metrics else None
            if value is not None and low <= value <= high:
                return value
        return None

    def _influence(self, outcome: Any) -> dict[str, Any]:
        """The influence of any ``liars`` clients in the round."""
        weigh, combine = self.algorithm.weigh, self.algorithm.combine
        return influence(weigh, combine, outcome.cohort, outcome.alpha, self.liars, outcome.lost).row()

    def memory(self) -> dict[str, Any]:
        """What a restarted server needs."""
        return {"accuracy": self.accuracy, "trained": self.trained}

    def recall(self, memory: Mapping[str, Any], accuracy: float | None) -> None:
        """Restore what `memory` returned."""
        self.accuracy, self.trained = memory.get("accuracy", accuracy), bool(memory.get("trained"))

    def result(self, arrays: ArrayRecord, rows: list[dict[str, Any]]) -> flower.Result:
        """The result of a run as Flower returns it, with the metrics of all rounds."""
        result = flower.Result(arrays=arrays)
        places = {
            "train": result.train_metrics_clientapp,
            "evaluate": result.evaluate_metrics_clientapp,
            "server": result.evaluate_metrics_serverapp,
        }
        for told in rows:
            for name, values in told["metrics"].items():
                places[name][told["round"]] = MetricRecord(dict(values))
            if told["round"] and told["kept"] is None and told["alpha"] is not None:
                trained = result.train_metrics_clientapp
                trained[told["round"]] = report(told, trained.get(told["round"]))
        return result


def named(record: Mapping[str, Any], key: str) -> str:
    """``key``; if it is a usual name that the record lacks, the only name of that kind."""
    names = [name for name in record if _KINDS[key] in name.lower()] if key not in record and key in _KINDS else []
    return names[0] if len(names) == 1 else key


def under(record: Mapping[str, Any], key: str) -> float | None:
    """The finite number under ``key``; without "accuracy" or "loss", the only one of that kind (eval_acc, test_loss).

    >>> under({"eval_acc": 0.5, "eval_loss": 2.3}, "accuracy")
    0.5
    """
    value = record.get(named(record, key))
    usable = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < math.inf
    return float(value) if usable else None  # type: ignore[arg-type]


def measured(record: MetricRecord | None) -> float:
    """The loss that an evaluation on the server's data found."""
    value = None if record is None else record.get("loss")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("validation= must return a metric 'loss' on the server's data, as evaluate_on(…) does")
    return float(value)


def _kept(record: MetricRecord) -> dict[str, Any]:
    """The metrics that a row keeps; JSON has no NaN, so it is left out."""
    found: dict[str, Any] = {}
    for name, value in islice(record.items(), _LONGEST):
        values = value if isinstance(value, list) else [value]
        if len(name) <= _LONGEST and len(values) <= _LONGEST and all(math.isfinite(v) for v in values):
            found[name] = value
    return found


def average(
    contents: list[RecordDict], function: Callable[[list[RecordDict], str], MetricRecord], weighted_by_key: str
) -> MetricRecord | None:
    """Apply a Flower metrics function to the metrics that most replies hold; None if there are none or it fails.

    A metric is averaged over the replies in which it has the most frequent form: a finite number, or a list of one
    length. A single client can therefore neither add nor remove a metric.
    """
    if not contents:
        return None
    records: list[Mapping[str, Any]] = [next(iter(c.metric_records.values())) for c in contents]
    forms = [{name: _form(value) for name, value in record.items()} for record in records]
    held = Counter((name, form) for one in forms for name, form in one.items() if form is not None)
    together: dict[tuple[int, ...], list[str]] = {}
    for (name, form), times in held.items():
        if 2 * times > len(records) and name != weighted_by_key:
            places = tuple(place for place, one in enumerate(forms) if one.get(name) == form)
            together.setdefault(places, []).append(name)
    found: MetricRecord | None = None
    for places, names in (together or {tuple(range(len(records))): []}).items():
        few = [{name: records[place][name] for name in (*names, weighted_by_key)} for place in places]
        try:
            some = function([RecordDict({"metrics": MetricRecord(one)}) for one in few], weighted_by_key)
            found = MetricRecord({**(found or {}), **some})
        except Exception as error:  # a user's function failed, or the weights sum to 0; the model does not need it
            log(WARNING, "fedalpha: metrics could not be aggregated: %s", error)
    return found


def _form(value: object) -> int | None:
    """The length of a list, −1 for a finite number, None for anything else."""
    if isinstance(value, list):
        return len(value)
    return -1 if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)) else None


def report(row: Mapping[str, Any], metrics: MetricRecord | None) -> MetricRecord:
    """The metrics of a round with per-client losses and alpha, and the bytes."""
    record = MetricRecord(dict(metrics or {}))
    record["fedalpha.clients"] = row["cohort"]
    record["fedalpha.alpha"] = row["alpha"]
    for kind, values in row["losses"].items():
        record[f"fedalpha.loss.{kind}"] = [math.nan if v is None else v for v in values]
    for key in ("bytes_down", "bytes_up"):
        record[f"fedalpha.{key}"] = row[key]
    record["fedalpha.refused"] = len(row["refused"])
    return record

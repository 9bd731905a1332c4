"""`FedAlpha`: any fedalpha strategy as a Flower strategy.

A round, as `fedalpha.round.play` has it: select → (ask for losses → weigh →) train → (weigh →)
combine → apply. *Select* takes Flower's sampling settings, drawn from a seed; *apply* is a Flower
server optimiser, which is handed the combined model as if one client had sent it.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from logging import INFO, WARNING
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp import strategy as flower
from flwr.supercore import log

from fedalpha.flower.exchange import Roll, Shown
from fedalpha.flower.metrics import average, report
from fedalpha.flower.queries import WANTED
from fedalpha.flower.replies import Rejected, Trained, metrics_of, number
from fedalpha.flower.round import Round
from fedalpha.flower.saved import Saved, digest
from fedalpha.flower.sums import Arrays, is_float, weighted_mean
from fedalpha.rng import generator
from fedalpha.strategies import KNOWN_BEFORE_TRAINING, STRATEGIES, Strategy, weigh

Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]

_NOT_A_MEAN = (
    flower.Bulyan,
    flower.FedMedian,
    flower.FedTrimmedAvg,
    flower.FedXgbBagging,
    flower.FedXgbCyclic,
    flower.Krum,
    flower.QFedAvg,
)


class FedAlpha(flower.Strategy):
    """A Flower strategy that weighs clients by a fedalpha strategy (an object or its text).

    ``over`` is a Flower server optimiser such as ``FedAdam(eta=0.01)``; its sampling, keys and metrics
    functions are used. Without it, further arguments (``fraction_train=0.5`` …) go to Flower's ``FedAvg``.

    Clients are known by the stable id that they report (`add_loss_query`), never by their node id.
    ``seed`` draws the cohorts. ``quorum`` says how many of the clients that were asked must answer (a number,
    or a share below 1); below it the model is kept. ``save`` names a folder: a server app that is
    killed and started again with the same arguments goes on from the last finished round; ``quorum``,
    ``patience``, ``query_timeout`` and ``min_available_nodes`` may be others.
    ``query_timeout`` limits the wait for losses (by default that of `start`), ``patience`` the wait for
    enough clients to say who they are. ``loss_keys`` say under which metric a training reply tells its
    losses; ``accuracy_key`` which evaluation metric a rule may look at; ``signed`` that losses may be negative.

    >>> FedAlpha("FedWorse(k=0.1)", fraction_train=0.5, seed=1)
    FedAlpha(FedWorse(k=0.1), over=FedAvg)
    """

    def __init__(
        self,
        strategy: str | Strategy = "FedAvg",
        over: flower.FedAvg | None = None,
        *,
        seed: int = 0,
        clients: int | None = None,
        quorum: float | int = 1,
        save: str | Path | None = None,
        query_timeout: float | None = None,
        patience: float = 600.0,
        loss_keys: Mapping[str, str] | None = None,
        accuracy_key: str = "accuracy",
        signed: bool = False,
        **fedavg: Any,
    ) -> None:
        if over is not None and fedavg:
            raise ValueError(f"pass {', '.join(sorted(fedavg))} to {type(over).__name__}(…), not to FedAlpha")
        if over is not None and (not isinstance(over, flower.FedAvg) or isinstance(over, _NOT_A_MEAN)):
            raise ValueError(
                f"over = {type(over).__name__} does not build on a weighted mean; use FedAvg, FedAvgM, FedAdagrad, "
                "FedAdam, FedYogi, FedProx or a strategy of your own that extends one of them"
            )
        if isinstance(quorum, bool) or not (0 < quorum < 1 or (quorum >= 1 and quorum % 1 == 0)):
            raise ValueError(f"quorum = {quorum!r}; give a number of clients (3) or a share of the cohort (0.5)")
        self.rule = STRATEGIES.parse(strategy)
        self.seed = seed
        self.quorum = quorum
        self.query_timeout = query_timeout
        self.patience = patience
        self.loss_keys = {"train": "train_loss", "after": "after_loss", **(loss_keys or {})}
        self.accuracy_key = accuracy_key
        self.signed = signed
        self.over = flower.FedAvg(**fedavg) if over is None else copy.copy(over)
        self._identity: dict[str, Any] = {
            "strategy": str(self.rule),
            "seed": seed,
            "clients": clients,
            "loss_keys": self.loss_keys,
            "accuracy_key": accuracy_key,
            "signed": signed,
            "over": type(self.over).__name__,
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
        self._roll = Roll(self.over.weighted_by_key)
        self._now: Round | None = None
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
        log(INFO, "\t│\t├── Fraction: %s, quorum: %s", self._shares, self.quorum)
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
        """As Flower's ``start``; with ``save`` it goes on after the last finished round."""
        self._timeout = timeout
        if "accuracy" in self.rule.requires and evaluate_fn is None and not self.over.fraction_evaluate:
            raise ValueError(f"{self.rule} looks at accuracy: pass evaluate_fn= to start, or fraction_evaluate > 0")

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
                log(INFO, "fedalpha: going on after round %d; rounds below count from there", self._offset)
            result = super().start(grid, arrays, left, timeout, train_config, evaluate_config, watched)
            if not result.arrays:
                result.arrays = arrays
            self._save(result.arrays)
        finally:
            self.release()
        for name, kind in (("train", "clientapp"), ("evaluate", "clientapp"), ("server", "serverapp")):
            records = {r: MetricRecord(dict(values)) for r, values in self._metrics[name].items()}
            setattr(result, f"{'train' if name == 'train' else 'evaluate'}_metrics_{kind}", records)
        return result

    def resume(self, initial_arrays: ArrayRecord) -> ArrayRecord:
        """The arrays to go on with: those of the last finished round, or ``initial_arrays`` if there is none.

        `start` calls this. Wrappers that do not call it (Flower's differential privacy) need
        ``wrapper.start(grid, fedalpha.resume(initial_arrays), num_rounds=n - fedalpha.rounds_done)``; the
        folder is theirs until `release` or the end of the process.
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
        self._metrics = tree["metrics"]
        self._roll.sizes = tree["sizes"]
        vars(self.over).update(tree["over"])
        arrays: ArrayRecord = tree["arrays"]
        return arrays

    def release(self) -> None:
        """Let another server have the folder of ``save``; `start` does so when it ends."""
        if self._saved is not None:
            self._saved.release()

    @property
    def rounds_done(self) -> int:
        """Rounds that were finished before this server app started."""
        return self._offset

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
                "sizes": self._roll.sizes,
                "rows": self.rows,
                "metrics": self._metrics,
            }
        )
        self._saved.write_rows(self.rows)

    # Training

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Select a cohort; where the rule looks at losses before training, ask for them and weigh.

        Clients with alpha = 0 are not asked to train: they upload a number instead of a model.
        """
        server_round += self._offset
        if self.rows and self.rows[-1].get("evaluated"):
            self._save(arrays)
        sent = {name: array.numpy() for name, array in arrays.items()}
        key = self.over.weighted_by_key
        now = self._now = Round(server_round - 1, sent, self.accuracy, self.loss_keys, self.signed, key)
        if not self.over.fraction_train:
            return []
        ids = self._sample(grid, "train", "cohort", now.round)
        node = self._roll.nodes
        if "after" in self.rule.requires:
            config[WANTED] = ["after"]
        with _own_random():
            shown = Shown(grid, [node[i] for i in ids])
            messages = list(self.over.configure_train(server_round, arrays, config, shown))
        by_node = {m.metadata.dst_node_id: m for m in messages}
        asked = {i: by_node[node[i]] for i in ids if node[i] in by_node}
        if asked:
            now.messages = self._weigh_before(now, grid, asked, sum(len(a.data) for a in arrays.values()))
        log(INFO, "fedalpha: round %d: %d of %d sampled clients train", server_round, len(now.messages), len(ids))
        return list(now.messages.values())

    def _weigh_before(self, now: Round, grid: Grid, asked: dict[int, Message], nbytes: int) -> dict[int, Message]:
        """Whom to train. Where the weights can be known before training, they are known afterwards."""
        sizes = self._sizes(asked)
        now.needs = self.rule.needs(self._state, now.gather(sizes or dict.fromkeys(asked, 1.0)))
        losses: dict[int, float] = {}
        if "before" in now.needs:
            now.bytes_down += nbytes * len(asked)
            losses, told = now.ask_losses(grid, asked, self._patience_for_queries)
            self._roll.sizes.update(told)
            if not self._enough(len(losses), len(asked)):
                now.kept = f"{len(losses)} of {len(asked)} clients told a loss, below the quorum of {self.quorum}"
                return {}
            if told and not any(told.values()):
                now.kept = now.nobody
                return {}
            asked = {i: asked[i] for i in losses}
            sizes = self._sizes(asked)
        now.cohort = now.gather(sizes or dict.fromkeys(asked, 1.0))  # not all sizes known: weighed after training
        ids = now.cohort.ids.tolist()
        if losses:
            now.cohort = now.cohort.replace(before=np.array([losses[i] for i in ids]))
        if sizes and now.needs <= KNOWN_BEFORE_TRAINING:
            try:
                now.alpha, now.weigh = weigh(self.rule, self._state, now.cohort)
            except ValueError as error:  # those who are left cannot carry what the rule asks for
                if not now.rejected:
                    raise
                now.kept = str(error)
                return {}
            asked = {i: asked[i] for i, a in zip(ids, now.alpha.tolist(), strict=True) if a != 0}
        now.bytes_down += nbytes * len(asked)
        return asked

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Check the replies one by one, weigh if that is still to do, combine, and let ``over`` apply."""
        server_round += self._offset
        now, self._now = self._now, None
        if now is None or now.round != server_round - 1:
            raise RuntimeError(f"aggregate_train({server_round}) without configure_train({server_round}) before it")
        trained = now.check(replies)
        self._roll.sizes.update({t.id: t.examples for t in trained})
        if now.kept is not None:
            return self._keep(now, trained, now.kept)
        if not self._enough(len(trained), len(now.messages)):
            answered = f"{len(trained)} of {len(now.messages)} clients answered"
            return self._keep(now, trained, f"{answered}, below the quorum of {self.quorum}")
        if now.alpha is None and not any(t.examples for t in trained):
            return self._keep(now, trained, now.nobody)

        simplex = self.rule.traits.simplex
        try:
            if now.alpha is None:
                now.cohort = now.observe(trained)
                alpha, now.weigh = weigh(self.rule, self._state, now.cohort)
                now.alpha = alpha
            else:
                assert now.cohort is not None
                alpha = now.survive(trained, self.rule.in_force(self._state, now.cohort))
        except ValueError as error:  # as above
            if not now.rejected:
                raise
            return self._keep(now, trained, str(error))
        combined = weighted_mean(alpha, [t.arrays for t in trained], now.sent, simplex)
        contents = [t.message.content for t in trained]
        metrics = average(contents, self.over.train_metrics_aggr_fn, self.over.weighted_by_key)
        arrays = self._apply(server_round, combined, now.sent, trained[0].message)
        self._state = now.weigh
        self.rows.append(now.row(trained))
        told = report(self.rows[-1], metrics)
        self._metrics["train"][server_round] = dict(told)
        return arrays, told

    def _keep(self, now: Round, trained: list[Trained], reason: str) -> tuple[None, None]:
        now.kept = reason
        log(WARNING, "fedalpha: round %d: %s; the model is kept", now.round + 1, reason)
        self.rows.append(now.row(trained))
        return None, None

    def _apply(self, server_round: int, combined: Arrays, sent: Arrays, reply: Message) -> ArrayRecord | None:
        """What ``over`` makes of the combined model, handed to it as the only reply."""
        record = ArrayRecord({name: Array(value) for name, value in combined.items()})
        reply.content = RecordDict(
            {self.over.arrayrecord_key: record, "metrics": MetricRecord({self.over.weighted_by_key: 1.0})}
        )
        applied, _ = self.over.aggregate_train(server_round, [reply])
        if applied is None:
            return None
        return ArrayRecord(
            {
                name: Array(applied[name].numpy().astype(old.dtype) if is_float(old) else combined[name])
                for name, old in sent.items()
            }
        )

    # Evaluation

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Sample clients for evaluation, by the seed."""
        server_round += self._offset
        messages: list[Message] = []
        if self.over.fraction_evaluate:
            ids = self._sample(grid, "evaluate", "evaluate", server_round - 1)
            with _own_random():
                shown = Shown(grid, [self._roll.nodes[i] for i in ids])
                messages = list(self.over.configure_evaluate(server_round, arrays, config, shown))
        if not (messages and "accuracy" in self.rule.requires):  # otherwise the round is not over yet
            self._save(arrays)
        return messages

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Aggregate evaluation metrics with ``over``'s function; malformed replies are logged and left out."""
        usable = []
        for reply in replies:
            try:
                number(metrics_of(reply), self.over.weighted_by_key)
                usable.append(reply.content)
            except Rejected as reason:
                log(WARNING, "fedalpha: an evaluation of node %d is left out: %s", reply.metadata.src_node_id, reason)
        record = average(usable, self.over.evaluate_metrics_aggr_fn, self.over.weighted_by_key)
        self._look("evaluate", server_round + self._offset, record)
        if record is not None and self.rows:
            self.rows[-1]["evaluated"] = True
        return record

    # Small parts

    def _sample(self, grid: Grid, kind: str, purpose: str, round: int) -> list[int]:
        """Client ids: Flower's number of them, drawn by the seed without replacement."""
        least = max(self._available, self._least[kind], 1)
        ids = self._roll.wait(grid, least, self.patience, self.query_timeout or self.patience)
        n = len(ids)
        m = max(math.floor(self._shares[kind] * n + 1e-9), self._least[kind], 1)
        if m >= n:
            return ids
        places = generator(self.seed, purpose, round).choice(n, size=m, replace=False, shuffle=False)
        return [ids[p] for p in np.sort(places)]

    @property
    def _patience_for_queries(self) -> float:
        return self._timeout if self.query_timeout is None else self.query_timeout

    def _sizes(self, ids: Collection[int]) -> dict[int, float]:
        """The clients' sizes as last reported; nothing unless all are known and one is positive."""
        sizes = {i: self._roll.sizes[i] for i in ids if i in self._roll.sizes}
        return sizes if len(sizes) == len(ids) and any(sizes.values()) else {}

    def _enough(self, answered: int, asked: int) -> bool:
        """As `fedalpha.admission.Admission.enough`, which needs torch."""
        need = math.ceil(self.quorum * asked - 1e-9) if self.quorum < 1 else min(int(self.quorum), asked)
        return answered >= max(need, 1)

    def _look(self, name: str, server_round: int, record: MetricRecord | None) -> None:
        """Keep evaluation metrics; the accuracy among them is what a rule may look at."""
        if record is None:
            return
        self._metrics[name][server_round] = dict(record)
        value = record.get(self.accuracy_key)
        if not isinstance(value, int | float):
            return
        if 0 <= value <= 1:
            self.accuracy = float(value)
            if self.rows and self.rows[-1]["round"] == server_round:
                self.rows[-1]["accuracy"] = self.accuracy
        elif not self._warned:
            self._warned = True
            log(
                WARNING,
                "fedalpha: the metric %r is %g, which is not looked at: an accuracy is a share between 0 and 1 (0.6, "
                "not 60); let the evaluation return one, or name another metric in accuracy_key=",
                self.accuracy_key,
                value,
            )


def _is_setting(name: str, value: object) -> bool:
    """Whether an attribute of a Flower strategy, when it is new, tells its run from others."""
    return isinstance(value, bool | int | float | str | np.number) and name != "min_available_nodes"


@contextmanager
def _own_random() -> Iterator[None]:
    """Flower shuffles nodes with the global generator; leave it as it was."""
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)

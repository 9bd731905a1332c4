"""`FedAlpha`: any fedalpha strategy as a Flower strategy.

A round, as `fedalpha.round.play` has it: select → (ask for losses → weigh →) train → (weigh →)
combine → apply. *Select* takes Flower's sampling settings, drawn from a seed; *apply* is a Flower
server optimiser, which is handed the combined model as if one client had sent it.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
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
from fedalpha.flower.saved import Saved
from fedalpha.flower.sums import Arrays, is_float, weighted_mean
from fedalpha.rng import generator
from fedalpha.strategies import KNOWN_BEFORE_TRAINING, STRATEGIES, Strategy

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
    ``seed`` draws the cohorts. ``quorum`` is the share (or, as a whole number, the number) of asked
    clients that must answer; below it the model is kept. ``save`` names a folder: a server app that is
    killed and started again with the same arguments goes on from the last finished round.
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
        whole = isinstance(quorum, int) and not isinstance(quorum, bool)
        if isinstance(quorum, bool) or not (quorum >= 1 if whole else 0 <= quorum <= 1):
            raise ValueError(f"quorum = {quorum!r}; give a share in [0, 1] or a number of clients ≥ 1")
        self.rule = STRATEGIES.parse(strategy)
        self.seed = seed
        self.quorum = quorum
        self.query_timeout = query_timeout
        self.patience = patience
        self.loss_keys = {"train": "train_loss", "after": "after_loss", **(loss_keys or {})}
        self.accuracy_key = accuracy_key
        self.signed = signed
        self.over = flower.FedAvg(**fedavg) if over is None else copy.copy(over)
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
        self._roll = Roll()
        self._now: Round | None = None
        self._timeout: float = 3600
        self._offset = 0
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
        arrays = self.resume(initial_arrays)
        self._timeout = timeout
        if "accuracy" in self.rule.requires and evaluate_fn is None and not self.over.fraction_evaluate:
            raise ValueError(f"{self.rule} looks at accuracy: pass evaluate_fn= to start, or fraction_evaluate > 0")

        def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            assert evaluate_fn is not None
            record = evaluate_fn(server_round + self._offset, arrays)
            self._look("server", server_round + self._offset, record)
            return record

        left = max(0, num_rounds - self._offset)
        if self._offset:
            log(INFO, "fedalpha: going on after round %d; rounds below count from there", self._offset)
        watched = evaluate if evaluate_fn is not None else None
        result = super().start(grid, arrays, left, timeout, train_config, evaluate_config, watched)
        if not result.arrays:
            result.arrays = arrays
        self._save(result.arrays)
        for name, kind in (("train", "clientapp"), ("evaluate", "clientapp"), ("server", "serverapp")):
            records = {r: MetricRecord(dict(values)) for r, values in self._metrics[name].items()}
            setattr(result, f"{'train' if name == 'train' else 'evaluate'}_metrics_{kind}", records)
        return result

    def resume(self, initial_arrays: ArrayRecord) -> ArrayRecord:
        """The arrays to go on with: those of the last finished round, or ``initial_arrays`` if there is none.

        `start` calls this. Wrappers that do not call it (Flower's differential privacy) need
        ``wrapper.start(grid, fedalpha.resume(initial_arrays), num_rounds=n - fedalpha.rounds_done)``.
        """
        tree = None if self._saved is None else self._saved.read()
        if tree is None:
            return initial_arrays
        identity = self._identity()
        for key, value in tree["identity"].items():
            if value != identity[key]:
                raise ValueError(
                    f"{self._saved and self._saved.folder} holds a run with {key} = {value}, this one has "
                    f"{identity[key]}; name another folder in save=, or remove that one"
                )
        shapes = [{k: (a.shape, a.dtype) for k, a in record.items()} for record in (tree["arrays"], initial_arrays)]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"{self._saved and self._saved.folder} holds another model than initial_arrays (names, shapes or "
                "dtypes differ); name another folder in save=, or remove that one"
            )
        self._offset = tree["round"]
        self._state = tree["weigh"]
        self.accuracy = tree["accuracy"]
        self.rows = tree["rows"]
        self._metrics = tree["metrics"]
        self._roll.sizes = tree["sizes"]
        vars(self.over).update(tree["over"])
        arrays: ArrayRecord = tree["arrays"]
        return arrays

    @property
    def rounds_done(self) -> int:
        """Rounds that were finished before this server app started."""
        return self._offset

    def _identity(self) -> dict[str, Any]:
        return {"strategy": str(self.rule), "seed": self.seed, "over": type(self.over).__name__}

    def _save(self, arrays: ArrayRecord) -> None:
        """Store what the next round needs."""
        if self._saved is None or not self.rows:
            return
        unset = object()
        changed = {k: v for k, v in vars(self.over).items() if self._fresh.get(k, unset) is not v}
        self._saved.write(
            {
                "identity": self._identity(),
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
        now = self._now = Round(server_round - 1, sent, self.accuracy, self.loss_keys, self.signed)
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
        sizes = {i: self._roll.sizes[i] for i in asked if i in self._roll.sizes}
        known = len(sizes) == len(asked)
        now.needs = self.rule.needs(self._state, now.gather(sizes if known else dict.fromkeys(asked, 1.0)))
        if "before" in now.needs:
            now.bytes_down += nbytes * len(asked)
            losses, sizes = now.ask_losses(grid, asked, self._patience_for_queries)
            self._roll.sizes.update(sizes)
            if not self._enough(len(losses), len(asked)) or not any(sizes.values()):
                log(WARNING, "fedalpha: round %d: %d of %d clients told a loss", now.round + 1, len(losses), len(asked))
                return {}
            now.cohort = now.gather(sizes).replace(before=np.array([losses[i] for i in sorted(losses)]))
        elif known:
            now.cohort = now.gather(sizes)
        if now.cohort is not None:
            asked = {i: asked[i] for i in now.cohort.ids.tolist()}
            if now.needs <= KNOWN_BEFORE_TRAINING:
                try:
                    now.alpha, now.weigh = self.rule.weights(self._state, now.cohort)
                except ValueError as error:  # those who are left cannot carry what the rule asks for
                    if not now.rejected:
                        raise
                    log(WARNING, "fedalpha: round %d: %s", now.round + 1, error)
                    return {}
                asked = {i: asked[i] for i, a in zip(asked, now.alpha.tolist(), strict=True) if a != 0}
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
        trained = now.check(replies, self.over.weighted_by_key)
        self._roll.sizes.update({t.id: t.examples for t in trained})
        if not trained or not self._enough(len(trained), len(now.messages)):
            answered = f"{len(trained)} of {len(now.messages)} clients answered"
            return self._keep(now, trained, f"{answered}, below the quorum of {self.quorum}")

        simplex = self.rule.traits.simplex
        try:
            if now.alpha is None:
                now.cohort = now.observe(trained)
                alpha, now.weigh = self.rule.weights(self._state, now.cohort)
                now.alpha = alpha
            else:
                alpha = now.survive(trained, self.rule)
        except ValueError as error:  # as above
            if not now.rejected:
                raise
            return self._keep(now, trained, str(error))
        combined = weighted_mean(alpha, [t.arrays for t in trained], now.sent, simplex)
        contents = [t.message.content for t in trained]
        metrics = average(contents, self.over.train_metrics_aggr_fn, self.over.weighted_by_key)
        arrays = self._apply(server_round, combined, now.sent, trained[0].message)
        self._state = now.weigh
        self.rows.append(now.row(trained, kept=False))
        told = report(self.rows[-1], metrics)
        self._metrics["train"][server_round] = dict(told)
        return arrays, told

    def _keep(self, now: Round, trained: list[Trained], reason: str) -> tuple[None, None]:
        log(WARNING, "fedalpha: round %d: %s; the model is kept", now.round + 1, reason)
        self.rows.append(now.row(trained, kept=True))
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

    def _enough(self, answered: int, asked: int) -> bool:
        need = self.quorum if isinstance(self.quorum, int) else self.quorum * asked - 1e-9
        return answered >= need

    def _look(self, name: str, server_round: int, record: MetricRecord | None) -> None:
        """Keep evaluation metrics; the accuracy among them is what a rule may look at."""
        if record is None:
            return
        self._metrics[name][server_round] = dict(record)
        value = record.get(self.accuracy_key)
        if isinstance(value, int | float) and 0 <= value <= 1:
            self.accuracy = float(value)
            if self.rows and self.rows[-1]["round"] == server_round:
                self.rows[-1]["accuracy"] = self.accuracy


@contextmanager
def _own_random() -> Iterator[None]:
    """Flower shuffles nodes with the global generator; leave it as it was."""
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)

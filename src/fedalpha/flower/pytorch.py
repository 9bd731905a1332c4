"""For users of PyTorch: a whole ``ClientApp``, the initial arrays and an evaluation for the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from fedalpha.data.federations import Examples, Pair
from fedalpha.fast.threads import single_thread
from fedalpha.flower.queries import EXAMPLES, LABELS, METRICS, WANTED, add_loss_query, stable_id
from fedalpha.models import Architecture, Model, Parameters, initial
from fedalpha.rng import Draws, integer
from fedalpha.task import Task
from fedalpha.update import UPDATES, Broadcast, Site, Update
from fedalpha.update.base import class_counts

AnyModel = str | Model | nn.Module | Callable[[], nn.Module]
Data = Examples | Pair | Callable[[Context], Examples | Pair]


def initial_arrays(model: AnyModel, shape: tuple[int, ...], classes: int, seed: int = 0) -> ArrayRecord:
    """w_0 as `fedalpha.run` draws it from ``seed``, for ``FedAlpha.start``.

    >>> initial_arrays("softmax", (1, 8, 8), 10)["output.weight"].shape
    (10, 64)
    """
    return to_arrays(initial(model, shape, classes, integer(seed, "model"))[1])


def client_app(
    model: AnyModel,
    data: Data,
    update: str | Update = "sgd",
    *,
    classes: int | None = None,
    test: Data | None = None,
    task: Task | None = None,
    seed: int = 0,
    client_id: Callable[[Context], int] = stable_id,
    device: str = "cpu",
) -> ClientApp:
    """A ``ClientApp`` that trains ``model`` on ``data`` as a client of the embedded engine does, to the bit.

    ``data`` and ``test`` are (x, y), or functions of the node's context that return it; ``classes`` is needed
    for models named by text, since one node may not hold all labels. ``update`` is a client update or its
    text, such as ``sgd(lr=0.1, epochs=2)``. The app answers ``train``, ``query.client``, ``query.loss``
    and, where there is ``test``, ``evaluate``.

    >>> app = client_app("softmax", (torch.rand(8, 4), torch.tensor([0, 1] * 4)), classes=2)
    """
    app = ClientApp()
    node = _Node(
        model, data, test, UPDATES.parse(update), _known(model, classes), task or Task(), seed, client_id, device
    )
    add_loss_query(app, node.loss, examples=node.examples, client_id=client_id)
    app.train()(node.train)
    if test is not None:
        app.evaluate()(node.evaluate)
    return app


class _Node:
    """The handlers; one process may serve several clients (Flower's simulation)."""

    def __init__(
        self,
        model: AnyModel,
        data: Data,
        test: Data | None,
        update: Update,
        classes: int,
        task: Task,
        seed: int,
        client_id: Callable[[Context], int],
        device: str,
    ) -> None:
        self.model, self.data, self.test, self.method = model, data, test, update
        self.classes, self.seed, self.client_id = classes, seed, client_id
        self.site = Site(task, device)
        self._architecture: Architecture | None = None

    def examples(self, context: Context) -> int:
        return len(_examples(self.data, context))

    def loss(self, arrays: ArrayRecord, context: Context) -> tuple[float, int]:
        data = _examples(self.data, context)
        with single_thread():
            return self.site.loss(self.site.load(self.broadcast(arrays, data)), data), len(data)

    def train(self, message: Message, context: Context) -> Message:
        name, arrays = next(iter(message.content.array_records.items()))
        config: dict[str, Any] = dict(next(iter(message.content.config_records.values()), {}))
        data = _examples(self.data, context)
        draws = Draws(self.seed, int(config["server-round"]) - 1, self.client_id(context))
        with single_thread():
            wanted = frozenset(config.get(WANTED, []))
            report = self.method.update(self.site, self.broadcast(arrays, data), data, {}, draws, wanted)
        assert report.parameters is not None
        if report.state or report.extras:
            raise ValueError(
                f"{self.method} keeps state on clients, which FedAlpha does not support; "
                "run it with `fedalpha run --engine flower`, or choose sgd or fedprox"
            )
        metrics = MetricRecord({EXAMPLES: len(data), "steps": report.steps})
        for kind, value in report.losses.items():
            metrics[f"{kind}_loss"] = float(value)
        if LABELS in wanted:
            metrics[LABELS] = class_counts(data, self.classes)
        content = RecordDict({name: to_arrays(report.parameters), METRICS: metrics})
        return Message(content, reply_to=message)

    def evaluate(self, message: Message, context: Context) -> Message:
        assert self.test is not None
        data = _examples(self.test, context)
        arrays = next(iter(message.content.array_records.values()))
        metrics = _evaluation(self.site, self.broadcast(arrays, data), data)
        return Message(RecordDict({METRICS: metrics}), reply_to=message)

    def broadcast(self, arrays: ArrayRecord, data: Examples) -> Broadcast:
        if self._architecture is None:
            self._architecture = initial(self.model, tuple(data.x.shape[1:]), self.classes, 0)[0]
        return Broadcast(self._architecture, to_parameters(arrays))


def evaluate_on(
    model: AnyModel, test: Examples | Pair, *, classes: int | None = None, task: Task | None = None
) -> Callable[[int, ArrayRecord], MetricRecord]:
    """An ``evaluate_fn`` for ``FedAlpha.start``: loss and accuracy on the server's own data (x, y).

    >>> evaluate = evaluate_on("softmax", (torch.rand(8, 4), torch.tensor([0, 1] * 4)), classes=2)
    >>> sorted(evaluate(0, initial_arrays("softmax", (4,), 2)))
    ['accuracy', 'loss', 'num-examples']
    """
    data = Examples.of(test)
    architecture = initial(model, tuple(data.x.shape[1:]), _known(model, classes), 0)[0]
    site = Site(task or Task())

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        return _evaluation(site, Broadcast(architecture, to_parameters(arrays)), data)

    return evaluate


def to_arrays(parameters: Parameters) -> ArrayRecord:
    """A state dict as Flower carries it."""
    return ArrayRecord({name: Array(value.detach().cpu().numpy()) for name, value in parameters.items()})


def to_parameters(arrays: ArrayRecord) -> Parameters:
    """Arrays of a message as a state dict."""
    return {name: torch.from_numpy(array.numpy().copy()) for name, array in arrays.items()}


def _examples(data: Data, context: Context) -> Examples:
    found = Examples.of(data(context) if callable(data) else data)
    if not len(found):
        raise ValueError("this node has no examples; start fewer nodes, or check its partition")
    return found


def _evaluation(site: Site, broadcast: Broadcast, data: Examples) -> MetricRecord:
    with single_thread():
        module = site.load(broadcast)
        metrics = MetricRecord({EXAMPLES: len(data), "loss": site.loss(module, data)})
        correct = site.task.correct
        if correct is not None:
            right = sum(float(correct(out, target).sum()) for out, target in site.outputs(module, data))
            metrics["accuracy"] = right / len(data)
    return metrics


def _known(model: AnyModel, classes: int | None) -> int:
    if isinstance(model, str | Model) and classes is None:
        raise ValueError(f"model = {model!s} is named by text: pass classes=, the number of labels over all clients")
    return classes or 0

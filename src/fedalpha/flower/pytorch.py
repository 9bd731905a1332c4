"""For users of PyTorch: a complete ``ClientApp``, the initial arrays and an evaluation for the server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from fedalpha.data.federations import Examples, Pair
from fedalpha.fast.threads import single_thread
from fedalpha.flower.client_state import Kept
from fedalpha.flower.names import BATCH, EXTRAS, OURS, UPLOAD
from fedalpha.flower.queries import (
    ASK_CLIENT,
    ASK_LOSS,
    EXAMPLES,
    LABELS,
    METRICS,
    WANTED,
    stable_id,
    tell_client,
    tell_loss,
)
from fedalpha.models import Architecture, BuiltIn, Model, Parameters, initial, mlp
from fedalpha.rng import Draws, integer
from fedalpha.task import Task
from fedalpha.update import UPDATES, Broadcast, Report, Site, Update
from fedalpha.update.base import class_counts
from fedalpha.update.compressed import Compressed
from fedalpha.upload import UPLOADS, Packed

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
    """A ``ClientApp`` that trains ``model`` on ``data`` with the same bits as a client of the embedded engine.

    ``data`` and ``test`` are (x, y), or functions of the node's context that return it; ``classes`` is needed
    for models named by text, because one node may not have all labels. ``update`` is a client update or its
    text, such as ``sgd(lr=0.1, epochs=2)``. Updates are encoded by the server's upload, if it has one. The app
    answers ``train``, ``query.client``, ``query.loss`` and, with ``test``, ``evaluate``.

    >>> app = client_app("softmax", (torch.rand(8, 4), torch.tensor([0, 1] * 4)), classes=2)
    """
    app = ClientApp()
    node = _Node(
        model, data, test, UPDATES.parse(update), _known(model, classes), task or Task(), seed, client_id, device
    )
    app.query(ASK_CLIENT.split(".")[1])(node.told)
    app.query(ASK_LOSS.split(".")[1])(node.query)
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

    def told(self, message: Message, context: Context) -> Message:
        return tell_client(message, context, self.examples, self.client_id)

    def query(self, message: Message, context: Context) -> Message:
        return tell_loss(message, context, self.loss, self.client_id)

    def loss(self, message: Message, context: Context) -> tuple[float, int]:
        """F_i of the model in a message, on all of the client's data or on the requested number of samples."""
        _, arrays, config = _parts(message)
        data = _examples(self.data, context)
        some, batch = data, int(config.get(BATCH, len(data)))
        if batch < len(data):
            rng = self.draws(config, context)("loss")
            some = data[torch.from_numpy(rng.choice(len(data), batch, replace=False))]
        with single_thread():
            return self.site.loss(self.site.load(self.broadcast(arrays, data)), some), len(data)

    def train(self, message: Message, context: Context) -> Message:
        name, arrays, config = _parts(message)
        data = _examples(self.data, context)
        kept = Kept(message, context, int(config["server-round"]))
        broadcast = self.broadcast(arrays, data, message.content.array_records.get(EXTRAS))
        with single_thread():
            wanted = frozenset(config.get(WANTED, []))
            draws = self.draws(config, context)
            report, packed = self.trained(config.get(UPLOAD), broadcast, data, kept.state(), draws, wanted)
        assert report.parameters is not None
        metrics = MetricRecord({EXAMPLES: len(data), "steps": report.steps})
        for kind, value in report.losses.items():
            metrics[f"{kind}_loss"] = float(value)
        if LABELS in wanted:
            metrics[LABELS] = class_counts(data, self.classes)
        content = RecordDict({name: to_arrays(report.parameters), METRICS: metrics})
        if packed is not None:
            content[UPLOAD] = ArrayRecord({key: Array(value) for key, value in packed.items()})
        if report.extras:
            content[EXTRAS] = to_arrays(report.extras)
        kept.put(report.state, content)
        return Message(content, reply_to=message)

    def trained(self, upload: Any, *given: Any) -> tuple[Report, Packed | None]:
        """The report of a training, and the encoded update in place of the parameters if the server names an upload."""
        if upload is None:
            return self.method.update(self.site, *given), None
        written = Compressed(self.method, UPLOADS.parse(upload)).written(self.site, *given)
        return replace(written.report, parameters=written.whole), written.packed

    def draws(self, config: dict[str, Any], context: Context) -> Draws:
        return Draws(self.seed, int(config["server-round"]) - 1, self.client_id(context))

    def evaluate(self, message: Message, context: Context) -> Message:
        assert self.test is not None
        data = _examples(self.test, context)
        arrays = next(iter(message.content.array_records.values()))
        metrics = _evaluation(self.site, self.broadcast(arrays, data), data)
        return Message(RecordDict({METRICS: metrics}), reply_to=message)

    def broadcast(self, arrays: ArrayRecord, data: Examples, extras: ArrayRecord | None = None) -> Broadcast:
        if self._architecture is None:
            self._architecture = initial(self.model, tuple(data.x.shape[1:]), self.classes, 0)[0]
        parameters = to_parameters(arrays)
        self._architecture = fitted(self._architecture, parameters)
        return Broadcast(self._architecture, parameters, {} if extras is None else to_parameters(extras))


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
        parameters = to_parameters(arrays)
        return _evaluation(site, Broadcast(fitted(architecture, parameters), parameters), data)

    return evaluate


def fitted(architecture: Architecture, parameters: Parameters) -> Architecture:
    """The architecture with the widths of these parameters: some combine rules (pfnm, feddist) change them."""
    if not isinstance(architecture, BuiltIn) or not isinstance(architecture.model, mlp):
        return architecture
    widths = tuple(len(value) for name, value in parameters.items() if name.endswith(".bias"))[:-1]
    return architecture if widths == architecture.model.hidden else architecture.with_model(mlp(hidden=widths))


def to_arrays(parameters: Parameters) -> ArrayRecord:
    """A state dict as Flower carries it."""
    return ArrayRecord({name: Array(value.detach().cpu().numpy()) for name, value in parameters.items()})


def to_parameters(arrays: ArrayRecord) -> Parameters:
    """Arrays of a message as a state dict."""
    return {name: torch.from_numpy(array.numpy().copy()) for name, array in arrays.items()}


def _parts(message: Message) -> tuple[str, ArrayRecord, dict[str, Any]]:
    """The name of the model's record, the model, and the configuration."""
    content = message.content
    name, arrays = next(item for item in content.array_records.items() if not item[0].startswith(OURS))
    configs = (record for name, record in content.config_records.items() if not name.startswith(OURS))
    return name, arrays, dict(next(configs, {}))


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

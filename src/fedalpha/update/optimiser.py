"""Any optimiser of ``torch.optim`` as a client update: ``local(adamw, lr=0.001)``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, field
from typing import Any, Literal

import torch

from fedalpha.text import nearest
from fedalpha.update.base import UPDATES, Update
from fedalpha.update.schedules import Schedule
from fedalpha.update.sgd import sgd

_OPTIONS = ("momentum", "weight_decay", "betas", "eps", "alpha", "nesterov", "amsgrad", "dampening")
_UNFIT = {
    "lbfgs": "it asks for several losses a step; use the client update lbfgs",
    "sparseadam": "it needs sparse gradients",
    "muon": "it takes matrices only",
}


def optimisers() -> dict[str, type[torch.optim.Optimizer]]:
    """The optimisers of this torch by their names in texts."""
    found = {name.lower(): kind for name, kind in vars(torch.optim).items() if inspect.isclass(kind)}
    return {
        name: kind
        for name, kind in found.items()
        if issubclass(kind, torch.optim.Optimizer) and name not in ("optimizer", *_UNFIT)
    }


@UPDATES.register(
    formula="the steps of torch.optim's optimiser on F_i(w; batch), from a fresh state in every round",
    reference="torch.optim; AdamW: Loshchilov, Hutter, 2019, 1711.05101",
    examples=("local(adamw, lr=0.001)", "local(rmsprop, lr=0.001, batch=32, clip=1.0)"),
)
class local(sgd):
    """Training with ``optimiser``: adam, adamw, rmsprop, adagrad … Batches, epochs, ``clip`` and so on as for ``sgd``.

    Options that are not given have torch's defaults: ``local(adamw)`` has a weight decay of 0.01.
    """

    optimiser: str = field(default="adamw", metadata={"positional": True})
    _: KW_ONLY
    lr: float | str | Schedule = field(default=0.001, metadata={"always": True})
    batch: int | None = field(default=16, metadata={"always": True})
    epochs: int = field(default=1, metadata={"always": True})
    steps: int | None = None
    momentum: float | None = None  # type: ignore[assignment]
    weight_decay: float | None = None  # type: ignore[assignment]
    drop_last: bool = False
    clip: float | None = None
    precision: Literal["full", "bf16"] = "full"
    betas: Sequence[float] | None = None
    eps: float | None = None
    alpha: float | None = None
    nesterov: bool | None = None
    amsgrad: bool | None = None
    dampening: float | None = None

    def __post_init__(self) -> None:
        name = self.optimiser.text_name if isinstance(self.optimiser, Update) else str(self.optimiser).lower()
        object.__setattr__(self, "optimiser", name)  # "sgd" is read as the client update of that name
        if name in _UNFIT:
            raise ValueError(f"local: {name} cannot be used: {_UNFIT[name]}")
        known = optimisers()
        if name not in known:
            raise ValueError(f"local: unknown optimiser {name!r}; {nearest(name, known)}")
        self.check_batches()
        accepted = inspect.signature(known[name]).parameters
        for option in self._options():
            if option not in accepted:
                valid = [one for one in _OPTIONS if one in accepted]
                raise ValueError(f"local: {name} has no {option}; it has {', '.join(valid) or 'no such options'}")
        self.mover([torch.zeros(1, requires_grad=True)], 0.1)  # the optimiser checks the values

    def _options(self) -> dict[str, Any]:
        """The options that were given."""
        found = {name: value for name in _OPTIONS if (value := getattr(self, name)) is not None}
        return found | ({"betas": tuple(self.betas)} if self.betas is not None else {})

    def mover(self, parameters: Sequence[torch.Tensor], rate: float) -> Callable[[Sequence[torch.Tensor]], None]:
        try:
            optimiser = optimisers()[self.optimiser](list(parameters), lr=rate, **self._options())  # type: ignore[call-arg]
        except (ValueError, TypeError) as error:
            raise ValueError(f"local: {self.optimiser}: {error}") from None

        def move(gradients: Sequence[torch.Tensor]) -> None:
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)

        return move

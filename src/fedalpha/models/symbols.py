"""What models over sequences of symbols share: x holds whole numbers, y a label per position or one per sequence."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor, nn

from fedalpha.models.base import Model


class SymbolModel(Model):
    """Takes sequences of symbols 0 … ``symbols`` − 1, by default as many as there are classes.

    The module returns (samples, classes, positions), or with ``last`` (samples, classes): the output at the last
    position.
    """

    last: bool = False
    symbols: int | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if (
                name != "last"
                and value is not None
                and (isinstance(value, bool) or not isinstance(value, int) or value < 1)
            ):
                raise ValueError(f"{self.text_name}: {name} = {value!r}; give a whole number of at least 1")

    def layers(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        if len(shape) != 1:
            raise ValueError(
                f"{self.text_name} needs sequences of symbols, one axis per sample; this data has shape {shape}; "
                "use mlp or cnn instead"
            )
        return _Positions(self.sequence(shape[0], self.symbols or classes, classes), self.last)

    @abstractmethod
    def sequence(self, length: int, symbols: int, classes: int) -> nn.Module:
        """A module from (samples, positions) to (samples, positions, classes)."""


class _Positions(nn.Module):
    """Puts the classes on the second axis, where losses expect them."""

    def __init__(self, inner: nn.Module, last: bool) -> None:
        super().__init__()
        self.inner, self.last = inner, last

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.inner(x)
        return found[:, -1] if self.last else found.transpose(1, 2)

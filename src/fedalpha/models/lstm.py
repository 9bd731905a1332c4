"""A recurrent network over sequences of symbols."""

from __future__ import annotations

from torch import Tensor, nn

from fedalpha.models.base import MODELS
from fedalpha.models.symbols import SymbolModel


@MODELS.register(
    formula="embedding → LSTM × layers → linear, at every position",
    reference="Hochreiter, Schmidhuber, 1997; McMahan et al., 2017 (next character: 8, 2 × 256)",
    examples=("lstm", "lstm(hidden=32, depth=1, last=true)"),
)
class lstm(SymbolModel):
    """An LSTM that predicts a label at every position of a sequence, such as the next character.

    ``embedding`` and ``hidden`` are widths, ``depth`` counts the recurrent layers.

    >>> sum(p.numel() for p in lstm().layers((80,), 80).parameters())
    819920
    """

    embedding: int = 8
    hidden: int = 256
    depth: int = 2
    last: bool = False
    symbols: int | None = None

    def sequence(self, length: int, symbols: int, classes: int) -> nn.Module:
        return _Recurrent(symbols, self.embedding, self.hidden, self.depth, classes)


class _Recurrent(nn.Module):
    def __init__(self, symbols: int, embedding: int, hidden: int, depth: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, embedding)
        self.lstm = nn.LSTM(embedding, hidden, depth, batch_first=True)
        self.output = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.output(self.lstm(self.embedding(x))[0])
        return found

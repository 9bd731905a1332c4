"""A small transformer over sequences of symbols."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedalpha.models.base import MODELS
from fedalpha.models.symbols import SymbolModel


@MODELS.register(
    formula="embedding + position → causal self-attention blocks × depth → norm → linear, at every position",
    reference="Vaswani et al., 2017, 1706.03762; pre-norm: Xiong et al., 2020, 2002.04745",
    examples=("transformer", "transformer(width=16, depth=1, heads=2)"),
)
class transformer(SymbolModel):
    """A causal transformer: a position sees itself and the positions before it. There is no dropout.

    >>> sum(p.numel() for p in transformer().layers((80,), 80).parameters())
    115536
    """

    width: int = 64
    depth: int = 2
    heads: int = 4
    last: bool = False
    symbols: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.heads:
            raise ValueError(f"transformer: width = {self.width} is not a multiple of heads = {self.heads}")

    def sequence(self, length: int, symbols: int, classes: int) -> nn.Module:
        return _Causal(length, symbols, self.width, self.depth, self.heads, classes)


class _Causal(nn.Module):
    mask: Tensor

    def __init__(self, length: int, symbols: int, width: int, depth: int, heads: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, width)
        self.position = nn.Parameter(torch.randn(length, width) / width**0.5)
        blocks = (
            nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
            for _ in range(depth)
        )
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, classes)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.embedding(x) + self.position[: x.shape[1]]
        mask = self.mask[: x.shape[1], : x.shape[1]]
        for block in self.blocks:
            found = block(found, src_mask=mask, is_causal=True)
        found = self.output(self.norm(found))
        return found

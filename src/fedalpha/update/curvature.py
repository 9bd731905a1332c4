"""Curvature pairs (s, y) of a limited-memory BFGS method, with displacement aggregation.

A pair whose step s_j lies in the span of later steps need not be forgotten: the later y can be changed
so that the Hessian approximation stays what full-memory BFGS would have (Berahas, Curtis, Zhou,
1903.03471). The changed y are not unique. With B the full-memory approximation, and ŝ_i what is left of
s_i after removing its B-projection on the later steps, y_i = B·ŝ_i is one solution, found by a
Gram–Schmidt sweep: a BFGS update along s keeps the inverse H on the vectors orthogonal to s, and
y_i = B·ŝ_i gives the chain of updates whose last member agrees with H on all of them. The authors
solve for another member of the set, by a sequence of quadratic equations.
"""

from __future__ import annotations

import torch
from torch import Tensor


class Pairs:
    """Up to ``memory`` pairs; H_0 = ``scale``·I. With ``aggregate`` dependent steps are folded, not dropped."""

    def __init__(self, memory: int, scale: float, aggregate: bool = True, tolerance: float = 1e-8) -> None:
        self.memory, self.scale, self.aggregate, self.tolerance = memory, scale, aggregate, tolerance
        self.s: list[Tensor] = []
        self.y: list[Tensor] = []

    def __len__(self) -> int:
        return len(self.s)

    def add(self, s: Tensor, y: Tensor) -> bool:
        """Add a pair if its curvature is positive. Returns whether it was added."""
        if not s @ y > 1e-10 * s.norm() * y.norm():
            return False
        self.s.append(s)
        self.y.append(y)
        if len(self) > self.memory:
            j = self._dependent() if self.aggregate else None
            if j is None:
                del self.s[0], self.y[0]
            else:
                self._fold(j)
        return True

    def solve(self, g: Tensor) -> Tensor:
        """H·g, by the two-loop recursion."""
        q, alphas = g.clone(), []
        for s, y in zip(reversed(self.s), reversed(self.y), strict=True):
            alphas.append((s @ q) / (s @ y))
            q -= alphas[-1] * y
        q *= self.scale
        for s, y in zip(self.s, self.y, strict=True):
            q += (alphas.pop() - (y @ q) / (s @ y)) * s
        return q

    def multiply(self, vectors: Tensor) -> Tensor:
        """B·V for the columns of V, B = H⁻¹."""
        columns = torch.cat([torch.stack(self.s, dim=1), vectors], dim=1)
        products = columns / self.scale
        for i, (s, y) in enumerate(zip(self.s, self.y, strict=True)):
            bs = products[:, i].clone()
            products = products - torch.outer(bs, s @ products) / (s @ bs) + torch.outer(y, y @ columns) / (s @ y)
        return products[:, len(self) :]

    def _dependent(self) -> int | None:
        """The latest pair whose step lies in the span of those after it."""
        latest_first = torch.stack(self.s[::-1], dim=1)
        rests = torch.linalg.qr(latest_first / latest_first.norm(dim=0), mode="r").R.diagonal().abs()
        found = torch.nonzero(rests <= self.tolerance).flatten().tolist() + list(range(len(rests), len(self)))
        return len(self) - 1 - found[0] if found else None  # more steps than dimensions: the last must depend

    def _fold(self, j: int) -> None:
        """Drop pair j and change the later pairs so that the Hessian approximation stays the same."""
        later = torch.stack(self.s[j + 1 :], dim=1)
        products = self.multiply(later)
        left, images = later.clone(), products.clone()  # ŝ_i and B·ŝ_i
        for i in reversed(range(later.shape[1])):
            for k in [*range(i + 1, later.shape[1])] * 2:  # two sweeps, against rounding
                share = (images[:, k] @ left[:, i]) / (images[:, k] @ left[:, k])
                left[:, i] -= share * left[:, k]
                images[:, i] -= share * images[:, k]
        self.y[j + 1 :] = [images[:, i].clone() for i in range(later.shape[1])]
        del self.s[j], self.y[j]

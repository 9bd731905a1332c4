"""Feature shift: pictures that are turned, by another angle from client to client."""

from __future__ import annotations

import dataclasses

import numpy as np

from fedalpha.data.partitions.base import PARTITIONS
from fedalpha.data.partitions.wrapper import Holding, Wrapper


@PARTITIONS.register(
    formula="client i turns its pictures by by·(i mod 360/by) degrees",
    reference="Ghosh et al., 2020, 2006.04088 (rotated MNIST)",
    examples=("rotated(iid)", "rotated(dirichlet(a=0.5), by=180)"),
)
class rotated(Wrapper):
    """Clients turn their pictures counter-clockwise by multiples of ``by`` degrees: 0, by, 2·by … in turn.

    A client's own test part is turned with its training part; the server's test set is not turned. Angles other than
    90, 180 and 270 degrees are interpolated.

    >>> turned = rotated().change(Holding(np.array([[[1, 2], [3, 4]]]), np.array([0]), 1, 4, 1, 0)).x
    >>> turned[0].tolist()
    [[2, 4], [1, 3]]
    """

    by: float = 90

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.by, bool) or not isinstance(self.by, int | float) or not 0 < self.by < 360 or 360 % self.by:
            raise ValueError(f"rotated: by = {self.by!r}; give an angle that divides 360, such as 90")

    def change(self, holding: Holding) -> Holding:
        x = holding.x
        if x.ndim < 3 or x.shape[-1] != x.shape[-2]:
            raise ValueError(f"rotated needs square pictures, not samples of shape {x.shape[1:]}")
        angle = self.by * (holding.client % round(360 / self.by))
        if angle % 90:
            from scipy.ndimage import rotate

            turned = rotate(x, angle, axes=(-1, -2), reshape=False, order=1)
        else:
            turned = np.rot90(x, round(angle / 90), axes=(-2, -1))
        return dataclasses.replace(holding, x=np.ascontiguousarray(turned))

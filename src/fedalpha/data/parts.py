"""Two parts of one federation that share no client, no training sample and no test sample.

Settings are chosen on one part (``tuning``) and results are reported on the other (``reported``). Which samples
and clients belong to which part does not depend on the seed of a run: otherwise a sample of one seed's tuning part
would be in another seed's reported part.
"""

from __future__ import annotations

import dataclasses
import zlib
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedalpha.rng import generator
from fedalpha.text import Registry, Spelled

if TYPE_CHECKING:
    from fedalpha.data.inputs import Input
    from fedalpha.data.partitions import Indices


class Part(Spelled):
    """``share`` is the share of the tuning part, in both."""

    share: float = dataclasses.field(default=0.5, metadata={"always": True})
    first: ClassVar[bool]

    def __post_init__(self) -> None:
        if isinstance(self.share, bool) or not isinstance(self.share, int | float) or not 0 < self.share < 1:
            raise ValueError(f"{self.text_name}: share = {self.share!r}; give a number between 0 and 1")

    def count(self, clients: int) -> int:
        """How many of the federation's clients are in this part.

        >>> PARTS.parse("tuning(share=0.3)").count(10), PARTS.parse("reported(share=0.3)").count(10)
        (3, 7)
        """
        if clients < 2:
            raise ValueError(f"{clients} client cannot be split into two parts; give at least 2 clients")
        tuning = min(max(1, round(self.share * clients)), clients - 1)
        return tuning if self.first else clients - tuning

    def of(self, found: Input) -> Input:
        """This part of the data: of the samples, the same share of each label; of clients that are given, some."""
        if found.sizes is None:
            samples = self._samples(found.train.y.numpy(), "train")
            test = None if found.test is None else found.test[_tensor(self._samples(found.test.y.numpy(), "test"))]
            return dataclasses.replace(found, train=found.train[_tensor(samples)], test=test)
        chosen = self._clients(found)
        groups = found.groups()
        if not 0 < len(chosen) < len(groups):
            raise ValueError(f"of {len(groups)} clients none is left for {self}; give more clients, or another share")
        samples = np.concatenate([groups[i] for i in chosen])
        test, owner = found.test, found.test_owner
        if test is not None and owner is not None:
            place = np.full(len(groups), -1)
            place[chosen] = np.arange(len(chosen))
            mine = np.flatnonzero(place[owner] >= 0)
            test, owner = test[_tensor(mine)], place[owner[mine]]
        elif test is not None:
            test = test[_tensor(self._samples(test.y.numpy(), "test"))]
        names = None if found.names is None else tuple(found.names[i] for i in chosen)
        sizes, train = [found.sizes[i] for i in chosen], found.train[_tensor(samples)]
        return dataclasses.replace(found, train=train, sizes=sizes, test=test, test_owner=owner, names=names)

    def _clients(self, found: Input) -> Indices:
        """The clients of this part. A client that has a name is in the same part whichever other clients take part."""
        assert found.sizes is not None
        if found.names is not None:
            tuning = np.array([zlib.crc32(name.encode()) < self.share * 2**32 for name in found.names])
            return np.flatnonzero(tuning if self.first else ~tuning)
        order = generator(0, "part").permutation(len(found.sizes))
        count = self.count(len(order))
        return np.sort(order[:count] if self.first else order[-count:])

    def _samples(self, y: NDArray[Any], what: str) -> Indices:
        """The samples of this part, in order."""
        order = generator(0, f"part of {what}").permutation(len(y))
        if y.ndim == 1 and np.issubdtype(y.dtype, np.integer):
            order = order[np.argsort(y[order], kind="stable")]
        # Along an order that is sorted by label, every 1/share-th sample is one of the tuning part.
        steps = np.floor(np.arange(len(y) + 1) * self.share)
        tuning = np.diff(steps) > 0
        return np.sort(order[tuning if self.first else ~tuning])


PARTS: Registry[Part] = Registry("part", Part)


@PARTS.register()
class tuning(Part):
    """The part on which settings are chosen."""

    first = True


@PARTS.register()
class reported(Part):
    """The part on which results are reported."""

    first = False


def _tensor(indices: Indices) -> Any:
    import torch

    return torch.from_numpy(indices)

"""What a transform is, and the registry of transforms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from fedalpha.text import Registry, Spelled

if TYPE_CHECKING:
    from torch import Tensor

Change = Callable[["Tensor", np.random.Generator], "Tensor"]


class Transform(Spelled, ABC):
    """Changes a batch of training samples at random. Subclasses are frozen dataclasses."""

    @abstractmethod
    def __call__(self, x: Tensor, rng: np.random.Generator) -> Tensor:
        """A new batch of the same shape; every draw comes from ``rng``, and ``x`` is left as it is."""


TRANSFORMS: Registry[Transform] = Registry("transform", Transform, package=__package__)  # type: ignore[type-abstract]
"""Every transform that can be written as text."""


def as_transform(given: str | Change | None) -> Change | None:
    """The transform that a text names, or the user's own function.

    >>> as_transform("crop(padding=4)")
    crop(padding=4)
    """
    if given is None or (callable(given) and not isinstance(given, str)):
        return given
    return TRANSFORMS.parse(given)

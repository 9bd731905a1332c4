"""*Transforms*: random changes of the training samples (augmentation), with new draws in every round.

A transform gets a batch and the generator of (seed, round, client). So it is the same for every strategy of a seed and
for any number of workers. It changes what clients train on; losses before training and accuracies are measured on the
samples as they are.

A new transform is one file in this folder, or in a plugin: a class with one method, ``__call__``, registered in
`TRANSFORMS`. In Python any function ``f(x, rng)`` will do.
"""

from __future__ import annotations

from fedalpha.data.transforms.base import TRANSFORMS, Change, Transform, as_transform

__all__ = ["TRANSFORMS", "Change", "Transform", "as_transform"]

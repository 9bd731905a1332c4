"""*Partitions*: how the samples of a data set are split over clients.

A partition gives every sample of a labelled data set to exactly one client, and every client at
least one sample:

- `iid`: the same label distribution everywhere, sizes as you choose.
- `shards`: label-sorted shards dealt at random; the paper's non-IID data.
- `dirichlet`: label skew, from one label per client (a → 0) to almost IID (a → ∞).
- `quantity`: sizes skewed, labels not.
- `one_label`: the hardest label skew, one label per client.
- `skewed`: sizes and labels skewed at once.

Two more wrap a partition and change what clients hold (`Wrapper`), so that regimes can be combined, as in
``noisy(rotated(dirichlet(a=0.5)), share=0.2, clients=0.3)``:

- `rotated`: feature shift, pictures turned by another angle from client to client.
- `noisy`: wrong labels at some clients.

A new partition is one file in this folder, or in a plugin: a class with one method, ``owners``, registered
in `PARTITIONS`. The property tests then run over it.
"""

from __future__ import annotations

from fedalpha.data.partitions.base import PARTITIONS, Indices, Partition

__all__ = ["PARTITIONS", "Indices", "Partition"]

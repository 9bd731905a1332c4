"""``fedalpha bench speed``: seconds and memory a round, against peers and against the machine.

- `workloads`: what is trained, prepared once and read by every contestant;
- `peers/`: one script per contestant, and the pinned packages of those with an environment of their own;
- `environments`: makes those environments;
- `contest`: runs a contestant as a process, and watches its memory;
- `results`, `goals`, `report`: medians and spread, the ratios that were promised, tables and pictures;
- `bench`: all of it, interleaved.
"""

from __future__ import annotations

from fedalpha.bench.speed.bench import bench
from fedalpha.bench.speed.environments import PEERS, Peer
from fedalpha.bench.speed.workloads import FULL, QUICK, WORKLOADS, Sizes

__all__ = ["FULL", "PEERS", "QUICK", "WORKLOADS", "Peer", "Sizes", "bench"]

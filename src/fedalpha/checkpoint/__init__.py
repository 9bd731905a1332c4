"""Checkpoints: what a run needs in order to go on, saved so that no crash can lose it.

- `tree`: a state as JSON and tensors, never pickled;
- `files`: atomic writes;
- `generations`: two generations with SHA-256, the older used when the newer is damaged;
- `lock`: one process to a folder.
"""

from __future__ import annotations

from fedalpha.checkpoint.files import write_atomically
from fedalpha.checkpoint.generations import DamagedError, Generations
from fedalpha.checkpoint.lock import FolderLock

__all__ = ["DamagedError", "FolderLock", "Generations", "write_atomically"]

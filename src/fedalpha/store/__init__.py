"""The durable store: what a run needs to resume, saved so that no crash can lose it. It needs NumPy and safetensors.

- `inside`: folders that another person may have filled, without following links;
- `files`: atomic writes;
- `growing`: a file of records that grows at its end;
- `tree`: a state as JSON and arrays, never pickled;
- `generations`: two generations with SHA-256; the older one is used when the newer one is damaged;
- `kinds`: whether a folder holds a run, a comparison or a study;
- `lock`: one process per folder.
"""

from __future__ import annotations

from fedalpha.store.files import write_atomically
from fedalpha.store.generations import DamagedError, FormatError, Generations, Most
from fedalpha.store.growing import Growing
from fedalpha.store.inside import LinkError
from fedalpha.store.lock import FolderLock

__all__ = [
    "DamagedError",
    "FolderLock",
    "FormatError",
    "Generations",
    "Growing",
    "LinkError",
    "Most",
    "write_atomically",
]

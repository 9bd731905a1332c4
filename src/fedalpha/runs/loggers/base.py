"""The registry of loggers."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TextIO

from fedalpha.runs.callbacks import Callback
from fedalpha.store import LinkError
from fedalpha.text import Registry

LOGGERS: Registry[Callback] = Registry("logger", Callback, package=__package__)
"""Every logger that can be written as text."""


def opened(path: Path, mode: Literal["w", "a"]) -> TextIO:
    """The file of a logger. A link to a file is refused: the path may be in a folder that another person filled.

    Devices, such as /dev/stdout, may be links.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink() and (path.is_file() or not path.exists()):
        raise LinkError(f"{path} is a link; give the path of the file itself, or remove the link")
    return path.open(mode, newline="", encoding="utf-8")

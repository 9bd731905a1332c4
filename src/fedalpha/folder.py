"""The run folder: ``config.json``, ``history.jsonl``, ``model.safetensors``, ``curves.png``.

Every row is on disk as soon as its round is over, so a folder is readable at any time.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TextIO

from fedalpha.callbacks import Callback
from fedalpha.history import History, Row
from fedalpha.round import ServerState


def versions() -> dict[str, str]:
    """The versions that a result depends on."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for package in ("fedalpha", "torch", "numpy", "scipy", "scikit-learn"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


class Folder(Callback):
    """Writes a run folder. A folder that holds another run is refused."""

    def __init__(self, path: str | Path, config: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self.config = {**config, "versions": versions()}
        self._lines: TextIO | None = None
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"{self.path} is a file; give a folder to --out")
        if (self.path / "history.jsonl").exists():
            raise ValueError(f"{self.path} holds a run already; choose another folder or remove this one")

    def on_start(self, rounds: int) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / "config.json").write_text(json.dumps(self.config, indent=2) + "\n")
        self._lines = (self.path / "history.jsonl").open("w")

    def on_round(self, row: Row, state: ServerState) -> bool | None:
        assert self._lines is not None
        self._lines.write(json.dumps(row, allow_nan=False) + "\n")
        self._lines.flush()
        return None

    def on_end(self, history: History) -> None:
        from safetensors.torch import save_file

        from fedalpha.plots import plot_run

        if self._lines is None:
            return
        self._lines.close()
        save_file({k: v.contiguous() for k, v in history.model.items()}, self.path / "model.safetensors")
        if history.rows:
            plot_run(history, self.path / "curves.png", title=str(self.config.get("strategy", "")))

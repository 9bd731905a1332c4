"""Working trees of other commits, to compare two of them on one machine."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def trees(*commits: str) -> Iterator[list[Path]]:
    """A temporary folder per commit with its files; they are removed at the end."""
    found: list[Path] = []
    with tempfile.TemporaryDirectory(prefix="fedalpha-commits-") as scratch:
        try:
            for place, commit in enumerate(commits):
                folder = Path(scratch) / str(place)
                subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(folder), commit], check=True)
                found.append(folder)
            yield found
        finally:
            for folder in found:
                subprocess.run(["git", "worktree", "remove", "--force", str(folder)], check=True)


def digest(commit: str) -> str:
    """The full name of a commit."""
    found = subprocess.run(["git", "rev-parse", commit], check=True, capture_output=True, text=True)
    return found.stdout.strip()

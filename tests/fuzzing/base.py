"""What a target is: one reader of content that somebody else may have made.

A target makes inputs from valid ones and reads them. A reader may accept an input or refuse it with one of its own
errors, whose text is short and cannot steer a terminal. Everything else is a finding.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

LONGEST_ERROR = 5_000


class Target(ABC):
    """One reader. ``first`` says whether an input passes the reader's first check: the syntax, or the checksums."""

    name: ClassVar[str]
    share: ClassVar[int]
    """How many of 200 inputs it gets: fewer where one takes milliseconds."""
    readers: ClassVar[dict[str, tuple[str, ...]]]
    """The functions whose branches are counted, by file."""
    errors: ClassVar[tuple[type[Exception], ...]] = (ValueError,)

    def __init__(self, folder: Path) -> None:
        self.folder = folder / self.name.replace(" ", "-")
        self.folder.mkdir(exist_ok=True)

    @abstractmethod
    def make(self, draw: random.Random) -> Any: ...

    @abstractmethod
    def first(self, given: Any) -> bool: ...

    @abstractmethod
    def read(self, given: Any) -> None: ...

    def tried(self, given: Any) -> bool:
        """Whether the input was accepted; AssertionError for a finding."""
        try:
            self.read(given)
        except self.errors as error:
            text = str(error)
            assert len(text) <= LONGEST_ERROR, f"an error of {len(text)} characters"
            assert "\x1b" not in text, f"an escape in an error: {text!r}"
            return False
        return True

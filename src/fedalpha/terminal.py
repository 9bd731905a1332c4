"""Everything that fedalpha shows on a terminal passes through here, and is made `plain`.

Names in files, folders and messages may come from other people, and a terminal obeys the control characters in them. So
the command line replaces the standard streams by ones that write control characters as their escapes, for all output.
Rich's own colours and bars go past them: a console made by `console` cleans its texts before it adds those.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, cast

from fedalpha.text import plain

if TYPE_CHECKING:
    from rich.console import Console


class Plain:
    """A text stream on which control characters other than ends of lines and tabs appear as their escapes."""

    def __init__(self, stream: TextIO) -> None:
        self.unchecked = stream

    def write(self, text: str) -> int:
        self.unchecked.write(plain(text, lines=True))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":  # a way past `write`
            raise AttributeError(name)
        return getattr(self.unchecked, name)


@contextmanager
def plain_streams() -> Iterator[None]:
    """In this block standard output and standard error are `Plain`."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, Plain(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def console(*, stderr: bool = False, **options: Any) -> Console:
    """A console of Rich that shows control characters of its texts as their escapes; ``options`` are Rich's."""
    from rich.console import Console
    from rich.segment import Segment

    class Cleaning(Console):
        def _render_buffer(self, buffer: Iterable[Segment]) -> str:
            return super()._render_buffer(s if s.control else Segment(plain(s.text, True), s.style) for s in buffer)

    stream = sys.stderr if stderr else sys.stdout
    return Cleaning(file=getattr(stream, "unchecked", stream), **options)

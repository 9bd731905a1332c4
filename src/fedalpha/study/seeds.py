"""Seeds as text: a count, a list or a range."""

from __future__ import annotations

from collections.abc import Sequence

from fedalpha.text import quoted

MOST_CELLS = 100_000
"""The largest number of cells or seeds of a study; more could take all memory before the first cell is run."""


def parse_seeds(text: str) -> list[int]:
    """Seeds from a count, a list or a range.

    >>> parse_seeds("3"), parse_seeds("4,7"), parse_seeds("10-12")
    ([0, 1, 2], [4, 7], [10, 11, 12])
    """
    try:
        found: Sequence[int] = []
        if "," in text:
            found = [int(part) for part in text.split(",") if part.strip()]
        elif "-" in text.strip("-"):
            first, last = (int(part) for part in text.split("-"))
            found = range(first, last + 1)
        else:
            found = range(int(text))
        if found and (found[-1] - found[0] if isinstance(found, range) else len(found)) >= MOST_CELLS:
            raise OverflowError
        if not found or min(found) < 0 or len(set(found)) != len(found):
            raise ValueError
    except ValueError:
        raise ValueError(
            f"seeds = {quoted(text)}; give a count from 1 on (5), a list (3,4,5) or a rising range (10-19)"
        ) from None
    except OverflowError:
        raise ValueError(f"seeds = {quoted(text)}; give at most {MOST_CELLS:,} seeds") from None
    return list(found)

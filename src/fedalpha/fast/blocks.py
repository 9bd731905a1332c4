"""How a cohort is cut, so that sums have one order wherever they are formed."""

from __future__ import annotations


def blocks(m: int) -> list[range]:
    """The blocks of a cohort of m: about 32 to 64 of them, by m alone.

    >>> len(blocks(10)), len(blocks(100)), len(blocks(1000))
    (10, 34, 33)
    """
    size = max(1, m // 32)
    return [range(start, min(start + size, m)) for start in range(0, m, size)]

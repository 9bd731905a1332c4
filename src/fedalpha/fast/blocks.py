"""How a cohort is cut into blocks, so that sums have the same order on every engine."""

from __future__ import annotations


def blocks(m: int) -> list[range]:
    """The blocks of a cohort of m clients: about 32 to 64, which depend on m only.

    >>> len(blocks(10)), len(blocks(100)), len(blocks(1000))
    (10, 34, 33)
    """
    size = max(1, m // 32)
    return [range(start, min(start + size, m)) for start in range(0, m, size)]

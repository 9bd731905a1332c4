"""The number of threads of client arithmetic, and work that threads share."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

Part = TypeVar("Part")


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_parts(work: Callable[[int, int], None], count: int, width: int) -> None:
    """Call ``work(start, stop)`` for the parts of ``width`` of 0 … count; threads share them, in any order."""
    parts = [(start, min(start + width, count)) for start in range(0, count, width)]
    threads = min(len(parts), cores())
    if threads <= 1:
        for start, stop in parts:
            work(start, stop)
        return
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work, start, stop) for start, stop in parts]:
            done.result()


def in_order(work: Callable[[int, int], Part], count: int, width: int) -> Iterator[Part]:
    """``work(start, stop)`` of the parts of ``width`` of 0 … count, in their order; threads share them.

    No more than one result per thread waits for its turn.
    """
    parts = deque((start, min(start + width, count)) for start in range(0, count, width))
    threads = min(len(parts), cores())
    if threads <= 1:
        yield from (work(start, stop) for start, stop in parts)
        return
    with ThreadPoolExecutor(threads) as pool:
        running = deque(pool.submit(work, *parts.popleft()) for _ in range(threads))
        while running:
            done = running.popleft().result()
            if parts:
                running.append(pool.submit(work, *parts.popleft()))
            yield done


@contextmanager
def single_thread() -> Iterator[None]:
    """Use one intra-op thread of torch within this context; the caller's setting is restored afterwards."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)

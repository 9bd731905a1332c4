"""The memory of a process and all its descendants, from /proc (Linux; elsewhere nothing is found)."""

from __future__ import annotations

from pathlib import Path

_PROC = Path("/proc")


def tree(pid: int) -> list[int]:
    """``pid`` and its living descendants."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.glob("[0-9]*/stat"):
        try:
            after = entry.read_text().rpartition(")")[2].split()  # the name in parentheses may hold anything
        except OSError:
            continue  # it has ended
        children.setdefault(int(after[1]), []).append(int(entry.parent.name))
    found, new = [pid], [pid]
    while new:
        new = [child for parent in new for child in children.get(parent, ())]
        found += new
    return found


def used(pid: int) -> tuple[int, int]:
    """Summed PSS and summed RSS of the tree of ``pid``, in bytes.

    PSS shares a page among the processes that map it, so its sum counts every page once.
    """
    pss = rss = 0
    for one in tree(pid):
        try:
            lines = (_PROC / str(one) / "smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            if line.startswith("Pss:"):
                pss += int(line.split()[1]) * 1024
            elif line.startswith("Rss:"):
                rss += int(line.split()[1]) * 1024
    return pss, rss

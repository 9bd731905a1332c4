"""A comparison of strategies over paired seeds, as a table of plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedalpha.history import History
from fedalpha.stats import interval, paired, rounds_text


def table(runs: Mapping[str, Sequence[History]], target: float) -> list[dict[str, Any]]:
    """One row per strategy: final accuracy, R_p and the paired difference to the first strategy.

    Accuracies are those of the final round, never of the best one; intervals are 95 % (Student t).
    Only seeds that every strategy has finished enter the differences.
    """
    reference = next(iter(runs.values()))
    rows = []
    for name, histories in runs.items():
        final = [float(h.accuracy[-1]) for h in histories]
        shared = min(len(final), len(reference))
        difference = paired(final[:shared], [float(h.accuracy[-1]) for h in reference[:shared]])
        reached = [h.rounds_to(target) for h in histories]
        limit = max((int(h.rows[-1]["round"]) for h in histories), default=0)
        rows.append(
            {
                "strategy": name,
                "seeds": len(histories),
                "accuracy": final,
                "rounds_to_target": reached,
                "accuracy_text": interval(final).text(2, 100),
                "rounds_text": rounds_text(reached, limit) if reached else "–",
                "difference_text": "reference" if histories is reference else difference.text(2, 100),
            }
        )
    return rows

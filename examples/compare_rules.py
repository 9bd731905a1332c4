"""Two rules and a hybrid on the same seeds: a table with intervals, pictures, and LaTeX for a paper."""

from pathlib import Path

import fedalpha
from fedalpha.data import Federation

OUT = Path("runs/examples/compared")


def of_seed(seed: int) -> Federation:
    """Every seed has a partition of its own; for one seed it is the same for all rules."""
    return fedalpha.federation("digits", partition="dirichlet(a=0.3)", clients=10, seed=seed)


comparison = fedalpha.compare(
    of_seed,
    ["FedAvg", "FedSoftWorse(T=0.2)", "FedSoftWorseAvg(T=0.2, at=5)"],
    seeds=3,
    rounds=8,
    target=0.6,
    progress=True,
)
print(comparison.table("markdown"))

for row in comparison.summary("accuracy"):
    print(f"{row.strategy:45} {row.text:>15}   difference to FedAvg: {row.difference_text}")

comparison.save(OUT)  # a folder per run; `fedalpha report` makes a page of it
(OUT / "table-for-the-paper.tex").write_text(comparison.table("latex"))
comparison.plot().savefig(OUT / "curves.png")
print(f"written to {OUT}")

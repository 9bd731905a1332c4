"""What compressed uploads cost and save: the study ``studies/uploads.toml``, and its table in docs/uploads.md.

``python -m benchmarks uploads --out docs/results/uploads --page docs/uploads.md`` runs the cells that the folder lacks,
one at a time, and writes the table. Methods of one seed see the same initial model, partition and batches; differences
are paired.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.pages import put
from fedalpha.report.findings import Findings, gather
from fedalpha.study import read_study, run_study

STUDY = Path(__file__).parents[1] / "studies" / "uploads.toml"
_HEADINGS = (
    "upload", "R_60 (rounds)", "MB sent by clients to 60 %", "of those of whole models", "MB both ways to 60 %",
    "accuracy after 30 rounds (%)", "difference to whole models (points)",
)  # fmt: skip


def run(out: Path, page: Path | None = None) -> str:
    """Run what is missing; returns the table, which is also put into ``page``."""
    run_study(read_study(STUDY), out, text=STUDY.read_text(), jobs=1)
    text = table(gather(out))
    if page is not None:
        put(page, "measured", text)
    return text


def table(found: Findings) -> str:
    """The results as Markdown: means over the seeds with 95 % intervals."""
    rounds, sent, both, accuracy = (found.summaries("")[name] for name in found.study.measures)
    texts = {method["name"]: f"{method['name']}: `{method['upload']}`" for method in found.study.methods}
    whole = sent[0].mean.mean
    lines = [f"| {' | '.join(_HEADINGS)} |", "|" + "---|" * len(_HEADINGS)]
    for r, s, b, a in zip(rounds, sent, both, accuracy, strict=True):
        share = f"{s.mean.mean / whole:.3f}" if not s.unreached else "–"
        cells = (texts.get(r.strategy, "whole models"), r.text, s.text, share, b.text, a.text, a.difference_text)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"

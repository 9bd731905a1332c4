"""Tables as plain rows, and the same rows as Markdown, LaTeX and CSV."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from fedalpha.analysis.comparison import Summary
from fedalpha.text import plain

STATISTICS = (
    "measure",
    "strategy",
    "seeds",
    "mean",
    "half_width_95",
    "median",
    "not_reached",
    "horizon",
    "no_answer",
    "reference",
    "difference",
    "difference_half_width_95",
    "difference_bound",
    "pairs",
    "p",
    "p_holm",
    "same_as",
)
"""The columns of `statistics`."""

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "−": r"$-$",
    "α": r"$\alpha$",
    "ρ": r"$\rho$",
    "π": r"$\pi$",
    "Π": r"$\Pi$",
    "–": "--",
    "\n": " ",
}


def statistics(row: Summary, reference: str) -> list[Any]:
    """The numbers of a summary, in the measure's own unit (accuracies are fractions)."""
    d = row.difference
    compared = [None] * 7 if d is None else [reference, d.mean, d.half, d.mark, d.n, d.p, row.p_holm]
    start = [str(row.measure), row.strategy, len(row.values), row.mean.mean, row.mean.half, row.median]
    return [*start, row.unreached, row.horizon, row.missing, *compared, row.same_as]


def number(value: Any) -> Any:
    """A value of `statistics` as a field of a CSV file: nothing where there is none, all digits of a float."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return repr(value) if isinstance(value, float) else value


def markdown_table(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *body]
    return "\n".join("| " + " | ".join(_one_line(cell) for cell in line) + " |" for line in lines)


def latex_table(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A table in LaTeX, for the package booktabs. The first column is text, the others are aligned to the right.

    >>> print(latex_table(["rule", "accuracy (%)"], [["FedWorse(k=0.1)", "88.1 ± 2.0"]]))
    \\begin{tabular}{lr}
    \\toprule
    rule & accuracy (\\%) \\\\
    \\midrule
    FedWorse(k=0.1) & 88.1 $\\pm$ 2.0 \\\\
    \\bottomrule
    \\end{tabular}
    """
    lines = [" & ".join(latex(cell) for cell in line) + r" \\" for line in (header, *body)]
    form = "l" + "r" * (len(header) - 1)
    parts = [rf"\begin{{tabular}}{{{form}}}", r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule"]
    return "\n".join([*parts, r"\end{tabular}"])


def latex(text: str) -> str:
    """A text for LaTeX; what would be a command is written as it reads.

    >>> latex("FedSoftBetter_x(T=20 %) ≥ 3")
    'FedSoftBetter\\\\_x(T=20 \\\\%) $\\\\geq$ 3'
    >>> latex("-1.5 ± 2")  # a hyphen would be shorter than a minus
    '$-$1.5 $\\\\pm$ 2'
    """
    signed = re.sub(r"(^|\s)-(?=\d)", r"\1−", plain(text, lines=True))
    return "".join(_LATEX.get(letter, letter) for letter in signed)


def p_text(p: float | None) -> str:
    """A p-value for people.

    >>> p_text(0.03124), p_text(1e-9), p_text(None)
    ('0.031', '< 0.001', '–')
    """
    if p is None or math.isnan(p):
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _one_line(cell: str) -> str:
    return markdown_text(cell).replace("\n", " ").replace("|", "\\|")


def markdown_text(text: str) -> str:
    r"""A text in Markdown: a name cannot open an HTML tag, a link or a picture, nor define what a link leads to.

    >>> print(markdown_text("<script>, [x](javascript:y), < 0.001"))
    &lt;script>, [x]\(javascript:y), < 0.001
    >>> print(markdown_text("![x][y] [y]: https://example.org"))
    ![x]\[y] [y]\: https:\//example.org
    """
    marked = re.sub(r"<(?=[A-Za-z/!?])", "&lt;", plain(text, lines=True))
    return re.sub(r"(?<=\])(?=[(\[:])|(?<=:)(?=//)|(?<=www)(?=\.)", r"\\", marked, flags=re.IGNORECASE)

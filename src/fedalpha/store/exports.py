"""Tables and figures for other programs: spreadsheets must not run what a table holds."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedalpha.store.files import write_atomically
from fedalpha.text import plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#b5179e", "#9c6b4e", "#9498a0")
"""Ten colours that can be distinguished, also side by side in a bar."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")
_NEXT = re.compile(r"([;\t])(?=\s*[=+@＝＋－＠-])")
"""Where a spreadsheet whose fields are not separated by commas would see another formula."""


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Rows as CSV. A text that a spreadsheet would take for a formula begins with an apostrophe.

    >>> csv_text([["case", "mean"], ["=HYPERLINK(1)", -0.5], ["lr=0.1", "-0.5"]]).splitlines()
    ['case,mean', "'=HYPERLINK(1),-0.5", 'lr=0.1,-0.5']
    >>> csv_text([["one;=two", "＝three"]]).strip()
    "one;'=two,'＝three"
    """
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([_harmless(cell) for cell in row] for row in rows)
    return out.getvalue()


def html_table(title: str, header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A small table for notebooks; every text is escaped."""
    tagged = [("th", header), *(("td", line) for line in body)]
    lines = [f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in line)}</tr>" for tag, line in tagged]
    return f"<div><p>{escape(title)}</p><table>{''.join(lines)}</table></div>"


def _harmless(cell: Any) -> Any:
    if not isinstance(cell, str):
        return cell
    if cell.lstrip().startswith(_FORMULA) or cell.startswith(_FORMULA):
        try:
            float(cell)
        except ValueError:
            cell = f"'{cell}"
        else:
            return cell
    return plain(_NEXT.sub(r"\1'", cell), lines=True)


@contextmanager
def texts_as_written() -> Iterator[None]:
    """What is drawn here shows texts as they are: a "$" begins no mathematics, and no LaTeX is run.

    A file ``matplotlibrc`` in the working directory, which may belong to another person, could ask for LaTeX with
    commands of its own.
    """
    from matplotlib import rc_context

    with rc_context({"text.parse_math": False, "text.usetex": False}):
        yield


def new_figure(width: float, height: float, **options: Any) -> Figure:
    """An empty figure that uses no global state of matplotlib. A notebook shows it, also without ``%matplotlib``."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    fig = _shown_in_notebooks()(figsize=(width, height), layout="constrained", **options)
    FigureCanvasAgg(fig)
    return fig


@cache
def _shown_in_notebooks() -> type[Figure]:
    from matplotlib.figure import Figure

    class Picture(Figure):
        """A figure that a notebook shows as a picture."""

        def _repr_png_(self) -> bytes:
            drawn = io.BytesIO()
            self.savefig(drawn, format="png")
            return drawn.getvalue()

    return Picture


def write_figure(fig: Figure, path: str | Path, root: Path | None = None, **options: Any) -> None:
    """Write a figure in the format that its name ends in (png without an ending), atomically."""
    path, drawn = Path(path), io.BytesIO()
    with texts_as_written():
        fig.savefig(drawn, format=path.suffix[1:] or "png", **options)
    write_atomically(path, drawn.getvalue(), root)

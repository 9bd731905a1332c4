"""A page about a comparison, from the folder that ``fedalpha compare --out`` or `Comparison.save` wrote."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from fedalpha.analysis.compared import RECORD, Comparison, run_name
from fedalpha.analysis.comparison import diverged_notes
from fedalpha.analysis.history import History
from fedalpha.analysis.plots import figure_of
from fedalpha.report.single import about, configuration, page_of, picture, table
from fedalpha.store import write_atomically
from fedalpha.store.files import own_size
from fedalpha.text import counted, shown


def is_comparison(folder: Path) -> bool:
    """Whether a folder holds a comparison."""
    return own_size(folder / RECORD) is not None


def write_comparison_report(folder: Path) -> Path:
    """Write ``report.html``. Returns its path."""
    found = Comparison.load(folder)
    try:
        page = comparison_page(found, _facts(found, folder))
    except (TypeError, KeyError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        raise ValueError(f"{folder} does not hold a comparison that can be shown: {shown(error)}") from None
    write_atomically(folder / "report.html", page.encode())
    return folder / "report.html"


def _facts(found: Comparison, folder: Path) -> list[str]:
    """The common settings of the runs, from the first run."""
    for strategy, by_seed in found.runs.items():
        for seed in by_seed:
            return about(configuration(folder / run_name(strategy, seed)), seed=False)
    return []


def comparison_page(found: Comparison, facts: Sequence[str] = ()) -> str:
    """The page as one file that needs no others; ``facts`` describe the runs."""
    header, body = found.rows
    notes = [f"{name}: {note}" for name, note in diverged_notes(found.curves).items()]
    runs = [
        [strategy, str(seed), *_end(history, found.target)]
        for strategy, by_seed in found.runs.items()
        for seed, history in by_seed.items()
    ]
    heads = ("strategy", "seed", "rounds", "accuracy", "loss", f"R_{100 * found.target:g}", "seconds")
    title = f"{counted(len(found), 'strategy', 'strategies')} on {counted(len(found.seeds), 'seed')}"
    histories = {strategy: list(by_seed.values()) for strategy, by_seed in found.runs.items()}
    pictures = picture(found.plot(), figure_of(histories, target=found.target, narrow=True))
    run = f"<p>{escape(', '.join(facts))}.</p>" if facts else ""
    text = (
        f"{run}<p>Mean ± 95 % over seeds (Student t); the final round.</p>{table(header, body)}"
        f"{''.join(f'<p>{escape(note)}</p>' for note in notes)}{pictures}<h2>Runs</h2>{table(heads, runs)}"
    )
    return page_of(title, text)


def _end(history: History, target: float) -> list[str]:
    """The end of a run in the cells of a line."""
    end = history.summary(target)
    values = (end["rounds"], end["accuracy"], end["loss"], end[f"R_{100 * target:g}"], end["seconds"])
    return [f"{v:.4g}" if isinstance(v, float) else "–" if v is None else str(v) for v in values]

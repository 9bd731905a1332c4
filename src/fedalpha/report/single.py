"""A page about one run, of a simulation or of a live federation, only from its folder."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedalpha.analysis.history import SAVED, History, Row, interrupted
from fedalpha.analysis.plots import figure_of
from fedalpha.analysis.shadows import shadow_summaries
from fedalpha.store import write_atomically
from fedalpha.store.files import CONFIG_BYTES, own_size, read_bytes
from fedalpha.text import counted, shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 100
"""Rounds and refusals on the page: the last ones."""
_STYLE = (
    ":root{color-scheme:light dark}"
    "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em}"
    "h1{font-size:1.5em;overflow-wrap:anywhere}img{max-width:100%;background:#fff;border-radius:4px}"
    "table{border-collapse:collapse;margin:1em 0;font-variant-numeric:tabular-nums}"
    "td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #8884;white-space:nowrap}"
    "td.text,th.text{text-align:left;white-space:normal}.scroll{overflow-x:auto}"
    # On a phone a row is a paragraph: its numbers stand beside the names of their columns.
    "@media(max-width:600px){img{width:100%}table,tbody,tr{display:block}"
    "tr:first-child{display:none}tr{padding:.3em 0;border-bottom:1px solid #8884}"
    "td{display:inline-block;padding:0 1em 0 0;border:0;text-align:left;white-space:normal}"
    "td::before{content:attr(data-head) ' ';opacity:.7}"
    "td.text{display:block;overflow-wrap:anywhere}td:empty{display:none}}"
)
_TEXTS = frozenset({"reason", "kept", "shadow rule", "strategy", "node"})
"""Columns of words; the others hold numbers."""
_POLICY = """<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">"""
_VIEW = '<meta name="viewport" content="width=device-width, initial-scale=1">'
_COLUMNS = ("round", "accuracy", "loss", "clients", "largest α", "refused", "bytes up", "seconds", "kept")


def is_run(folder: Path) -> bool:
    """Whether a folder holds a single run."""
    return own_size(folder / "history.jsonl") is not None and not (folder / "study.json").exists()


def write_run_report(folder: Path) -> Path:
    """Write ``report.html``. Returns its path."""
    write_atomically(folder / "report.html", run_page(folder).encode())
    return folder / "report.html"


def run_page(folder: Path, refresh: int = 0) -> str:
    """The page as one file that needs no others; it reloads itself every ``refresh`` seconds."""
    try:
        return _page(folder, refresh)
    except (TypeError, KeyError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        raise ValueError(f"{folder} does not hold a run that can be shown: {shown(error)}") from None


def _page(folder: Path, refresh: int) -> str:
    rows, config = _rows(folder), configuration(folder)
    title = escape(shown(config.get("strategy", folder.name)))
    known = (folder / "checkpoint").is_dir() or own_size(folder / SAVED) is not None
    done = known and not interrupted(folder)
    facts = [counted(rows[-1]["round"] if rows else 0, "round"), "finished" if done else "not finished"]
    facts += about(config)
    facts += ["a live federation"] if config.get("federation") == "flower" else []
    last = rows[-1] if rows else {}
    facts += [f"best model after round {last['best_round']}"] if "best_round" in last else []
    facts += [f"stopped early: {last['stopped']}"] if "stopped" in last else []
    curves = _picture(rows, shown(config.get("strategy", ""))) if len(rows) > 1 else ""
    body = (
        f"<p>{escape(', '.join(facts))}.</p>{curves}"
        f"{_shadows(rows, folder)}<h2>Rounds</h2>{table(_COLUMNS, [_cells(row) for row in rows[-SHOWN:]])}"
        f"<h2>Refusals</h2>{table(('round', 'client', 'node', 'reason'), _refusals(rows)[-SHOWN:])}"
    )
    return page_of(title, body, refresh)


def configuration(folder: Path) -> dict[str, Any]:
    """The content of ``config.json`` of a run folder; empty if there is none."""
    if own_size(folder / "config.json") is None:
        return {}
    found: dict[str, Any] = json.loads(read_bytes(folder / "config.json", most=CONFIG_BYTES))
    return found


def about(config: dict[str, Any], seed: bool = True) -> list[str]:
    """The data, the model and the local training of a run, if its configuration has short names for them.

    >>> about({"dataset": "digits", "clients": 20, "model": "mlp", "seed": 3})
    ['digits', '20 clients', 'mlp', 'seed 3']
    """
    parts = [part for part in (config, config.get("federation"), config.get("settings")) if isinstance(part, dict)]
    named = {name: value for part in parts for name, value in part.items()}
    found = [named[name] for name in ("dataset", "partition") if isinstance(named.get(name), str)]
    found += [counted(named["clients"], "client")] if isinstance(named.get("clients"), int) else []
    found += [named[name] for name in ("model", "update") if isinstance(named.get(name), str)]
    found += [f"seed {named['seed']}"] if seed and isinstance(named.get("seed"), int) else []
    return [shown(text) for text in found if "\n" not in text]  # a module of the user's own has many lines


def page_of(title: str, body: str, refresh: int = 0) -> str:
    """A page without scripts; ``title`` and ``body`` are HTML."""
    reload = f'<meta http-equiv="refresh" content="{refresh}">' if refresh else ""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{_VIEW}{_POLICY}{reload}<title>{title}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1>{body}</body></html>\n"
    )


def _rows(folder: Path) -> list[Row]:
    """The rows so far, without a last line that is incomplete because it is being written."""
    lines = read_bytes(folder / "history.jsonl").split(b"\n")[:-1]
    try:
        found = [json.loads(line) for line in lines]
        return [{**row, "round": int(row["round"])} for row in found]
    except (ValueError, TypeError, KeyError):
        raise ValueError(f"{folder / 'history.jsonl'} is not the history of a run") from None


def _cells(row: Row) -> list[str]:
    alpha = row.get("alpha") or []
    values = (
        row["round"],
        row.get("accuracy"),
        row.get("loss"),
        len(row.get("cohort") or []),
        max(alpha, default=None),
        len(row.get("refused") or []),
        row.get("bytes_up"),
        row.get("seconds"),
        row.get("kept") or "",
    )
    return [f"{v:.4g}" if isinstance(v, float) else "–" if v is None else str(v) for v in values]


def _shadows(rows: list[Row], folder: Path) -> str:
    """The weights of shadow rules; empty if there are none."""
    try:
        found = shadow_summaries(rows)
        lines = [
            [
                *(_figure(v) for v in (one.distance, one.last, one.effective_clients, one.applied)),
                str(one.missing),
                one.rule,
            ]
            for one in found
        ]
    except (KeyError, TypeError, AttributeError, ValueError):
        raise ValueError(f"{folder / 'history.jsonl'} is not the history of a run") from None
    heads = ("mean distance to α", "last", "effective clients", "applied", "rounds without weights", "shadow rule")
    return f"<h2>Shadow rules</h2>{table(heads, lines)}" if lines else ""


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _refusals(rows: list[Row]) -> list[list[str]]:
    return [
        [str(row["round"]), str(r["client"]), str((row.get("nodes") or {}).get(str(r["client"]), "")), str(r["reason"])]
        for row in rows
        for r in row.get("refused") or []
    ]


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that scrolls if the screen is too narrow."""
    if not rows:
        return "<p>None.</p>"
    held = [place for place in range(len(heads)) if any(row[place] for row in rows)]  # empty columns are left out
    kinds = {place: ' class="text"' if heads[place] in _TEXTS else "" for place in held}
    head = "".join(f"<th{kinds[place]}>{escape(heads[place])}</th>" for place in held)
    about = {place: f'{kinds[place]} data-head="{escape(heads[place])}"' for place in held}
    lines = ["".join(f"<td{about[place]}>{escape(row[place])}</td>" for place in held) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


def _picture(rows: list[Row], title: str) -> str:
    runs = {title or "run": [History(rows, {})]}
    return picture(figure_of(runs), figure_of(runs, narrow=True))


def picture(wide: Figure, narrow: Figure) -> str:
    """A figure as part of a page, and its form on a phone."""
    phone = f'<source media="(max-width:600px)" srcset="{_address(narrow)}">'
    return f'<picture>{phone}<img alt="accuracy and loss" src="{_address(wide)}"></picture>'


def _address(figure: Figure) -> str:
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=130)
    return f"data:image/png;base64,{base64.b64encode(drawn.getvalue()).decode()}"

"""A page about one run, of a simulation or of a live federation, from its folder alone."""

from __future__ import annotations

import base64
import json
import tempfile
from html import escape
from pathlib import Path
from typing import Any

from fedalpha.analysis.history import History, Row
from fedalpha.analysis.plots import plot_run
from fedalpha.analysis.shadows import shadow_summaries
from fedalpha.store import write_atomically
from fedalpha.store.files import CONFIG_BYTES, own_size, read_bytes
from fedalpha.text import shown

SHOWN = 100
"""Rounds and refusals on the page: the last ones."""
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em}img{max-width:100%}"
    "table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #ddd}"
    "td:last-child,th:last-child{text-align:left}.scroll{overflow-x:auto}"
)
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
    rows = _rows(folder)
    config: dict[str, Any] = {}
    if own_size(folder / "config.json") is not None:
        config = json.loads(read_bytes(folder / "config.json", most=CONFIG_BYTES))
    title = escape(shown(config.get("strategy", folder.name)))
    done = (folder / "checkpoint" / "finished").exists()
    facts = [f"{rows[-1]['round'] if rows else 0} rounds", "finished" if done else "not finished"]
    facts += ["a live federation"] if config.get("federation") == "flower" else []
    last = rows[-1] if rows else {}
    facts += [f"best model after round {last['best_round']}"] if "best_round" in last else []
    facts += [f"stopped early: {last['stopped']}"] if "stopped" in last else []
    picture = _picture(rows, shown(config.get("strategy", ""))) if len(rows) > 1 else ""
    reload = f'<meta http-equiv="refresh" content="{refresh}">' if refresh else ""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{_VIEW}{_POLICY}{reload}<title>{title}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1><p>{escape(', '.join(facts))}.</p>{picture}"
        f"{_shadows(rows, folder)}<h2>Rounds</h2>{_table(_COLUMNS, [_cells(row) for row in rows[-SHOWN:]])}"
        f"<h2>Refusals</h2>{_table(('round', 'client', 'node', 'reason'), _refusals(rows)[-SHOWN:])}</body></html>\n"
    )


def _rows(folder: Path) -> list[Row]:
    """The rows so far; a last line that is being written is left out."""
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
    """What shadow rules would have weighed; empty if there are none."""
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
    return f"<h2>Shadow rules</h2>{_table(heads, lines)}" if lines else ""


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _refusals(rows: list[Row]) -> list[list[str]]:
    return [
        [str(row["round"]), str(r["client"]), str((row.get("nodes") or {}).get(str(r["client"]), "")), str(r["reason"])]
        for row in rows
        for r in row.get("refused") or []
    ]


def _table(heads: tuple[str, ...], rows: list[list[str]]) -> str:
    if not rows:
        return "<p>None.</p>"
    head = "".join(f"<th>{escape(cell)}</th>" for cell in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


def _picture(rows: list[Row], title: str) -> str:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "curves.png"
        plot_run(History(rows, {}), path, title=title)
        content = base64.b64encode(path.read_bytes()).decode()
    return f'<img alt="accuracy and loss" src="data:image/png;base64,{content}">'

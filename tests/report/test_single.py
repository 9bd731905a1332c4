"""A page about one run: of a live federation as of a simulation, while it runs and afterwards."""

from __future__ import annotations

import json
import threading
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedalpha.cli import app
from fedalpha.report import live_server

ROWS = [
    {"round": 0, "accuracy": 0.1, "loss": 2.3, "cohort": None, "alpha": None, "refused": [], "kept": None},
    {
        "round": 1,
        "accuracy": None,
        "loss": None,
        "cohort": [3, 7],
        "alpha": [0.75, 0.25],
        "refused": [{"client": 9, "reason": "<script>alert(1)</script>"}],
        "nodes": {"9": "berlin"},
        "kept": None,
        "bytes_up": 10,
        "seconds": 1.5,
    },
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run that is being written: its last line is not complete."""
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    (tmp_path / "history.jsonl").write_text(lines + '{"round": 2, "acc')
    (tmp_path / "config.json").write_text(json.dumps({"federation": "flower", "strategy": "FedSoftWorse(T=0.2)"}))
    return tmp_path


def test_the_report_of_a_live_federation(folder: Path) -> None:
    found = CliRunner().invoke(app, ["report", str(folder)])
    assert found.exit_code == 0, found.output
    page = (folder / "report.html").read_text()
    assert "1 round, not finished, a live federation" in page
    assert "berlin" in page
    assert "<script>" not in page
    assert "data:image/png;base64," in page


def test_the_page_follows_the_run(folder: Path) -> None:
    server = live_server(folder)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        assert "1 round, " in urllib.request.urlopen(address).read().decode()
        with (folder / "history.jsonl").open("a") as rows:
            rows.write(f'uracy": 0.5}}\n{json.dumps({**ROWS[1], "round": 3})}\n')
        assert "3 rounds" in urllib.request.urlopen(address).read().decode()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_resume_explains_who_continues_it(folder: Path) -> None:
    for arguments in (["resume", str(folder)], ["run", str(folder / "config.json")]):
        found = CliRunner().invoke(app, arguments)
        assert found.exit_code != 0
        assert "live Flower federation" in str(found.exception) + found.output


def test_the_page_shows_what_was_watched(folder: Path) -> None:
    rule = "FedWorse(k=<2>)"
    weighed = {"alpha": [0.0, 1.0], "distance": 0.75, "effective_clients": 1.0, "heaviest": 1.0}
    row = {**ROWS[1], "effective_clients": 1.6, "best_round": 0, "stopped": "round >= 1", "shadow": {rule: weighed}}
    (folder / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (ROWS[0], row)))
    assert CliRunner().invoke(app, ["report", str(folder)]).exit_code == 0
    page = (folder / "report.html").read_text()
    assert "best model after round 0, stopped early: round &gt;= 1" in page
    heads = ("mean distance to α", "last", "effective clients", "applied", "rounds without weights")
    cells = zip(heads, ("0.75", "0.75", "1", "1.6", "0"), strict=True)
    line = "".join(f'<td data-head="{head}">{cell}</td>' for head, cell in cells)
    line += '<td class="text" data-head="shadow rule">FedWorse(k=&lt;2&gt;)</td>'
    assert line in page
    (folder / "history.jsonl").write_text(json.dumps({**row, "shadow": {rule: {}}}) + "\n")
    assert "not the history of a run" in str(CliRunner().invoke(app, ["report", str(folder)]).exception)

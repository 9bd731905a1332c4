"""The files of a report: complete, the same every time, and made of stored rows."""

from __future__ import annotations

import csv
import json
import re
import shutil
import urllib.error
import urllib.request
from pathlib import Path
from threading import Thread

import pytest
import scipy.stats
from typer.testing import CliRunner

from fedalpha.analysis.columns import numbers
from fedalpha.cli import app
from fedalpha.report import gather, live_server, write_report
from fedalpha.report.content import _label_counts, alphas, content, diagnostics
from fedalpha.study import study
from report.conftest import VALUES


def test_everything_is_written(shown: Path) -> None:
    names = {p.name for p in (shown / "figures").iterdir()}
    for stem in (
        "curves",
        "zoom-2-5",
        "R_60",
        "difference-accuracy",
        "difference-accuracy-2",
        "diagnostics",
        "alpha",
        "partition",
    ):
        assert {f"{stem}.svg", f"{stem}.png"} <= names
    text = (shown / "report.md").read_text()
    assert "| R_60 (rounds) | FedAvg | 3 |" in text
    assert "3.50 ± 0.50" in text  # the published figure beside ours
    assert "FedSoftBetterAvg(T=1, at=20) coincides with FedSoftBetter(T=1) on 3 of 3 seeds" in text
    for name in re.findall(r"\]\((.*?)\)", text):
        assert (shown / name).exists()


def test_the_page_needs_no_network(shown: Path) -> None:
    page = (shown / "report.html").read_text()
    assert not re.search(r"""(src|href)\s*=\s*["'](?!data:)""", page)
    assert "@import" not in page
    addresses = set(re.findall(r"https?://[^\s\"'<>]+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, not an address that is fetched
    assert "<title>Which &lt;rule> is first &amp; best?</title>" in page


def test_every_number_comes_from_stored_rows(shown: Path) -> None:
    """The statistics, recomputed from rounds.csv with scipy."""
    with (shown / "rounds.csv").open() as file:
        rows = list(csv.DictReader(file))
    with (shown / "statistics.csv").open() as file:
        found = {(r["measure"], r["strategy"]): r for r in csv.DictReader(file)}

    def final(strategy: str) -> list[float]:
        return [float(r["accuracy"]) for r in rows if r["strategy"] == strategy and r["round"] == "6"]

    for strategy in VALUES["strategies"]:
        line = found["accuracy", strategy]
        low = scipy.stats.ttest_1samp(final(strategy), 0).confidence_interval(0.95).low
        assert float(line["mean"]) - float(line["half_width_95"]) == pytest.approx(low)
        if strategy != "FedAvg":
            p = scipy.stats.ttest_rel(final(strategy), final("FedAvg")).pvalue
            assert float(line["p"]) == pytest.approx(p)
    assert found["accuracy", "FedSoftBetterAvg(T=1, at=20)"]["same_as"] == "FedSoftBetter(T=1)"


def test_the_same_rows_give_the_same_report(shown: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    kept = ("cells.parquet", "study.toml", "study.json")
    shutil.copytree(
        shown, clone, ignore=lambda where, names: [n for n in names if where == str(shown) and n not in kept]
    )
    write_report(clone)
    for path in sorted(shown.rglob("*")):
        if path.is_file() and "log" not in path.parts:
            assert (clone / path.relative_to(shown)).read_bytes() == path.read_bytes(), path.name


def test_alpha_is_laid_out_by_client(shown: Path) -> None:
    findings = gather(shown)
    result = findings.of("")["FedWorse"][0]
    matrix = alphas(result, 6)
    assert matrix.shape == (6, 6)
    for r in range(1, 7):
        cohort = result.columns["cohort"][r]
        assert len(cohort) == 4
        assert matrix[r - 1, cohort].sum() == pytest.approx(1)
        assert sum(v == v for v in matrix[r - 1]) == 4


def test_diagnostics_are_drawn_from_stored_rows(shown: Path) -> None:
    findings = gather(shown)
    panels = {panel["name"]: panel["lines"] for panel in content(findings)["cases"][0]["diagnostics"]}
    assert list(panels) == ["rho", "pi", "Pi", "effective_clients", "heaviest"]
    for place, strategy in enumerate(VALUES["strategies"]):
        results = findings.of("")[strategy].values()
        for name, lines in panels.items():
            assert lines[place]["strategy"] == strategy
            assert lines[place]["mean"][0] is None  # nothing was weighed before round 1
            expected = sum(r.columns[name][6] for r in results) / 3
            assert lines[place]["mean"][6] == pytest.approx(expected, abs=1e-6)
    fedavg, worse = panels["rho"][0]["mean"], panels["rho"][3]["mean"]
    assert fedavg[1:] == [1.0] * 6
    assert all(rho > 1 for rho in worse[1:])


def test_cells_without_diagnostics_still_have_a_report(shown: Path) -> None:
    runs = gather(shown).curves("")
    for by_seed in runs.values():
        for curve in by_seed.values():
            for name in [column.name for column in numbers() if column.panel]:
                del curve.columns[name]  # type: ignore[attr-defined]
    assert diagnostics(runs) == []


def test_an_unfinished_study_has_a_report(tmp_path: Path) -> None:
    from fedalpha.study import Store
    from fedalpha.study.runner import plan, to_toml

    found = study({**VALUES, "cases": [{"name": "a"}, {"name": "b", "clients": 3}]})
    Store(tmp_path).write_plan(to_toml(found), plan(found, found.cells()))
    write_report(tmp_path)
    assert "No finished cells yet." in (tmp_path / "report.md").read_text()
    facts = content(gather(tmp_path))["facts"]
    assert facts[1] == "0 of 24 cells done"
    assert "digits" in facts
    assert not any("clients" in fact for fact in facts)  # the cases differ in them


def test_a_folder_without_a_study_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no study\.json"):
        write_report(tmp_path)
    for folder, said in ((tmp_path, "holds none of study.json"), (tmp_path / "none", "is not a folder; give")):
        assert said in str(CliRunner().invoke(app, ["report", str(folder)]).exception)


def test_the_live_page_is_served_on_loopback_only(shown: Path) -> None:
    server = live_server(shown)
    assert server.server_address[0] == "127.0.0.1"
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        address = f"http://127.0.0.1:{server.server_address[1]}"
        assert json.load(urllib.request.urlopen(f"{address}/data.json"))["status"] == "12 of 12 cells; finished"
        for path, host in (("/cells", None), ("/", "evil.example")):
            request = urllib.request.Request(address + path, headers={"Host": host} if host else {})
            with pytest.raises(urllib.error.HTTPError):
                urllib.request.urlopen(request)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_port_that_is_taken_is_told(shown: Path) -> None:
    with live_server(shown) as server:
        port = server.server_address[1]
        with pytest.raises(RuntimeError, match=f"cannot serve on port {port}: .* choose another --port"):
            live_server(shown, port)


def test_a_partition_that_is_not_known_here_has_no_picture() -> None:
    assert _label_counts("digits", "somebodys_plugin", 4, 0, 0.0) is None


def test_axes_show_what_is_possible(shown: Path) -> None:
    """Intervals of two seeds may be wider than every accuracy; the axes of the pictures are not."""
    from fedalpha.report.figures import _across, _rows

    point = {"mean": 60.0, "half": 120.0, "reached": True, "text": ""}
    lines = [{"strategy": "FedAvg", "points": [point, point]}]
    item = {"name": "a", "title": "a", "cases": ["1", "2"], "axis": "", "ordered": True, "lines": lines}
    fig = _across({"colours": {"FedAvg": "#000000"}}, {**item, "within": [0, 100]})
    bottom, top = fig.axes[0].get_ylim()
    assert (bottom >= 0, top <= 100) == (True, True)
    row = {"strategy": "FedAvg", "mean": 1.0, "half": 200.0, "bound": ""}
    data = {"colours": {"FedAvg": "#000000"}, "reference": "FedAvg"}
    fig = _rows(data, {"title": "a", "items": [row], "unit": "", "within": [-100, 100]}, zero=True)
    left, right = fig.axes[0].get_xlim()
    assert (left >= -100, right <= 100) == (True, True)

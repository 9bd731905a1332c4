"""Cells from two processors in one study; another set of instructions stands for another processor."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from commands import fedalpha
from fedalpha.report import gather, write_report
from fedalpha.report.processors import NOT_RECORDED, mixed_pairs, processor_table, processors
from fedalpha.report.tables import results_table

STUDY = """
name = "two"
strategies = [{strategies}]
seeds = "{seeds}"
measures = ["accuracy"]
[settings]
model = "softmax"
rounds = 1
clients = 4
"""


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """FedAvg on seeds 0 and 1 with the plainest instructions, the rest as the machine is."""
    pytest.importorskip("pyarrow")
    place = tmp_path_factory.mktemp("processors")
    own = {name: value for name, value in os.environ.items() if name != "ATEN_CPU_CAPABILITY"}
    plain = {**own, "ATEN_CPU_CAPABILITY": "default"}
    for strategies, seeds, environment in (('"FedAvg"', "0-1", plain), ('"FedAvg", "FedWorse"', "0-2", own)):
        (place / "two.toml").write_text(STUDY.format(strategies=strategies, seeds=seeds))
        done = fedalpha("study", "two.toml", cwd=place, env=environment)
        assert done.returncode == 0, done.stderr
    assert "another processor than FedAvg on seeds 0, 1" in " ".join(done.stdout.replace("│", "").split())
    return place / "runs" / "two"


def test_cells_are_listed_by_processor(mixed: Path) -> None:
    findings = gather(mixed)
    plain, own = processors(findings)
    assert "ATEN_CPU_CAPABILITY=default" in plain
    assert "ATEN_CPU_CAPABILITY" not in own
    assert processor_table(findings, "")[1] == [
        [plain, "FedAvg", "0, 1"],
        [own, "FedAvg", "2"],
        [own, "FedWorse", "0-2"],
    ]


def test_strategies_whose_differences_mix_processors_are_marked(mixed: Path) -> None:
    findings = gather(mixed)
    assert mixed_pairs(findings, "") == {"FedWorse": [0, 1]}
    notes = {row[1]: row[-1] for row in results_table(findings, "")[1]}
    assert notes["FedAvg"] == ""
    assert notes["FedWorse"].endswith("another processor than FedAvg on seeds 0, 1")


def test_page_and_markdown_say_so(mixed: Path) -> None:
    html = write_report(mixed).read_text()
    text = (mixed / "report.md").read_text()
    assert '"processors":{"header":["processor","strategy","seeds"],"body":[["' in html
    assert "| processor | strategy | seeds |" in text
    assert "Cells ran on 2 processors" in text
    assert "another processor than FedAvg on seeds 0, 1" in text


def test_cells_without_a_recorded_processor_are_a_kind_of_their_own(mixed: Path) -> None:
    findings = gather(mixed)
    for cell in findings.cells:
        if cell.strategy == "FedWorse":
            del findings.results[cell.key].about["versions"]["processor"]
    assert NOT_RECORDED in processors(findings)
    assert mixed_pairs(findings, "") == {"FedWorse": [0, 1, 2]}
    for result in findings.results.values():
        result.about["versions"].pop("processor", None)
    assert processors(findings) == [NOT_RECORDED]
    assert processor_table(findings, "")[1] == []
    assert mixed_pairs(findings, "") == {}


def test_a_study_of_one_processor_has_no_such_table(shown: Path) -> None:
    assert processor_table(gather(shown), "")[1] == []
    assert "processor |" not in (shown / "report.md").read_text()
    assert (
        json.dumps({"header": ["processor", "strategy", "seeds"], "body": []}, separators=(",", ":"))
        in (shown / "report.html").read_text()
    )

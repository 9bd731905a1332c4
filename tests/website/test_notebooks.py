"""The notebooks: the shortest runs here, with its progress; ``make notebooks`` runs all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fedalpha

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
ALL = sorted(NOTEBOOKS.glob("*.ipynb"))
SHORTEST = NOTEBOOKS / "first_look.ipynb"


def outputs(path: Path) -> list[dict[str, Any]]:
    cells = json.loads(path.read_text())["cells"]
    return [output for cell in cells for output in cell.get("outputs", [])]


def test_the_shortest_runs_and_shows_tables_pictures_and_progress(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(fedalpha.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute"]
    done = subprocess.run(
        [*command, "--output-dir", str(tmp_path), str(SHORTEST)],
        env={**environment, "HOME": str(tmp_path), "JUPYTER_RUNTIME_DIR": str(tmp_path / "run")},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    shown = [output["data"] for output in outputs(tmp_path / SHORTEST.name) if "data" in output]
    assert sum("image/png" in data for data in shown) == 2
    html = ["".join(data["text/html"]) for data in shown if "text/html" in data]
    (progress,) = (text for text in html if "<progress" in text)  # one line, which was replaced as the run went on
    assert "round 10/10" in progress
    assert any("samples per client" in text for text in html)
    assert any("History(10 rounds" in text for text in html)


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_the_stored_outputs_are_those_of_a_whole_run(path: Path) -> None:
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert [output for output in outputs(path) if output["output_type"] == "error"] == []
    assert f"({path.name})" in (NOTEBOOKS / "README.md").read_text()
    assert 3 <= len(ALL) <= 5
    assert "/home/" not in path.read_text()
    assert "/work/" not in path.read_text()

"""Study folders and files that somebody else made."""

from __future__ import annotations

import json
import os
import re
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedalpha.report import write_report
from fedalpha.store import LinkError
from fedalpha.study import Store, read_study, run_study, status, study
from fedalpha.study.parquet_pages import announced
from fedalpha.study.seeds import parse_seeds

pyarrow = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402

SMALL = {
    "name": "small",
    "strategies": ["FedAvg", "FedSoftWorse(T=0.2)"],
    "seeds": 1,
    "settings": {"clients": 4, "model": "softmax", "rounds": 2},
}
LINKS = "![x](http://example.org/x.png) ![x][y]\n[y]: javascript:y"
EVIL = "=HYPERLINK(0)\x1b]52;c;cm0=\x07 <script>alert(1)</script> [x](javascript:y)"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study whose case has a hostile name."""
    folder = tmp_path_factory.mktemp("study") / "given"
    run_study(study({**SMALL, "title": LINKS, "note": f"{EVIL}\n{LINKS}", "cases": [{"name": EVIL}]}), folder, jobs=1)
    return folder


@pytest.fixture
def given(template: Path, tmp_path: Path) -> Path:
    import shutil

    return Path(shutil.copytree(template, tmp_path / "given"))


def test_figures_that_are_a_link_are_refused_and_nothing_is_deleted(given: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "precious.png").write_text("mine")
    (given / "figures").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LinkError, match="figures is a link"):
        write_report(given)
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["precious.png"]


@pytest.mark.parametrize("name", ["log", "cells", "cells.parquet", "study.json", "log/lock"])
def test_links_in_a_study_folder_are_not_followed(given: Path, tmp_path: Path, name: str) -> None:
    victim = tmp_path / "precious"
    if name in ("log", "cells"):
        victim.mkdir()
        (victim / ".x.1.tmp").write_text("mine")
        if (given / name).exists():
            (given / name).rename(tmp_path / "away")
    else:
        victim.write_text("mine")
        (given / name).unlink()
    (given / name).symlink_to(victim)
    with pytest.raises((LinkError, ValueError, RuntimeError), match="is a link"):
        run_study(study({**SMALL, "seeds": 2}), given, jobs=1)
    assert (victim / ".x.1.tmp" if victim.is_dir() else victim).read_text() == "mine"


def test_names_are_cleaned_for_terminals_tables_and_pages(given: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fedalpha.report import console_tables, gather

    page = write_report(given)
    console_tables(gather(given))
    assert "\x1b]" not in capsys.readouterr().out
    for name in ("statistics.csv", "rounds.csv"):
        text = (given / name).read_text()
        assert "\n'=HYPERLINK" in text
        assert "\n=HYPERLINK" not in text
    markdown = (given / "report.md").read_text()
    assert "<script" not in markdown
    assert not re.search(r"\][(\[:]", markdown.replace("](figures/", ""))  # our own pictures
    assert "://" not in markdown
    html = page.read_text()
    assert "<script>alert" not in html
    assert "Content-Security-Policy" in html
    assert not any("\x1b" in path.read_text() for path in (page, given / "report.md", given / "rounds.csv"))


def test_a_key_cannot_name_a_file_elsewhere(given: Path) -> None:
    plan = json.loads((given / "study.json").read_text())
    plan["cells"][0]["cell"] = "../../../etc/passwd"
    (given / "study.json").write_text(json.dumps(plan))
    with pytest.raises(ValueError, match=r"study.json is damaged: .* is not the key of a cell"):
        status(given)


@pytest.mark.parametrize(
    "change",
    [
        lambda plan: plan.update(cells=[{}]),
        lambda plan: plan.update(cells=3),
        lambda plan: plan["cells"][0].update(case=[]),
        lambda plan: plan["cells"][0]["settings"].update(rounds="many"),
        lambda plan: plan["cells"][0]["settings"].update(rounds=10**400),
        lambda plan: plan.update(study=[]),
        lambda plan: plan.pop("study"),
    ],
)
def test_a_forged_plan_is_a_short_error(given: Path, change: Any) -> None:
    plan = json.loads((given / "study.json").read_text())
    change(plan)
    (given / "study.json").write_text(json.dumps(plan))
    with pytest.raises(ValueError, match=r"study.json is damaged") as error:
        write_report(given)
    assert len(str(error.value)) < 1_000


def test_a_small_file_of_cells_cannot_take_all_memory(tmp_path: Path) -> None:
    texts = pyarrow.array(["x" * 4_000] * 100).dictionary_encode()
    columns = {
        "numbers": {"round": pyarrow.array(np.zeros(20_000_000, np.int64))},
        "texts": {"about": pyarrow.concat_arrays([texts] * 1_000)},
    }
    for name, more in columns.items():
        (column,) = more.values()
        key = pyarrow.DictionaryArray.from_arrays(np.zeros(len(column), np.int32), ["0" * 16])
        table = pyarrow.table({"cell": key, **more})
        table = table.replace_schema_metadata({"fedalpha": json.dumps({"format": 2})})
        file = tmp_path / name / "cells.parquet"
        file.parent.mkdir()
        parquet.write_table(table, file, compression="zstd")
        assert file.stat().st_size < 2**20
        before = pyarrow.total_allocated_bytes()
        del table, key
        with pytest.raises(ValueError, match=r"more than [0-9,]+ bytes of memory"):
            Store(file.parent).get("0" * 16)
        assert pyarrow.total_allocated_bytes() - before < 2**28


def test_one_row_of_a_small_file_cannot_take_all_memory(tmp_path: Path) -> None:
    """A list of 20 million equal values is one row, and some 100 bytes, also by the sizes in the file's metadata."""
    size = 20_000_000
    alpha = pyarrow.ListArray.from_arrays(pyarrow.array([0, size], pyarrow.int32()), np.zeros(size, np.float32))
    table = pyarrow.table({"cell": ["0" * 16], "alpha": alpha, "about": ["{}"]})
    table = table.replace_schema_metadata({"fedalpha": json.dumps({"format": 2})})
    parquet.write_table(table, tmp_path / "cells.parquet", compression="zstd")
    assert (tmp_path / "cells.parquet").stat().st_size < 2**12
    with pytest.raises(ValueError, match=r"it would take more than [0-9,]+ bytes of memory"):  # before it is decoded
        Store(tmp_path).get("0" * 16)


def test_pages_are_counted_as_they_announce_themselves() -> None:
    """With and without dictionaries, compression and pages of the second version; a cut or changed file is an error."""
    numbers = pyarrow.array([[1.0] * 7, [], [2.0] * 13], pyarrow.list_(pyarrow.float32()))
    table = pyarrow.table({"round": pyarrow.array([0, 1, 2], pyarrow.int64()), "alpha": numbers})
    for options in ({}, {"use_dictionary": False}, {"compression": "zstd", "data_page_version": "2.0"}):
        file = pyarrow.BufferOutputStream()
        parquet.write_table(table, file, **options)
        content = file.getvalue().to_pybytes()
        metadata = parquet.read_metadata(pyarrow.BufferReader(content))
        values = 8 * 3 + 4 * 21  # an empty list has a place of its own
        found = announced(content, 10**9)
        assert values < found < values + 64 * 4 + 300
        assert announced(content, 64) < found
        place = metadata.row_group(0).column(1).data_page_offset
        for change in (b"\0" * 30, b"\xff" * 30, b"\x1c" * 30):
            with pytest.raises((ValueError, KeyError, IndexError, TypeError)):
                announced(content[:place] + change + content[place + 30 :], 10**9)
        with pytest.raises(ValueError, match="no metadata"):
            announced(content[:-1], 10**9)


def test_seeds_and_grids_are_counted_before_they_are_made(tmp_path: Path) -> None:
    tracemalloc.start()
    for seeds in ("0-9999999999", "9999999999", "9" * 5_000):
        with pytest.raises(ValueError, match="seeds = ") as error:
            parse_seeds(seeds)
        assert len(str(error.value)) < 500
    grid = "".join(
        f"{key} = {list(range(1, 100))}\n" for key in ("lr", "epochs", "batch", "liars", "rounds", "clients")
    )
    (tmp_path / "study.toml").write_text(f'name = "x"\nstrategies = ["FedAvg"]\nseeds = 1\n[grid]\n{grid}')
    with pytest.raises(ValueError, match=r"the study has 941,480,149,401 cells; give at most 100,000"):
        read_study(tmp_path)
    published = '[[published]]\nmeasure = "accuracy"\nstrategy = "FedAvg"\nmean = 0.5\ncase = "x"\n'
    (tmp_path / "study.toml").write_text((tmp_path / "study.toml").read_text() + published)
    with pytest.raises(ValueError, match=r"the study has 941,480,149,401 cells; give at most 100,000"):
        read_study(tmp_path)
    assert tracemalloc.get_traced_memory()[1] < 2**25
    tracemalloc.stop()


def test_a_stored_grid_is_counted_before_it_is_made(given: Path) -> None:
    plan = json.loads((given / "study.json").read_text())
    grid = {key: list(range(1, 100)) for key in ("epochs", "batch", "liars", "rounds", "clients")}
    (given / "study.json").write_text(json.dumps({**plan, "study": {**plan["study"], "grid": grid}}))
    with pytest.raises(ValueError, match=r"the study has 9,509,900,499 cells; give at most 100,000"):
        status(given)
    (given / "study.json").write_text(json.dumps({**plan, "cells": [{}] * 100_001}))
    with pytest.raises(ValueError, match="it has more than 100,000 cells"):
        status(given)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
def test_a_pipe_does_not_block(given: Path) -> None:
    (given / "study.json").unlink()
    os.mkfifo(given / "study.json")
    with pytest.raises(ValueError, match="not a regular file"):
        status(given)


def test_a_saved_state_of_a_cell_must_be_one_of_its_run(given: Path) -> None:
    """It may name any architecture: one of a few bytes could take all memory."""
    from fedalpha.runs.saved_state import state_tree
    from fedalpha.store import Generations
    from fedalpha.study.halfway import beginning, half

    plan = study({**SMALL, "seeds": "7-7", "strategies": ["FedAvg"]})
    (cell,) = plan.cells()
    start = cell.settings.experiment().start()
    tree = state_tree(start)
    tree["broadcast"]["architecture"] = ("mlp(hidden=[100000, 100000])", (1, 8, 8), 10)
    states = Generations(half(Store(given), cell), given)
    states.save(1, {"state": {**tree, "round": 1}, "machines": []}, [{"round": 0}, {"round": 1}])
    assert beginning(Store(given), cell, None) is None
    assert run_study(plan, given, jobs=1).get(cell.key).last == cell.settings.rounds

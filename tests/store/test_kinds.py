"""Which command wrote a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedalpha.store.kinds import COMPARISON, RUN, STUDY, check_kind, kind_of


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ([], None),
        (["notes.txt"], None),
        (["config.json"], "run"),
        (["history.jsonl"], "run"),
        (["study.json"], "study"),
        (["tune.json"], "study"),
        (["comparison.json"], "comparison"),
        (["FedAvg-seed0/config.json"], "comparison"),
        (["first/config.json"], "set of runs"),
    ],
)
def test_a_folder_is_known_by_its_files(tmp_path: Path, files: list[str], kind: str | None) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert kind_of(tmp_path) == kind
    if kind == RUN:
        with pytest.raises(ValueError, match="holds a run; choose another folder for a study"):
            check_kind(tmp_path, "a study", RUN, COMPARISON)
    check_kind(tmp_path, "anything")
    if kind != STUDY:
        check_kind(tmp_path, "anything", STUDY)


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert kind_of(tmp_path / "none") is None

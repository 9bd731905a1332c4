"""What a folder of results holds, so that no command writes into the folder of another one."""

from __future__ import annotations

from pathlib import Path

RUN, STUDY, COMPARISON, RUNS = "run", "study", "comparison", "set of runs"


def kind_of(folder: Path) -> str | None:
    """A run, a study, a comparison, a set of runs, or nothing known."""
    if (folder / "config.json").exists() or (folder / "history.jsonl").exists():
        return RUN
    if (folder / "study.json").exists() or (folder / "tune.json").exists():
        return STUDY
    # One that was interrupted has no comparison.json yet; its runs are named by strategy and seed.
    if (folder / "comparison.json").exists() or any(folder.glob("*-seed*/config.json")):
        return COMPARISON
    return RUNS if any(folder.glob("*/config.json")) else None


def check_kind(folder: Path, what: str, *others: str) -> None:
    """Raise if the folder holds one of ``others``, whose files ``what`` would overwrite or stand among."""
    if (found := kind_of(folder)) in others:
        raise ValueError(f"{folder} holds a {found}; choose another folder for {what}")

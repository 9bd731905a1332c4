"""A short form of ``make fuzz`` with a fixed seed, and the inputs that were once findings or attacks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fuzzing.__main__ import Tally, try_inputs
from fuzzing.base import Target
from fuzzing.data import Pictures
from fuzzing.folders import Checkpoints
from fuzzing.replies import Replies
from fuzzing.targets import TARGETS
from fuzzing.texts import StudyFiles, Texts, Words

CORPUS = json.loads((Path(__file__).parent / "corpus.json").read_text())
NEEDS = {"cells (Parquet)": "pyarrow", "plans and logs (JSON)": "pyarrow", "Flower replies": "flwr"}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where targets write; what they change is put back."""
    monkeypatch.setattr("fedalpha.study.plan.MOST_CELLS", 60)
    monkeypatch.setattr("fedalpha.data.sets.cifar10._BATCH", 2)
    for kind in (Checkpoints, Replies, Pictures):
        monkeypatch.setattr(kind, "errors", kind.errors)
    return tmp_path


def made(kind: type[Target], place: Path) -> Target:
    if kind.name in NEEDS:
        pytest.importorskip(NEEDS[kind.name])
    if issubclass(kind, StudyFiles):
        pytest.importorskip("tomli_w")
    return kind(place)


@pytest.mark.parametrize("kind", TARGETS, ids=lambda kind: kind.name)
@pytest.mark.filterwarnings("ignore")
def test_changed_inputs_are_accepted_or_refused(kind: type[Target], place: Path) -> None:
    """Never another error, a long one, or one that could steer a terminal."""
    tally = Tally(kind.name)
    count = max(250, 40 * kind.share)
    try_inputs(made(kind, place), 20, 0, count, tally)
    assert tally.findings == []
    assert tally.past > count / 4  # they get past the first check
    assert tally.accepted > 0


@pytest.mark.parametrize("kind", TARGETS, ids=lambda kind: kind.name)
@pytest.mark.filterwarnings("ignore")
def test_inputs_of_the_corpus(kind: type[Target], place: Path) -> None:
    target = made(kind, place)
    for text in CORPUS.get(kind.name, []):
        if kind is Words:
            for way in range(3):
                target.tried((way, text))
        elif kind is Texts:
            for registry in range(len(target.registries)):  # type: ignore[attr-defined]
                target.tried((registry, text))
        else:
            target.tried(text.encode(errors="surrogatepass") if kind.name.startswith("histories") else text)
    for content in CORPUS.get(f"{kind.name} (hex)", []):
        target.tried(bytes.fromhex(content))

"""A short form of ``make fuzz`` with a fixed seed, and the inputs that were once findings or attacks."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import fedalpha
from fuzzing.__main__ import Tally, try_inputs
from fuzzing.base import Target
from fuzzing.data import Pictures
from fuzzing.folders import Checkpoints, Histories
from fuzzing.replies import Replies, Uploads
from fuzzing.secure import SecureMessages
from fuzzing.targets import TARGETS
from fuzzing.texts import StudyFiles, Texts, Words

CORPUS = json.loads((Path(__file__).parent / "corpus.json").read_text())
NEEDS = {
    **{"cells (Parquet)": "pyarrow", "plans and logs (JSON)": "pyarrow", "Flower replies": "flwr"},
    "compressed uploads": "flwr",
    "messages of secure sums": "cryptography",
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where targets write; what they change is put back."""
    monkeypatch.setattr("fedalpha.study.plan.MOST_CELLS", 60)
    monkeypatch.setattr("fedalpha.data.sets.cifar10._BATCH", 2)
    if find_spec("pyarrow"):
        monkeypatch.setattr("fedalpha.study.tables._FREE", 2**16)
    for kind in (Checkpoints, Replies, Uploads, Pictures, SecureMessages):
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


def test_the_functions_whose_branches_are_counted_are_there() -> None:
    root = Path(fedalpha.__file__).parent
    for kind in TARGETS:
        for file, names in kind.readers.items():
            known = {name for name, _ in functions(ast.parse((root / file).read_text()))}
            assert set(names) <= known, (kind.name, file)


def functions(tree: ast.AST, before: str = "") -> Iterator[tuple[str, ast.AST]]:
    """The functions of a file by their qualified names, as coverage.py writes them."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield f"{before}{node.name}", node
            yield from functions(node, f"{before}{node.name}.")
        else:
            yield from functions(node, before)


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
            history = {"history.jsonl": text.encode(errors="surrogatepass")}, False
            target.tried(history if kind is Histories else text)
    for content in CORPUS.get(f"{kind.name} (hex)", []):
        target.tried(bytes.fromhex(content))

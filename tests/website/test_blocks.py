"""Every code block of README and the documentation runs; ``make blocks`` runs them in full."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from website.blocks import blocks, commands, pages, small

ROOT = Path(__file__).parents[2]


def test_every_block_runs_on_little_data() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "website.blocks"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    ran = {line.split()[1].rstrip(",") for line in done.stdout.splitlines() if line.startswith("ran: ")}
    with_code = {page for page in pages() if any(not block.reason for block in blocks(page))}
    assert ran == with_code
    assert len(ran) > 25


def test_at_most_five_blocks_are_exempt_and_each_says_why() -> None:
    exempt = {f"{block.page}:{block.line}": block.reason for page in pages() for block in blocks(page) if block.reason}
    assert len(exempt) <= 5, exempt
    assert all(len(reason) > 10 for reason in exempt.values())


def test_every_block_has_a_language() -> None:
    bare = [f"{block.page}:{block.line}" for page in pages() for block in blocks(page) if not block.language]
    assert bare == [], "write ```text for output"


def test_extras_are_added_without_replacing_an_editable_install() -> None:
    """``pip install ".[studies]"`` would replace it by a copy; ``pip install "fedalpha[studies]"`` keeps it."""
    given = {page: [c for b in blocks(page) if b.language == "sh" for c in commands(b.code)] for page in pages()}
    local = {page for page, found in given.items() for c in found if c[:2] == ["pip", "install"] and c[2][0] == "."}
    assert local == {"docs/tutorial/index.md"}
    assert 'pip install ".[' not in (ROOT / "README.md").read_text()


def test_commands_are_made_small() -> None:
    text = 'fedalpha run --dataset mnist --model cnn \\\n  --clients 100 --strategy "FedWorse(k=1)"  # a note\n'
    (found,) = commands(text)
    assert found[1:7] == ["run", "--dataset", "mnist", "--model", "cnn", "--clients"]
    words = ["run", "--dataset", "digits", "--model", "softmax", "--clients", "20", "--strategy", "FedWorse(k=1)"]
    assert small(found[1:]) == [*words, "--rounds", "2", "--workers", "1"]

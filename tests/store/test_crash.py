"""SIGKILL at random instants and at steps of the save path; `make crash` does it 200 times and at every step."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

DRIVER = Path(__file__).parent.parent / "crash.py"


def test_killed_runs_end_in_the_same_bytes() -> None:
    ran = subprocess.run(
        [sys.executable, str(DRIVER), "--kills", "5", "--every", "29"], capture_output=True, text=True, timeout=900
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["wrong"] == 0
    assert found["random_kills"] == 5
    assert found["step_kills"] >= 8
    assert found["drawing_kills"] == 3

"""What an engine starts listens on loopback alone: whoever can reach a Ray cluster can run code in it."""

from __future__ import annotations

import ipaddress
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray")
pytest.importorskip("flwr")

LISTENERS = """
import json, sys
import fedalpha
from fedalpha.runs.callbacks import Callback

class Look(Callback):
    found = []

    def on_round(self, row, state):
        import ray, psutil  # Ray brings its own psutil
        here = psutil.Process()
        for process in (here, *here.children(recursive=True)):
            try:
                sockets = process.net_connections("inet")
            except psutil.Error:
                continue
            self.found += [[process.name(), s.laddr.ip] for s in sockets if s.status == psutil.CONN_LISTEN]

digits = fedalpha.federation("digits", partition="iid", clients=2)
for engine in sys.argv[1:]:
    fedalpha.run(digits, "softmax", rounds=1, engine=engine, callbacks=[Look()])
print(json.dumps(Look.found))
"""


def test_engines_that_we_start_listen_on_loopback_alone_and_run_no_code_of_the_working_directory(
    tmp_path: Path,
) -> None:
    """Ray would let its workers import from the working directory, which may be somebody else's folder."""
    script, given = tmp_path / "ours" / "look.py", tmp_path / "given"
    script.parent.mkdir()
    script.write_text(LISTENERS)
    given.mkdir()
    for module in ("numpy", "torch", "psutil"):
        (given / f"{module}.py").write_text(f"open({str(given / 'ran')!r}, 'w')\n")
    words = [sys.executable, str(script), "flower(workers=1)", "ray(workers=1)"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, cwd=given)
    assert done.returncode == 0, done.stderr
    assert not (given / "ran").exists()
    found = json.loads(done.stdout.splitlines()[-1])
    assert any("gcs" in name for name, _ in found)
    addresses = {ipaddress.ip_address(address) for _, address in found}
    elsewhere = [a for a in addresses if not (getattr(a, "ipv4_mapped", None) or a).is_loopback]
    assert not elsewhere

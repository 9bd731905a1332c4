"""The peers, and an environment for each that needs packages of its own.

Peers that use torch see the torch that runs this library, through a ``.pth`` file: every contestant computes with
the same build, and pip cannot choose another. Their own packages are pinned and come first on the path.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

SCRIPTS = Path(__file__).parent / "peers"
ROOT = Path(__file__).parents[2]
"""The folder from which ``benchmarks`` is imported: the checkout."""


class Unavailable(RuntimeError):  # noqa: N818 - it says what happened
    """A peer cannot be installed here; the message says why."""


@dataclass(frozen=True)
class Peer:
    """A contestant that is not this library. ``installs``: it has its own packages, and so its own environment."""

    name: str
    title: str
    workloads: str
    installs: bool = False
    torch: bool = True
    by_hand: bool = False
    """Tuned for one workload by hand: a reference, not a framework."""

    @property
    def script(self) -> Path:
        return SCRIPTS / f"run_{self.name}.py"

    @property
    def requirements(self) -> Path:
        return SCRIPTS / f"{self.name}.txt"


PEERS: Mapping[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer("plain", "plain PyTorch loop, 2 threads", "AB"),
        Peer("pfl", "pfl 0.6.0", "AB", installs=True),
        Peer("fedlab", "FedLab 1.3.0", "AB", installs=True),
        Peer("flower", "Flower 1.41 simulation (Ray)", "AB", installs=True),
        Peer("fedjax", "FedJAX 0.0.17", "AB", installs=True, torch=False),
        Peer("tuned", "hand-tuned: 2 processes × 1 thread, channels last, pooling before ReLU", "A", by_hand=True),
        Peer("batched", "hand-batched over clients: bmm in chunks of 50, 2 threads", "B", by_hand=True),
    )
}


def python_of(peer: Peer, cache: Path, say: Callable[[str], None] = print) -> str:
    """The interpreter that runs ``peer``; its environment is created at first use and when its pins change."""
    if not peer.installs:
        return sys.executable
    folder = cache / peer.name
    python, done = folder / "bin" / "python", folder / "installed.txt"
    wanted = "\n".join([peer.requirements.read_text(), sys.version, _torch_folder() if peer.torch else ""])
    if done.exists() and done.read_text() == wanted:
        return str(python)
    say(f"installing {peer.title} into {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    constraints = folder / "constraints.txt"
    _call([sys.executable, "-m", "venv", "--clear", str(folder)], peer)
    constraints.write_text(f"torch=={importlib.metadata.version('torch').split('+')[0]}\n")
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "-q", "--no-deps"]
    _call([*pip, "-c", str(constraints), "-r", str(peer.requirements)], peer)
    if peer.torch:
        (packages,) = folder.glob("lib/python*/site-packages")
        (packages / "torch-of-fedalpha.pth").write_text(_torch_folder() + "\n")
    done.write_text(wanted)
    return str(python)


def _torch_folder() -> str:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise Unavailable("torch is not installed; pip install fedalpha installs it")
    return str(Path(spec.origin).parent.parent)


def _call(command: list[str], peer: Peer) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{peer.title} could not be installed: {error}") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "WARNING" not in line and line.strip()]
        raise Unavailable(f"{peer.title} could not be installed: {' '.join(lines[-3:])[:300]}")

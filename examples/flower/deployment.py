"""A Flower federation on this machine: a SuperLink, SuperNodes, and everything stopped again.

Nothing leaves the machine: loopback addresses, telemetry and update checks off, no installer, and
Flower's own files in a folder of this deployment. With ``tls`` every connection is encrypted and only
nodes whose key was registered are let in.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from keys import make_certificates, make_node_key

HERE = Path(__file__).resolve().parent
NAME = "loopback"


class Deployment:
    """``with Deployment(folder, nodes=3) as flower: flower.run({"strategy": "FedWorse(k=1)"})``."""

    def __init__(self, folder: str | Path, nodes: int, *, tls: bool = False, app: str | Path = HERE / "app") -> None:
        self.folder = Path(folder).resolve()
        self.nodes = nodes
        self.tls = tls
        self.app = Path(app).resolve()
        self.port = self.node_port = free_port()
        self.link_options: list[str] = []
        """Further options of the SuperLink."""
        self.superlink: subprocess.Popen[bytes]
        self.supernodes: list[subprocess.Popen[bytes]] = []
        self.environment = {
            **os.environ,
            # Flower starts its own commands by name: those installed beside this Python come first.
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
            "FLWR_HOME": str(self.folder / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
            "OMP_NUM_THREADS": "1",
        }

    def __enter__(self) -> Deployment:
        home = self.folder / "flwr"
        home.mkdir(parents=True, exist_ok=True)
        security = "insecure = true"
        if self.tls:
            make_certificates(self.folder / "certificates")
            security = f"root-certificates = {json.dumps(str(self.folder / 'certificates' / 'ca.crt'))}"
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "{NAME}"\n[superlink.{NAME}]\naddress = "127.0.0.1:{self.port}"\n{security}\n'
        )
        try:
            self.start_superlink()
            for node in range(self.nodes):
                if self.tls:
                    self.register(make_node_key(self.folder / "certificates", f"node{node}"), f"node{node}")
                self.supernodes.append(self.start_supernode(node))
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start_superlink(self) -> None:
        """Start the SuperLink and wait until it listens; its database outlives it."""
        command = ["flower-superlink", "--host", "127.0.0.1", "--port", str(self.port)]
        command += [
            *self.link_options,
            "--database",
            str(self.folder / "state.db"),
            "--disable-runtime-dependency-installation",
        ]
        if self.tls:
            files = self.folder / "certificates"
            command += ["--ssl-ca-certfile", str(files / "ca.crt"), "--ssl-certfile", str(files / "server.pem")]
            command += ["--ssl-keyfile", str(files / "server.key"), "--enable-supernode-auth"]
        else:
            command += ["--insecure"]
        self.superlink = self._start(command, "superlink")
        end = time.monotonic() + 600  # on a busy machine; if it ends, that is noticed at once
        while not listening(self.port):
            if self.superlink.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the SuperLink did not start; see {self.folder / 'superlink.log'}")
            time.sleep(0.2)

    def start_supernode(self, node: int, key: Path | None = None, config: str = "") -> subprocess.Popen[bytes]:
        """Start the SuperNode of client ``node``; ``config`` replaces its usual ``--node-config``."""
        command = ["flower-supernode", "--superlink", f"127.0.0.1:{self.node_port}"]
        command += ["--host", "127.0.0.1", "--port", str(free_port())]
        command += ["--node-config", config or f"partition-id={node} num-partitions={self.nodes}"]
        if self.tls:
            files = self.folder / "certificates"
            command += ["--root-certificates", str(files / "ca.crt")]
            command += ["--auth-supernode-private-key", str(key or files / f"node{node}")]
        else:
            command += ["--insecure"]
        return self._start(command, f"supernode{node}")

    def register(self, public_key: Path, name: str) -> None:
        """Let a node in."""
        self.flwr("supernode", "register", str(public_key), NAME, "--name", name)

    def run(self, config: dict[str, Any]) -> str:
        """Run the app with these settings and wait for its end; an error if it fails."""
        id = self.submit(config)
        status = self.wait(id)
        if status != "finished:completed":
            raise RuntimeError(f"run {id} ended as {status}; see {self.folder / 'superlink.log'}")
        return id

    def submit(self, config: dict[str, Any]) -> str:
        """Start a run; its id."""
        settings = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        found = self.flwr("run", str(self.app), NAME, "-c", settings, "--format", "json")
        return str(json.loads(found[found.index("{") :])["run-id"])

    def status(self, id: str) -> str:
        found = self.flwr("list", NAME, "--run-id", id, "--format", "json")
        return str(json.loads(found[found.index("{") :])["runs"][0]["status"])

    def wait(self, id: str, seconds: float = 1800) -> str:
        """Wait for the end of a run; its last status. (Its log is streamed: polling by `flwr` costs seconds each.)"""
        command = [executable("flwr"), "log", id, NAME, "--stream"]
        with (self.folder / f"run-{id}.log").open("ab") as log:
            subprocess.run(command, env=self.environment, stdout=log, stderr=log, timeout=seconds)
        pause = 1.0
        while not (status := self.status(id)).startswith("finished"):
            time.sleep(pause)
            pause = min(2 * pause, 15.0)
        return status

    def flwr(self, *arguments: str) -> str:
        """Flower's command line, with this deployment's configuration."""
        command = [executable("flwr"), *arguments]
        found = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        if found.returncode:
            raise RuntimeError(f"flwr {' '.join(arguments)} failed:\n{found.stdout}{found.stderr}")
        return found.stdout

    def server_apps(self) -> list[int]:
        """The processes of running server apps."""
        return [id for id in descendants(self.superlink.pid) if "flwr-serverapp" in command_line(id)]

    def stop(self) -> None:
        """Stop everything that was started, by process id."""
        for process in [*self.supernodes, *([self.superlink] if hasattr(self, "superlink") else [])]:
            stop(process)
        self.supernodes.clear()

    def _start(self, command: list[str], name: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [executable(command[0]), *command[1:]],
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
            )


def stop(process: subprocess.Popen[bytes], kind: int = signal.SIGTERM) -> None:
    """Stop a process and all that it has started."""
    family = descendants(process.pid)
    if process.poll() is None:
        process.send_signal(kind)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for id in family:
        with contextlib.suppress(ProcessLookupError):
            os.kill(id, signal.SIGKILL)


def descendants(root: int) -> list[int]:
    """Children, grandchildren … of a process."""
    children: dict[int, list[int]] = {}
    for id, parent in _parents():
        children.setdefault(parent, []).append(id)
    found, open_ = [], [root]
    while open_:
        new = children.get(open_.pop(), [])
        found += new
        open_ += new
    return found


def _parents() -> Iterator[tuple[int, int]]:
    if Path("/proc/self/stat").exists():
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                yield int(path.parent.name), int(path.read_text().rsplit(")", 1)[1].split()[1])
    else:
        listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
        for line in listed.splitlines():
            id, parent = line.split()
            yield int(id), int(parent)


def command_line(id: int) -> str:
    if Path("/proc/self/cmdline").exists():
        with contextlib.suppress(OSError):
            return Path(f"/proc/{id}/cmdline").read_text().replace("\0", " ")
        return ""
    return subprocess.run(["ps", "-p", str(id), "-o", "command="], capture_output=True, text=True).stdout


def executable(name: str) -> str:
    """A command that was installed beside this Python."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise RuntimeError(f"{name} is not installed: pip install 'fedalpha[flower]'")
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0

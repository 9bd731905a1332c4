"""``fedalpha`` on the command line, as a process of its own that need not import everything first.

A server process imports the package once and forks a child per command, whose arguments, folder, environment, output
and exit code are its own. A variable that is read while packages are imported needs a new interpreter and gets one.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import traceback
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import fedalpha as package

COMMAND = [sys.executable, "-m", "fedalpha"]
LATE = {"COLUMNS", "FEDALPHA_DATA", "FEDALPHA_STATE", "NO_COLOR"}
"""Variables that are read when they are needed, so that a forked child obeys them."""
WRITTEN = ("PYTEST_", "TORCHINDUCTOR_")
"""Beginnings of the names of variables that pytest and torch write by themselves, also while a fixture is made."""
LIMIT = 1800
MODULES = (
    *("matplotlib.backends.backend_agg", "matplotlib.figure", "numba", "pandas", "pyarrow.parquet"),
    *("safetensors.torch", "scipy.stats", "sklearn.datasets"),
)
"""Imported beforehand, with all of the package but Flower; missing ones are left to the commands."""


def fedalpha(
    *arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    server, born = _server()
    wanted = dict(os.environ if env is None else env)
    ours = {name for name in born.keys() | wanted.keys() if not name.startswith(WRITTEN)} - LATE
    command = [*COMMAND, *arguments]
    if any(born.get(name) != wanted.get(name) for name in ours):
        return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, cwd=cwd, env=wanted)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("stdout", "stderr")]
        order = {
            "arguments": arguments,
            "cwd": str(cwd or Path.cwd()),
            "environment": wanted,
            "files": [str(file) for file in files],
        }
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(order) + "\n")
        server.stdin.flush()
        if not select.select([server.stdout], [], [], LIMIT)[0]:
            os.killpg(server.pid, signal.SIGKILL)  # with the command
            _server.cache_clear()
            raise subprocess.TimeoutExpired(command, LIMIT)
        status = int(server.stdout.readline())
        return subprocess.CompletedProcess(command, status, *(file.read_text() for file in files))


@cache
def _server() -> tuple[subprocess.Popen[str], dict[str, str]]:
    """The server, and the environment with which it was started."""
    born = dict(os.environ)
    server = subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=born,
        start_new_session=True,
    )
    assert server.stdin is not None
    atexit.register(server.stdin.close)  # its end
    return server, born


def serve() -> None:
    """Fork a child per line of standard input, and answer with its exit code."""
    for name in MODULES:
        with suppress(ImportError):
            importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, "fedalpha."):
        if not module.name.endswith("__main__") and ".flower" not in module.name:
            with suppress(ImportError):  # an extra is missing, such as numba
                importlib.import_module(module.name)
    while line := sys.stdin.readline():
        order = json.loads(line)
        pid = os.fork()
        if not pid:
            _become(order)
            _run()
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _run() -> NoReturn:
    """Run the command and end the process, without taking the interpreter apart (a second, for nothing)."""
    code: Any = 1
    try:
        runpy.run_module("fedalpha", run_name="__main__")
        code = 0
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
    if isinstance(code, str):
        print(code, file=sys.stderr)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def _become(order: dict[str, object]) -> None:
    """Take the arguments, the folder, the environment and the output of a command."""
    arguments, files, environment = order["arguments"], order["files"], order["environment"]
    assert isinstance(arguments, list)
    assert isinstance(files, list)
    assert isinstance(environment, dict)
    for target, file in enumerate(["/dev/null", *files]):
        place = os.open(file, os.O_RDONLY if target == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(place, target)
        os.close(place)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(str(order["cwd"]))
    sys.argv[:] = ["fedalpha", *arguments]
    sys.path[0] = ""


if __name__ == "__main__":
    serve()

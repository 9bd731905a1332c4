"""The whole suite with other versions, processors and threads, and a table of what passed: ``make matrix``.

``python tests/matrix.py`` runs every setting one after the other (hours), ``python tests/matrix.py 3.13`` those whose
name contains "3.13". The newest versions within the ranges of pyproject.toml are installed for each Python in an
environment of its own, in the user's cache. With pyenv, name the versions: ``PYENV_VERSION=3.11.7:3.12.1:3.13.0``.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from platformdirs import user_cache_path

from portability.machines import HERE, MACHINES, Machine, processor, threads

ROOT = Path(__file__).parents[1]
PACKAGES = ("torch", "numpy", "scipy", "numba")
VERSIONS = f"""
import json, platform
from importlib.metadata import version
print(json.dumps([platform.python_version(), *map(version, {PACKAGES})]))
"""


@dataclass(frozen=True)
class Setting:
    """A machine to run the suite on, with the pinned versions of this environment or the newest of a Python."""

    machine: Machine
    python: str | None = None

    @property
    def name(self) -> str:
        return self.machine.name if self.python is None else f"Python {self.python}, newest versions"

    def interpreter(self, folder: Path) -> Path:
        """Python with the packages; what is newest is looked up every time."""
        if self.python is None:
            return Path(sys.executable)
        place = folder / self.python
        if not place.exists():
            subprocess.run([f"python{self.python}", "-m", "venv", str(place)], check=True)
        install = ["install", "--disable-pip-version-check", "-q", "--upgrade", "--upgrade-strategy", "eager"]
        subprocess.run([place / "bin/python", "-m", "pip", *install, "-e", f"{ROOT}[dev]"], check=True)
        return place / "bin/python"


SETTINGS = (
    Setting(HERE),
    *(Setting(Machine(f"OMP_NUM_THREADS={count}", threads(count))) for count in (1, 2, 4)),
    *(Setting(machine) for machine in MACHINES),
    *(Setting(HERE, python) for python in ("3.12", "3.13")),
)


@dataclass(frozen=True)
class Outcome:
    """What a setting gave: versions, counts and the tests that failed; or why it was not run."""

    name: str
    versions: Sequence[str] = ()
    passed: int = 0
    failed: Sequence[str] = ()
    skipped: int = 0
    minutes: float = 0.0
    reason: str = ""

    def row(self) -> str:
        if self.reason:
            return f"| {self.name} | {' | '.join(['–'] * (1 + len(PACKAGES)))} | not run: {self.reason} | | | |"
        counts = (f"{self.passed:,}", str(len(self.failed)), str(self.skipped), f"{self.minutes:.0f}")
        return "| " + " | ".join((self.name, *self.versions, *counts)) + " |"


def tried(setting: Setting, folder: Path, arguments: Sequence[str]) -> Outcome:
    """Run the suite under a setting."""
    if lacking := setting.machine.needs - processor()[1]:
        return Outcome(setting.name, reason=f"this processor lacks {', '.join(sorted(lacking))}")
    try:
        python = setting.interpreter(folder)
    except (OSError, subprocess.CalledProcessError) as error:
        return Outcome(setting.name, reason=str(error))
    with tempfile.TemporaryDirectory() as temporary:
        environment = setting.machine.environment(Path(temporary))
        told = subprocess.run([python, "-c", VERSIONS], env=environment, capture_output=True, text=True, check=True)
        report = Path(temporary) / "report.xml"
        command = [python, "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={report}", *arguments]
        if setting.machine is not HERE:
            command.append("--ignore=tests/portability")  # emulates machines itself
        subprocess.run(command, cwd=ROOT, env=environment)
        if not report.exists():
            return Outcome(setting.name, json.loads(told.stdout), reason="pytest did not come to its end")
        return counted(setting.name, json.loads(told.stdout), report)


def counted(name: str, versions: Sequence[str], report: Path) -> Outcome:
    """The outcome that pytest's report tells."""
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    failed = [
        f"{case.get('classname')}::{case.get('name')}"
        for case in suite.iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    ]
    tests, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
    return Outcome(name, versions, tests - len(failed) - skipped, failed, skipped, float(suite.get("time", 0)) / 60)


def table(outcomes: Sequence[Outcome]) -> str:
    """Markdown: a row per setting, then the tests that failed."""
    heads = ("setting", "Python", *PACKAGES, "passed", "failed", "skipped", "minutes")
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads), *(outcome.row() for outcome in outcomes)]
    failed = [f"- {outcome.name}: `{test}`" for outcome in outcomes for test in outcome.failed]
    return "\n".join([*lines, *([""] if failed else []), *failed]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="parts of the names of settings; all if none is given")
    parser.add_argument("--list", action="store_true", help="list the settings")
    parser.add_argument("--out", type=Path, help="write the table to this file too")
    parser.add_argument("--folder", type=Path, default=user_cache_path("fedalpha") / "matrix", help="of environments")
    parser.add_argument("--pytest", default=f"-n {os.cpu_count()}", help="arguments of pytest")
    options = parser.parse_args()
    chosen = [s for s in SETTINGS if not options.names or any(name in s.name for name in options.names)]
    if options.list or not chosen:
        print("\n".join(setting.name for setting in SETTINGS))
        return int(not chosen)
    outcomes: list[Outcome] = []
    for setting in chosen:
        print(f"\n{setting.name}", flush=True)
        outcomes.append(tried(setting, options.folder, shlex.split(options.pytest)))
        print(table(outcomes), flush=True)
        if options.out is not None:
            options.out.write_text(table(outcomes))
    return int(any(outcome.failed or outcome.reason for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())

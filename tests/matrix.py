"""The whole suite with other versions, processors and threads, and a table of what passed: ``make matrix``.

``python tests/matrix.py`` runs every setting one after the other (hours), ``python tests/matrix.py 3.13`` those whose
name contains "3.13". Each leaves a file in ``--out``, so that settings can be run one at a time; ``--page`` writes the
table of all that are there into docs/portability.md. ``--short`` runs only the short form of the suite, as a row of its
own. The newest versions within the ranges of pyproject.toml are installed for each Python in an environment of its own,
in the user's cache; ``--install`` does nothing else. With pyenv, name the versions:
``PYENV_VERSION=3.11.7:3.12.1:3.13.0``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from platformdirs import user_cache_path

from portability.machines import HERE, MACHINES, Machine, processor, threads

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/portability.md"
STORED = ROOT / "docs/results/portability"
BEGIN, END = "<!-- the matrix -->", "<!-- end of the matrix -->"
SHORT = ", short form"
PACKAGES = ("torch", "numpy", "scipy", "numba")
FACTS = """
import json, torch
from fedalpha.runs.machine import versions
torch.ones(8, 8) @ torch.ones(8, 8)  # MKL_VERBOSE tells the code that MKL takes, and its limit on threads
print("facts", json.dumps(versions() | {"threads": str(torch.get_num_threads())}))
"""


@dataclass(frozen=True)
class Setting:
    """A machine to run the suite on, with the pinned versions of this environment or the newest of a Python."""

    machine: Machine
    python: str | None = None
    emulator: tuple[str, ...] = ()
    """A command before Python. Programs that a test starts run outside of it, so it runs the short part alone."""
    short: bool = False
    """The short form of the suite, which `make test` runs on emulated machines."""

    @property
    def name(self) -> str:
        name = self.machine.name if self.python is None else f"Python {self.python}, newest versions"
        return name + SHORT * self.short

    def runs(self, arguments: Sequence[str]) -> list[list[str]]:
        """The arguments of each run of pytest: one, or under an emulator, which may crash, one per file."""
        if self.short and not self.emulator:
            return [["-p", "no:xdist", *self.machine.part]]
        if not self.emulator:
            return [[*arguments, *([] if self.machine is HERE else ["--ignore=tests/portability"])]]
        files: dict[str, list[str]] = {}
        for test in self.machine.part:
            folder = ROOT / test
            for path in sorted(folder.glob("test_*.py")) if folder.is_dir() else [test]:
                name = str(path.relative_to(ROOT)) if isinstance(path, Path) else path
                files.setdefault(name.partition("::")[0], []).append(name)
        return [["-p", "no:xdist", *tests] for tests in files.values()]

    def lacking(self) -> str | None:
        """Why it cannot be run here."""
        if self.emulator and shutil.which(self.emulator[0]) is None:
            return f"{self.emulator[0]} is not installed (Debian: apt-get install qemu-user)"
        if missing := self.machine.needs - processor()[1]:
            return f"this processor lacks {', '.join(sorted(missing))}"
        return None

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


HASWELL = ("qemu-x86_64", "-cpu", "Haswell-noTSX")
"""The processor's vendor is Intel's to all libraries; QEMU emulates AVX2 and fused multiply-add since version 7.2."""
SETTINGS = (
    Setting(HERE),
    *(Setting(Machine(f"OMP_NUM_THREADS={count}", threads(count))) for count in (1, 2, 4)),
    *(Setting(machine) for machine in MACHINES),
    *(Setting(HERE, python) for python in ("3.12", "3.13")),
    Setting(Machine("Intel Haswell, emulated by QEMU, 1 thread", threads(1)), None, HASWELL, short=True),
)


@dataclass(frozen=True)
class Outcome:
    """What a setting gave: versions, counts and the tests that failed; or why it was not run."""

    setting: str
    commit: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    mkl: str = ""
    passed: int = 0
    failed: Sequence[str] = ()
    skipped: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""

    def row(self) -> str:
        if self.reason:
            found, counts = ["–"] * (2 + len(PACKAGES)), (f"not run: {self.reason}", "", "")
        else:
            found = [self.facts[name].removesuffix("+cpu") for name in ("python", *PACKAGES, "threads")]
            counts = (f"{self.passed:,}", str(len(self.failed)), str(sum(self.skipped.values())))
        return "| " + " | ".join((self.setting, *found, *counts, self.commit)) + " |"

    def with_counts(self, passed: int, failed: Sequence[str], skipped: Mapping[str, int]) -> Outcome:
        """This and what one more run of pytest gave."""
        reasons = Counter(self.skipped) + Counter(skipped)
        counts = {"passed": self.passed + passed, "failed": [*self.failed, *failed], "skipped": dict(reasons)}
        return replace(self, **counts)  # type: ignore[arg-type]

    def store(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = "-".join(re.findall(r"[a-z0-9.]+", self.setting.lower()))
        (folder / f"{name}.json").write_text(json.dumps(asdict(self), indent=1) + "\n")


def tried(setting: Setting, folder: Path, arguments: Sequence[str]) -> Outcome:
    """Run the suite under a setting."""
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    about = {"setting": setting.name, "commit": commit.stdout.strip()}
    if reason := setting.lacking():
        return Outcome(**about, reason=reason)
    try:
        python = [*setting.emulator, str(setting.interpreter(folder))]
    except (OSError, subprocess.CalledProcessError) as error:
        return Outcome(**about, reason=str(error))
    with tempfile.TemporaryDirectory() as temporary:
        environment = setting.machine.environment(Path(temporary))
        verbose = {**environment, "MKL_VERBOSE": "1"}
        told = subprocess.run([*python, "-c", FACTS], env=verbose, capture_output=True, text=True, cwd=ROOT)
        if told.returncode:
            return Outcome(**about, reason=(told.stderr.splitlines() or ["Python ended"])[-1])
        facts = json.loads(re.findall(r"^facts (.*)$", told.stdout, re.MULTILINE)[-1])
        mkl = re.search(r"^MKL_VERBOSE oneMKL .*? for (.*?), Lnx", told.stdout, re.MULTILINE)
        outcome = Outcome(**about, facts=facts, mkl=mkl[1] if mkl else "")
        for number, run in enumerate(setting.runs(arguments)):
            report = Path(temporary) / f"{number}.xml"
            command = [*python, "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={report}", *run]
            code = subprocess.run(command, cwd=ROOT, env=environment).returncode
            what = run[-1].partition("::")[0] if setting.emulator else "pytest"
            lost = {"passed": 0, "failed": [f"{what} did not come to its end (code {code})"], "skipped": {}}
            outcome = outcome.with_counts(**(counted(report) if report.exists() else lost))
        return outcome


def counted(report: Path) -> dict[str, Any]:
    """How many tests passed, which failed, and why how many were skipped, as pytest's report tells."""
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    cases = list(suite.iter("testcase"))
    bad = {
        f"{case.get('classname')}::{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    }
    reasons = Counter(str(skip.get("message")) for case in cases if (skip := case.find("skipped")) is not None)
    return {
        "passed": int(suite.get("tests", 0)) - len(bad) - reasons.total(),
        "failed": sorted(bad),
        "skipped": dict(sorted(reasons.items())),
    }


def stored(folder: Path) -> list[Outcome]:
    """The outcomes in a folder, in the order of the settings."""
    found = [Outcome(**json.loads(path.read_text())) for path in folder.glob("*.json")]
    order = [setting.name.removesuffix(SHORT) for setting in SETTINGS]
    return sorted(found, key=lambda outcome: order.index(outcome.setting.removesuffix(SHORT)))


def table(outcomes: Sequence[Outcome]) -> str:
    """Markdown: a row per setting, then the tests that failed."""
    heads = ("setting", "Python", *PACKAGES, "threads", "passed", "failed", "skipped", "commit")
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads), *(outcome.row() for outcome in outcomes)]
    failed = [f"- {outcome.setting}: `{test}`" for outcome in outcomes for test in outcome.failed]
    return "\n".join([*lines, *([""] if failed else []), *failed]) + "\n"


def write_page(folder: Path, page: Path = PAGE) -> None:
    """Put the table of a folder's outcomes into the page."""
    before, _, rest = page.read_text().partition(BEGIN)
    page.write_text(f"{before}{BEGIN}\n\n{table(stored(folder))}\n{END}{rest.partition(END)[2]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="parts of the names of settings; all if none is given")
    parser.add_argument("--short", action="store_true", help="run the short form of the suite")
    parser.add_argument("--list", action="store_true", help="list the settings")
    parser.add_argument("--out", type=Path, default=Path("runs/matrix"), help="folder of the outcomes, a file each")
    parser.add_argument("--page", action="store_true", help="write the outcomes in --out into docs/portability.md")
    parser.add_argument("--install", action="store_true", help="install the newest versions, and run nothing")
    parser.add_argument("--folder", type=Path, default=user_cache_path("fedalpha") / "matrix", help="of environments")
    parser.add_argument("--pytest", default=f"-n {os.cpu_count()} --dist worksteal", help="arguments of pytest")
    options = parser.parse_args()
    chosen = [s for s in SETTINGS if not options.names or any(name in s.name for name in options.names)]
    chosen = [replace(setting, short=setting.short or options.short) for setting in chosen]
    if options.list or not chosen:
        print("\n".join(setting.name for setting in SETTINGS))
        return int(not chosen)
    if options.page:
        write_page(options.out)
        return 0
    if options.install:
        for setting in chosen:
            setting.interpreter(options.folder)
        return 0
    outcomes: list[Outcome] = []
    for setting in chosen:
        print(f"\n{setting.name}", flush=True)
        outcomes.append(tried(setting, options.folder, shlex.split(options.pytest)))
        outcomes[-1].store(options.out)
        print(table(outcomes), flush=True)
    return int(any(outcome.failed or outcome.reason for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())

"""``make licences``: the licence of every pinned package, from the package's metadata.

``python tests/licences.py`` writes docs/licences.md. It fails if a package that pyproject.toml requires is not pinned.
"""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).parents[1]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    """Every package of constraints.txt with its version."""
    lines = (ROOT / "constraints.txt").read_text().split()
    return {normal(name): version for name, version in (line.split("==") for line in lines)}


def asked() -> dict[str, str]:
    """Every package that pyproject.toml names, and where: in the dependencies or in an extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = {"fedalpha": project["dependencies"], **project["optional-dependencies"]}
    found: dict[str, str] = {}
    for group, requirements in groups.items():
        for requirement in requirements:
            name = normal(re.match(r"[A-Za-z0-9._-]+", requirement)[0])  # type: ignore[index]
            if name != "fedalpha":
                found.setdefault(name, group)
    return found


def licence(name: str) -> str:
    """The licence of an installed package; empty if it is not installed."""
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return ""
    return _stated(found) or "not stated"


def _stated(found: Distribution) -> str:
    metadata = found.metadata
    classified = [c.split(" :: ")[-1] for c in metadata.get_all("Classifier", []) if c.startswith("License :: ")]
    known = [name for name in classified if name != "OSI Approved"]
    short = (metadata.get("License") or "").strip().splitlines()
    return metadata.get("License-Expression") or ", ".join(known) or (short[0][:60] if short else "")


def page() -> str:
    """The page: a row per pinned package."""
    lines = [
        "# Licences of the pinned packages",
        "",
        "The table lists every package of `constraints.txt` with the licence in the package's metadata. *Required by*",
        "is fedalpha, or the extra that names the package. Packages without an entry are dependencies of the others.",
        "`make licences` regenerates this page.",
        "",
        "| package | version | licence | required by |",
        "|---|---|---|---|",
    ]
    wanted = asked()
    for name, version in sorted(pins().items()):
        lines.append(f"| {name} | {version} | {licence(name) or 'not installed here'} | {wanted.get(name, '')} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    missing = sorted(asked().keys() - pins().keys())
    (ROOT / "docs" / "licences.md").write_text(page())
    print(f"{len(pins())} packages: docs/licences.md")
    sys.exit(f"not pinned in constraints.txt: {', '.join(missing)}" if missing else 0)

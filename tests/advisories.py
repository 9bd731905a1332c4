"""The pins against a folder of advisories, without a network: ``make advisories ADVISORIES=FOLDER``.

The folder is a copy of https://github.com/pypa/advisory-database, or any folder of OSV records (YAML or JSON), such as
the export for PyPI of https://osv.dev. It prints the pins that an advisory affects and ends with 1 if there are any. A
pin that is not listed is only as safe as the folder is new.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from packaging.version import InvalidVersion, Version

from licences import normal, pins


def records(folder: Path) -> Iterator[dict[str, Any]]:
    """Every advisory below a folder."""
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".yaml", ".json") and path.is_file():
            text = path.read_text(encoding="utf-8")
            found = json.loads(text) if path.suffix == ".json" else yaml.load(text, yaml.CSafeLoader)
            if isinstance(found, dict) and "affected" in found and "withdrawn" not in found:
                yield found


def affected(record: Mapping[str, Any], wanted: Mapping[str, Version]) -> Iterator[str]:
    """The pins that an advisory affects."""
    for one in record["affected"]:
        name = normal(one["package"]["name"]) if "package" in one else ""
        version = wanted.get(name)
        if version is None or one["package"]["ecosystem"] != "PyPI":
            continue
        listed = any(version == known for known in map(_version, one.get("versions", ())))
        ranges = [r["events"] for r in one.get("ranges", ()) if r["type"] == "ECOSYSTEM"]
        if listed or any(_within(version, events) for events in ranges):
            yield name


def _within(version: Version, events: list[Mapping[str, str]]) -> bool:
    """Whether a version is in a range: introduced, fixed and last affected, in this order."""
    inside = False
    for event in events:
        ((kind, text),) = event.items()
        edge = Version("0.dev0") if text == "0" else _version(text)
        if edge is None:
            continue
        if kind == "introduced" and version >= edge:
            inside = True
        elif (kind == "fixed" and version >= edge) or (kind == "last_affected" and version > edge):
            inside = False
    return inside


def _version(text: str) -> Version | None:
    try:
        return Version(str(text))
    except InvalidVersion:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the pins with a folder of advisories.")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    wanted = {name: Version(version) for name, version in pins().items()}
    count, newest, about, found = 0, "", set[str](), list[str]()
    for record in records(folder):
        count += 1
        newest = max(newest, str(record.get("published", ""))[:10])
        about |= {normal(one["package"]["name"]) for one in record["affected"] if "package" in one} & wanted.keys()
        found += [f"{name} {wanted[name]}: {record['id']}" for name in affected(record, wanted)]
    if not count:
        sys.exit(f"{folder} holds no advisories; give a copy of https://github.com/pypa/advisory-database")
    print("\n".join(found) or "no pin is affected")
    print(f"{count:,} advisories until {newest}, {len(about)} of {len(wanted)} pinned packages are named in them")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()

"""Which versions of Flower work: ``python tests/flower/versions.py 1.38.0 1.41.0`` (``make flower-versions``).

Each version is installed in an environment of its own, in the user's cache, without torch. There a SuperLink and two
SuperNodes play two rounds of FedWorse and of FedAvg, and the models are compared with what is expected. With ``--out
docs/results/server --page docs/deployment.md`` the results are stored; those of other versions stay.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
VERSIONS = ("1.38.0", "1.39.0", "1.40.0", "1.41.0", "1.42.0")
NEEDS = ("numpy", "scipy", "safetensors", "pydantic", "threadpoolctl", "platformdirs", "click<8.5")


COLUMNS = "| Flower | works | dependencies | installed |\n| --- | --- | --- | --- |\n"
OWN, OTHER = "its own", "of another version; its own cannot be installed"


def environment(folder: Path, version: str) -> Path:
    """Python with this version of Flower; if its dependencies cannot be had, with those of the newest other one."""
    place = folder / version
    python = place / "bin" / "python"
    if not (place / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        install = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "-q"]
        quiet = {"stderr": subprocess.DEVNULL}
        if subprocess.run([*install, f"flwr=={version}", *NEEDS], **quiet).returncode:
            (place / "others").touch()
            subprocess.run([*install, "flwr", *NEEDS], check=True, **quiet)
            subprocess.run([*install, "--no-deps", f"flwr=={version}"], check=True, **quiet)
        (place / "complete").touch()
    return python


def check() -> None:
    """In an environment of a version: play, and compare with what is expected."""
    import numpy as np

    sys.path.insert(0, str(ROOT / "examples" / "flower"))
    from deployment import Deployment, executable, free_port

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        try:
            flower = Deployment(folder, 2, app=ROOT / "tests" / "flower" / "app")
            asked = subprocess.run([executable("flower-superlink"), "--help"], capture_output=True, text=True)
            option = re.search(r"--fleet-api-address \w+\s+(\w+)", asked.stdout)
            if option and option[1] != "Deprecated":  # as in 1.38: nodes connect by gRPC, to a port of its own
                flower.node_port = free_port()
                flower.link_options = ["--fleet-api-address", f"127.0.0.1:{flower.node_port}"]
            with flower:
                for strategy in ("FedWorse(k=1)", "FedAvg"):
                    place = folder / strategy
                    config = {"strategy": strategy, "rounds": 2, "clients": 2, "out": str(place), "wait": 600.0}
                    flower.run(config)
                    w = np.zeros(4)
                    for row in map(json.loads, (place / "history.jsonl").read_text().splitlines()[1:]):
                        targets = np.array([[i, 1, -i, 0.5] for i in row["cohort"]])
                        w = (np.array(row["alpha"])[:, None] * (w + targets) / 2).sum(axis=0)
                    np.testing.assert_allclose(np.load(place / "w.npy"), w, rtol=1e-6)
        except Exception:
            for log in folder.glob("*.log"):
                print(f"--- {log.name}\n{log.read_text()[-1500:]}", file=sys.stderr)
            raise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", default=VERSIONS)
    parser.add_argument("--folder", type=Path, help="where the environments are kept [default: the user's cache]")
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="where flower.json and flower.md are stored")
    parser.add_argument("--page", type=Path, help="the page that shows the table")
    given = parser.parse_args()
    if given.check:
        check()
        return
    sys.path.insert(0, str(ROOT))
    from benchmarks.pages import put  # not in the environments of the versions

    if given.folder is None:
        from platformdirs import user_cache_path

        given.folder = user_cache_path("fedalpha") / "flower"
    failed = []
    for version in given.versions:
        python = environment(given.folder, version)
        command = [str(python), __file__, "--check"]
        found = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True
        )
        (given.folder / f"{version}.log").write_text(found.stdout + found.stderr)
        failed += [version] if found.returncode else []
        reason = (found.stderr.strip().splitlines() or ["no output"])[-1][:300] if found.returncode else ""
        print(f"flwr {version}: {f'does not work: {reason}' if reason else 'works'}", flush=True)
        if given.out is not None:
            store(given.out, version, result(python, reason))
            if given.page is not None:
                put(given.page, "flower versions", (given.out / "flower.md").read_text())
    sys.exit(min(len(failed), 1))


def result(python: Path, reason: str) -> dict[str, object]:
    """What is stored of a version: whether it works, and with what."""
    code = (
        "import platform, json; from importlib.metadata import version as v; "
        "print(json.dumps({'python': platform.python_version()} | {n: v(n) for n in ('numpy', 'grpcio', 'protobuf')}))"
    )
    told = json.loads(subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout)
    own = not (python.parents[1] / "others").exists()
    return {"works": not reason, "reason": reason, "dependencies": OWN if own else OTHER, "installed": told}


def store(out: Path, version: str, found: dict[str, object]) -> None:
    """Put a version into flower.json, and all of them into the table flower.md."""
    path = out / "flower.json"
    stored = json.loads(path.read_text()) if path.exists() else {}
    stored[version] = found
    path.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")
    (out / "flower.md").write_text(table(stored))


def table(stored: dict[str, dict[str, Any]]) -> str:
    """All versions, the newest first."""
    lines = []
    for version in sorted(stored, key=lambda text: [int(part) for part in text.split(".")], reverse=True):
        one = stored[version]
        works = "yes" if one["works"] else f"no: {one['reason']}"
        installed = ", ".join(f"{name} {found}" for name, found in sorted(one["installed"].items()))
        lines.append(f"| {version} | {works} | {one['dependencies']} | {installed} |\n")
    return COLUMNS + "".join(lines)


if __name__ == "__main__":
    main()

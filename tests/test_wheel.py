"""The wheel: it builds, holds what it should, and works where it is installed."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path

import fedalpha

ROOT = Path(__file__).parent.parent


def test_the_distributions_build_and_install(tmp_path: Path) -> None:
    source, site = tmp_path / "source", tmp_path / "site"
    for name in ("src", "benchmarks", "tests/store"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for file in ROOT.iterdir():
        if file.is_file():
            shutil.copy(file, source)
    # The wheel is built from the source distribution.
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(source)]
    subprocess.run(build, check=True, capture_output=True)
    (packed,) = tmp_path.glob("fedalpha-*.tar.gz")
    with tarfile.open(packed) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {"src/fedalpha/py.typed", "pyproject.toml", "LICENSE", "README.md", "CHANGELOG.md"} <= held
    assert not [name for name in held if name.startswith(("tests", "benchmarks", "docs", "runs"))]
    (wheel,) = tmp_path.glob("fedalpha-*.whl")
    assert wheel.name.split("-")[1] == packed.name.removeprefix("fedalpha-").removesuffix(".tar.gz")
    _check_metadata(wheel)
    names = zipfile.ZipFile(wheel).namelist()
    assert "fedalpha/py.typed" in names
    assert "fedalpha/strategies/fedavg.py" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"fedalpha"}
    assert not [name for name in names if "bench" in name]
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site), str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    script = "import sys; sys.path.insert(0, sys.argv[1]); import fedalpha; print(fedalpha.__file__)\n"
    script += "print(fedalpha.weights('FedWorse', losses=[1, 2]).tolist())"
    done = subprocess.run([sys.executable, "-c", script, str(site)], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == [str(site / "fedalpha" / "__init__.py"), "[0.0, 1.0]"]
    assert (site / "bin" / "fedalpha").exists()


def _check_metadata(wheel: Path) -> None:
    """What an index shows: the version, the licence, the page, and no empty field."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        found = message_from_string(archive.read(name).decode())
    assert found["Version"] == fedalpha.__version__
    assert found["License-Expression"] == "Apache-2.0"
    assert found["Description-Content-Type"] == "text/markdown"
    assert found["Requires-Python"] == ">=3.11"
    assert found["Summary"]
    assert str(found.get_payload()).lstrip().startswith("# fedalpha")


def test_the_version_stands_in_one_place() -> None:
    """Other files that name it agree with the package; the newest entry of the changelog is this version."""
    cited = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited is not None
    assert cited[1] == fedalpha.__version__
    assert "version" in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dynamic"]
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == fedalpha.__version__


def test_the_package_does_not_import_the_benchmarks() -> None:
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert all(module.partition(".")[0] != "benchmarks" for module in modules), file

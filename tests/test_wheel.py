"""The wheel: it builds, holds what it should, and works where it is installed."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_wheel_builds_and_installs(tmp_path: Path) -> None:
    source, site = tmp_path / "source", tmp_path / "site"
    for name in ("src", "benchmarks"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(source)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("fedalpha-*.whl")
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


def test_the_package_does_not_import_the_benchmarks() -> None:
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert all(module.partition(".")[0] != "benchmarks" for module in modules), file

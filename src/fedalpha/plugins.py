"""A user's rules in a Python file, named in the settings: ``plugin = "rules.py"``.

The file is run once, before any text is parsed; the strategies, updates, selections … that it registers
can then be written as text. Settings keep it as ``rules.py@<hash>``, so that a run, or a cell of a study,
belongs to the code it was made with: another content is another configuration.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
import traceback
from pathlib import Path

_loaded: dict[Path, str] = {}


def load_plugin(text: str) -> str:
    """Run the file ``path`` or ``path@hash`` once. Returns its path with the hash of its content."""
    match = re.fullmatch(r"(.+?)(?:@([0-9a-f]{16}))?", text, re.DOTALL)
    if match is None:
        raise ValueError("give the path of a Python file")
    name, expected = match.groups()
    path = Path(name).resolve()
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}; give the path of a Python file") from None
    if expected not in (None, found):
        raise ValueError(f"{path} has changed since (its hash was {expected}); restore it, or start a new run or study")
    if _loaded.setdefault(path, found) != found:
        raise ValueError(f"{path} was loaded in this process and has changed since; start a new process")
    module = f"fedalpha_plugin_{found}"
    if module not in sys.modules:
        _run(path, module)
    return f"{name}@{found}"


def _run(path: Path, name: str) -> None:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is not a Python file; its name must end in .py")
    sys.modules[name] = module = importlib.util.module_from_spec(spec)  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
        where = f", line {lines[-1]}" if lines else ""
        raise ValueError(f"{path}{where}: {type(error).__name__}: {error}") from error

"""A user's rules in a Python file, named in the settings: ``plugin = "rules.py"``.

The file is run once, before any text is parsed; the strategies, updates, selections … that it registers
can then be written as text. Settings keep it as ``rules.py@<hash>``, so that a run, or a cell of a study,
belongs to the code it was made with: another content is another configuration.

A plugin that a file names is run only if the user has allowed its content (`fedalpha.trust`).
"""

from __future__ import annotations

import hashlib
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType

from fedalpha import trust
from fedalpha.text import quoted, shown

LARGEST = 2**24
"""No plugin has more bytes."""
_loaded: dict[Path, str] = {}


def load_plugin(text: str) -> str:
    """Run the file ``path`` or ``path@hash`` once. Returns its path with the hash of its content."""
    match = re.fullmatch(r"(.+?)(?:@([0-9a-f]{16}))?", text, re.DOTALL)
    if match is None:
        raise ValueError("give the path of a Python file")
    name, expected = match.groups()
    if "\0" in name or len(name) > 4096:
        raise ValueError(f"{quoted(name)} is not a path; give the path of a Python file")
    path = Path(name).resolve()
    content = _content(path)
    digest = hashlib.sha256(content).hexdigest()
    found = digest[:16]
    if expected not in (None, found):
        raise ValueError(f"{path} has changed since (its hash was {expected}); restore it, or start a new run or study")
    size = f"{len(content.splitlines())} lines of Python, SHA-256 {found}…"
    trust.need(
        "plugin", digest, f"run {shown(path)} ({size})", f"in run and compare name it yourself: --plugin {shown(name)}"
    )
    if _loaded.setdefault(path, found) != found:
        raise ValueError(f"{path} was loaded in this process and has changed since; start a new process")
    module = f"fedalpha_plugin_{found}"
    if module not in sys.modules:
        _run(path, content, module)
    return f"{name}@{found}"


def is_loaded(name: str) -> bool:
    """Whether a file of this name was loaded in this process, from any folder; ``name`` may end in ``@<hash>``."""
    return Path(name.rpartition("@")[0] or name).name in {path.name for path in _loaded}


def _content(path: Path) -> bytes:
    try:
        if not path.is_file():
            what = "it is a folder" if path.is_dir() else "no such file"
            raise ValueError(f"cannot read {shown(path)}: {what}; give the path of a Python file")
        if path.suffix != ".py":  # before it is opened: a file may name any
            raise ValueError(f"{shown(path)} is not a Python file; its name must end in .py")
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise ValueError(f"cannot read {shown(path)}: {error.strerror}; give the path of a Python file") from None
    if len(content) > LARGEST:
        raise ValueError(f"{shown(path)} has more than {LARGEST:,} bytes; a plugin is a small Python file")
    return content


def _run(path: Path, content: bytes, name: str) -> None:
    """Run the bytes whose hash was taken: the file may have changed since, and a ``.pyc`` beside it may hold others."""
    sys.modules[name] = module = ModuleType(name)  # dataclasses look their module up
    module.__file__ = str(path)
    try:
        exec(compile(content, str(path), "exec", dont_inherit=True), vars(module))
    except Exception as error:
        del sys.modules[name]
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
        where = f", line {lines[-1]}" if lines else ""
        raise ValueError(f"{path}{where}: {type(error).__name__}: {shown(error)}") from error

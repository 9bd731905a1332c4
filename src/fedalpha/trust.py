"""What a file asks for, and what the user has allowed.

A file of settings or a study may come from another person. What it names can run code (a plugin, a cluster), so it is
done only if the user says so: by naming the same thing on the command line or in Python, or with ``--trust``. The
user's consent is remembered, for the content of a plugin, the address of a cluster and the path of a file of times, so
it is asked for once.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from fedalpha.store.files import append, read_bytes
from fedalpha.text import shown

_MOST = 2**22
_HERE = frozenset({".numba_config.yaml", "matplotlibrc"})
"""Settings that numba and matplotlib look for in the working directory."""


class UntrustedError(ValueError):
    """A file asks for something that the user has not allowed."""


@dataclass(frozen=True)
class _File:
    """The file that is being read, and whether the user trusts it."""

    path: Path
    trusted: bool


_reading: ContextVar[_File | None] = ContextVar("fedalpha_reading", default=None)
_allowed: set[str] = set()
"""What was allowed in this process; the state folder may not be writable."""


@contextmanager
def reading(path: Path, trust: bool = False) -> Iterator[None]:
    """In this block settings come from the file ``path``; ``trust``: the user allows what it asks for."""
    token = _reading.set(_File(path, trust))
    try:
        yield
    finally:
        _reading.reset(token)


def need(kind: str, what: str, consequence: str, own_word: str) -> None:
    """Raise `UntrustedError` if a file asks for ``what``, and the user has not allowed it; else remember it.

    ``consequence`` says what would happen, ``own_word`` how the user can ask for it without the file.
    """
    line = f"{kind} {what}"
    file = _reading.get()
    if file is None or file.trusted or line in _allowed or line in _remembered():
        _remember(line)
        return
    raise UntrustedError(
        f"{shown(file.path)} asks to {consequence}. This needs your consent: look at it, then give --trust "
        f"(trust=True in Python), or {own_word}"
    )


@contextmanager
def no_settings_from_here() -> Iterator[None]:
    """In this block numba and matplotlib find no settings in the working directory, which anybody may have filled.

    Those of numba can name a folder of compiled functions, which are pickles: loading them runs any code. Neither
    library has a switch for this, but both ask `os.path.exists` for these names when they are imported.
    """
    exists = os.path.exists
    os.path.exists = lambda path: path not in _HERE and exists(path)
    try:
        yield
    finally:
        os.path.exists = exists


def trusted_file() -> Path:
    """Where the user's consent is kept: ``$FEDALPHA_STATE``, or the platform's folder for the state of programs."""
    root = os.environ.get("FEDALPHA_STATE")
    if not root:
        import platformdirs

        root = platformdirs.user_state_dir("fedalpha")
    return Path(root).expanduser() / "trusted"


def _remembered() -> set[str]:
    try:
        # Not splitlines: a name may hold other characters that end a line, and what follows them is not a yes.
        return set(read_bytes(trusted_file(), most=_MOST).decode().split("\n"))
    except (OSError, ValueError):
        return set()


def _remember(line: str) -> None:
    if line in _allowed:
        return
    _allowed.add(line)
    if "\n" in line or line in _remembered():
        return
    file = trusted_file()
    with contextlib.suppress(OSError, ValueError):  # then it is asked for again
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        append(file, f"{line}\n".encode())

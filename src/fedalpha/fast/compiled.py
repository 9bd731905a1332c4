"""Whether loops can be compiled here."""

from __future__ import annotations

from functools import cache


@cache
def numba_version() -> str | None:
    """The version of numba, or None where nothing is compiled: it is missing, cannot be imported or is switched off."""
    try:
        import numba
    except Exception:  # a broken installation fails in many ways: ImportError, OSError, SystemError …
        return None
    switched_off = numba.config.DISABLE_JIT  # type: ignore[attr-defined]
    return None if switched_off else str(numba.__version__)

"""Whether loops can be compiled on this machine."""

from __future__ import annotations

from functools import cache

from fedalpha.trust import no_settings_from_here


@cache
def numba_version() -> str | None:
    """The version of numba; None (nothing is compiled) if it is missing, cannot be imported or is switched off."""
    try:
        with no_settings_from_here():
            import numba
        numba.core.config._config_fname = ""  # it is looked for again whenever something is compiled
    except Exception:  # a broken installation fails in many ways: ImportError, OSError, SystemError …
        return None
    switched_off = numba.config.DISABLE_JIT  # type: ignore[attr-defined]
    return None if switched_off else str(numba.__version__)

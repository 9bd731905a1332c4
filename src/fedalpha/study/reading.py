"""Study files, and the ``study.toml`` of a study's folder."""

from __future__ import annotations

from pathlib import Path

from fedalpha.runs.reading import from_toml, read_text
from fedalpha.store.files import CONFIG_BYTES, read_bytes
from fedalpha.study.plan import Study, study
from fedalpha.text import shown
from fedalpha.trust import UntrustedError, reading


def read_study(path: str | Path, *, trust: bool = False) -> Study:
    """The study in a TOML file, or in the ``study.toml`` of a study's folder.

    A plugin or a cluster that the file names needs the user's consent: ``trust``, or an earlier consent.
    """
    file, text = study_text(path)
    try:
        values = from_toml(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is not valid TOML: {shown(error)}; put texts in quotes") from None
    try:
        with reading(file, trust):
            found = study(values)
            found.untuned().cells()
            found.ask()
    except UntrustedError:
        raise
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file}: {shown(error, 2_000)}") from None
    return found


def study_text(path: str | Path) -> tuple[Path, str]:
    """A study's TOML file and its text; for a folder, those of its ``study.toml``."""
    path = Path(path)
    if not path.is_dir():
        return path, read_text(path, "study")
    file = path / "study.toml"
    try:
        return file, read_bytes(file, most=CONFIG_BYTES).decode()
    except OSError as error:
        raise ValueError(f"cannot read the study {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"cannot read the study {file}: it is not text in UTF-8") from None

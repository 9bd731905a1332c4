"""``fedalpha resume``: resume an interrupted run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedalpha.cli.options import CheckpointEvery, Log, Trust, Workers
from fedalpha.text import shown


def resume(
    folder: Annotated[Path, typer.Argument(help="A run folder, as `fedalpha run --out` writes it.")],
    workers: Workers = None,
    checkpoint_every: CheckpointEvery = 1,
    log: Log = None,
    trust: Trust = False,
) -> None:
    """Resume an interrupted run.

    On the same kind of machine the result is the same, to the byte, as that of an uninterrupted run.
    """
    from fedalpha.cli.run import execute
    from fedalpha.runs.reading import read_settings
    from fedalpha.store.files import CONFIG_BYTES, read_bytes
    from fedalpha.trust import UntrustedError

    config = folder / "config.json"
    if not config.is_symlink() and not config.exists():
        raise ValueError(f"{folder} has no config.json, so there is no run to resume; {_instead(folder)}")
    try:
        read_bytes(config, most=CONFIG_BYTES)  # raises unless it is a file of this folder, not a link or a device
        settings = read_settings(config, {}, trust=trust)
    except UntrustedError:
        raise
    except ValueError as error:
        raise ValueError(f"cannot resume {config}: {error}") from None
    execute(settings, folder, workers, checkpoint_every, log)


def _instead(folder: Path) -> str:
    """What to do with a folder that is not a run folder."""
    from fedalpha.store.kinds import kind_of

    runs = sorted(path.parent for path in folder.glob("*/config.json"))
    match kind_of(folder):
        case "study":
            return f"it holds a study: `fedalpha study {folder}` resumes it"
        case "set of runs":
            return f"name one of the runs in it: `fedalpha resume {shown(runs[0])}`"
        case "comparison":
            one = f", and `fedalpha resume {shown(runs[0])}` one of its runs" if runs else ""
            return f"it holds a comparison: the same `fedalpha compare … --out {folder}` resumes it{one}"
    return f"`fedalpha run --out {folder}` starts one"

"""``fedalpha run``: train one federated model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedalpha.cli.options import File, Workers, with_settings


@with_settings()
def run(
    file: File = None,
    out: Annotated[Path | None, typer.Option(help="Folder for config, history, model and curves.")] = None,
    workers: Workers = None,
    *,
    options: dict[str, Any],
) -> None:
    """Train a federated model under one strategy."""
    from fedalpha.settings import read_settings

    settings = read_settings(file, options)
    from fedalpha.cli.progress import ShowProgress

    history = settings.run(out=out, workers=workers, callbacks=[ShowProgress(settings.strategy)])
    last = history.rows[-1] if history.rows else None
    if last is not None:
        reached = history.rounds_to(0.6)
        accuracy = "–" if last["accuracy"] is None else f"{100 * last['accuracy']:.2f} %"
        print(f"after round {last['round']}: accuracy {accuracy}, loss {last['loss']:.4f}, R_60 {reached or '–'}")
    if out is not None:
        print(f"written to {out}: config.json, history.jsonl, model.safetensors, curves.png")
    if history.interrupted:
        print("interrupted; the folder holds what was done" if out else "interrupted")
        raise typer.Exit(130)

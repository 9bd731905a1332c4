"""``fedalpha report``: a study as a page, tables and figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedalpha.text import counted


def report(
    folder: Annotated[Path, typer.Argument(help="A study's or a run's folder, or a Markdown page with tables.")],
    live: Annotated[bool, typer.Option("--live", help="Serve the page on loopback and refresh it.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of --live; 0 takes any free one.")] = 0,
    plugin: Annotated[str | None, typer.Option(help="Python file with your measures or columns, loaded first.")] = None,
) -> None:
    """Write the report of a study or a run.

    For a study's folder: report.html (self-contained), report.md, report.tex, statistics.csv and figures/.

    For the folder of a single run, also of a live federation, write report.html.

    For a Markdown page, fill in the tables that the page asks for (see docs/studies.md).
    """
    from fedalpha.plugins import load_plugin
    from fedalpha.report import fill_page, live_server, write_report
    from fedalpha.report.single import is_run, write_run_report

    if plugin is not None:
        load_plugin(plugin)
    if folder.suffix == ".md":
        if live:
            raise ValueError("--live shows a study's folder, not a page; leave it out")
        print(f"{folder}: {counted(fill_page(folder), 'table')} rewritten")
        return
    if not live and is_run(folder):
        print(f"written: {write_run_report(folder)}")
        return
    if not live:
        print(f"written: {write_report(folder)}, report.md, report.tex, statistics.csv, rounds.csv, figures/")
        return
    server = live_server(folder, port)
    print(f"http://127.0.0.1:{server.server_address[1]}/ (Ctrl-C ends it)", flush=True)
    try:
        server.serve_forever()
    finally:
        server.server_close()

"""``fedalpha report``: a study, a run or a comparison as a page; a study also as tables and figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedalpha.text import counted


def report(
    folder: Annotated[
        Path, typer.Argument(help="A folder of `study`, `run` or `compare`, or a Markdown page with tables.")
    ],
    live: Annotated[bool, typer.Option("--live", help="Serve the page on loopback and refresh it.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of --live; 0 takes any free one.")] = 0,
    plugin: Annotated[str | None, typer.Option(help="Python file with your measures or columns, loaded first.")] = None,
) -> None:
    """Write a page about a study, a run, a comparison or a live federation: report.html in its folder.

    For a study, also write report.md, report.tex, statistics.csv and figures/.

    For a Markdown page, fill in the tables that the page asks for (see docs/studies.md).
    """
    from fedalpha.plugins import load_plugin
    from fedalpha.report import fill_page, live_server, write_report
    from fedalpha.report.compared import is_comparison, write_comparison_report
    from fedalpha.report.single import is_run, write_run_report

    if plugin is not None:
        load_plugin(plugin)
    if folder.suffix == ".md":
        if live:
            raise ValueError("--live shows a study's folder, not a page; leave it out")
        print(f"{folder}: {counted(fill_page(folder), 'table')} rewritten")
        return
    files = ("study.json", "history.jsonl", "comparison.json")
    if not any((folder / name).is_symlink() or (folder / name).exists() for name in files):
        found = f"holds none of {', '.join(files)}" if folder.is_dir() else "is not a folder"
        raise ValueError(f"{folder} {found}; give a folder that `fedalpha study`, `run` or `compare` wrote")
    if is_comparison(folder):
        if live:
            raise ValueError("--live follows a study or a run, but a comparison has ended; leave --live out")
        print(f"written: {write_comparison_report(folder)}")
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

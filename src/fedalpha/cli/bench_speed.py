"""``fedalpha bench speed``: this library against its peers and against the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def speed(
    workload: Annotated[
        list[str] | None, typer.Option(help="A workload: A, B, C, D, E or start (repeatable) [default: all].")
    ] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(help="A peer: plain, pfl, fedlab, flower, fedjax, tuned or batched (repeatable) [default: all]."),
    ] = None,
    no_peers: Annotated[bool, typer.Option("--no-peers", help="Measure fedalpha alone.")] = False,
    repetitions: Annotated[
        int | None, typer.Option(min=1, help="Timed repetitions, interleaved [default: 3; 1 with --quick].")
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            min=2, help="Rounds a process (B, C: twice as many); the first warms up [default: 3; --quick: 2]."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Tiny sizes and made-up data: shows that it works, nothing about speed.")
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave what --out holds of other workloads (same machine and sizes).")
    ] = False,
    limit: Annotated[float, typer.Option(min=1, help="Seconds after which a process is ended.")] = 1800,
    cache: Annotated[
        Path | None, typer.Option(help="Folder of the peers' environments [default: the platform's cache].")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for results.json, table.md and the pictures.")] = Path(
        "docs/results/speed"
    ),
) -> None:
    """Measure seconds and memory a round, against peers in environments of their own and against the machine."""
    import dataclasses

    import platformdirs

    from fedalpha.bench.speed import FULL, PEERS, QUICK, WORKLOADS, bench

    if peer and no_peers:
        raise ValueError("--peer and --no-peers exclude each other; give one of them")
    base = QUICK if quick else FULL
    sizes = dataclasses.replace(base, repetitions=repetitions or base.repetitions, rounds=rounds or base.rounds)
    record = bench(
        out,
        cache or Path(platformdirs.user_cache_dir("fedalpha")) / "bench",
        sizes,
        workloads=workload or tuple(WORKLOADS),
        peers=() if no_peers else peer or tuple(PEERS),
        limit=limit,
        keep=keep,
    )
    for goal in record["goals"]:
        if goal["workload"] in record["workloads"] and goal["value"] is not None:
            bound = f"{goal['sense']} {goal['bound']:g}"
            print(f"{goal['workload']}: {goal['text']}: {goal['value']:.3g} ({bound}): {goal['verdict']}")
    if quick:
        print("--quick shows that everything works; judge no speed by it")
    for text in record["other_work"]:
        print(f"not the same work: {text}")
    print(f"written to {out}: results.json, table.md, rounds.png, memory.png")


def profile(
    out: Annotated[Path, typer.Option(help="Folder for profile.json and profile.md.")] = Path("docs/results/speed"),
    quick: Annotated[bool, typer.Option("--quick", help="A few steps only: shows that it works.")] = False,
) -> None:
    """Say where the time of a local step goes, on one core: the paper's CNN, and many small models at once."""
    from fedalpha.bench.speed.profile import profile

    print(profile(out, clients=1 if quick else 20))

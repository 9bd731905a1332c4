"""``python -m benchmarks``: one command per measurement; results go to ``runs/benchmarks`` unless ``--out`` is set."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
import typer.core

typer.core.HAS_RICH = False  # typer writes "\\[" for "[" in plain help where rich is installed

OUT = Path("runs/benchmarks")
"""The default of --out. Stored results are in docs/results."""
app = typer.Typer(
    help="Measure fedalpha: long commands, each writes tables and pictures to a folder.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.command()
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
            min=2, help="Rounds per process (B, C: twice as many); the first warms up [default: 3; --quick: 2]."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Tiny sizes and synthetic data: a check, not a measurement of speed.")
    ] = False,
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Keep the results of other workloads in --out (same machine, sizes and roofline)."),
    ] = False,
    limit: Annotated[float, typer.Option(min=1, help="Seconds after which a process is terminated.")] = 1800,
    cache: Annotated[
        Path | None, typer.Option(help="Folder of the peers' environments [default: the platform's cache].")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for results.json, table.md and the pictures.")] = OUT / "speed",
) -> None:
    """Measure time and memory per round, and compare them with other frameworks and with the machine's limits."""
    import dataclasses

    import platformdirs

    from benchmarks.speed.bench import bench
    from benchmarks.speed.environments import PEERS
    from benchmarks.speed.workloads import FULL, QUICK, WORKLOADS

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


@app.command()
def profile(
    out: Annotated[Path, typer.Option(help="Folder for profile.json and profile.md.")] = OUT / "speed",
    quick: Annotated[bool, typer.Option("--quick", help="A few steps only, as a check that it works.")] = False,
) -> None:
    """Measure where the time of a local step goes, on one core: the paper's CNN, and many small models at once."""
    from benchmarks.speed.profile import profile

    print(profile(out, clients=1 if quick else 20))


@app.command()
def reliability(
    out: Annotated[Path, typer.Option(help="Folder for the tables.")] = OUT / "reliability",
    seeds: Annotated[str, typer.Option(help="Seeds of the Byzantine table: a count (3) or which (4,5).")] = "3",
    faults: Annotated[int, typer.Option(min=1, help="Faults per strategy in the fault matrix, at least.")] = 1000,
    byzfl: Annotated[
        Path | None, typer.Option(help="Environment for ByzFL, created if it does not exist; none leaves ByzFL out.")
    ] = None,
) -> None:
    """The fault matrix, the Byzantine table, ByzFL's aggregators on the same vectors, and what saving costs.

    An interrupted command can be resumed: finished cells of the Byzantine table are not run again.
    """
    from benchmarks.reliability.page import measure
    from fedalpha.study.seeds import parse_seeds

    measure(out, parse_seeds(seeds), faults, byzfl, lambda line: print(line, flush=True))
    print(f"written to {out}: README.md, faults.json, vectors.json, saving.json, byzantine.jsonl, byzantine.png")


@app.command()
def saving() -> None:
    """What saving costs on the paper's workload: the time inside the save path over the round's time."""
    import json

    from benchmarks.reliability.saving import save_cost

    print(json.dumps(save_cost(), indent=1))


@app.command()
def server(
    out: Annotated[Path, typer.Option(help="Folder for server.json and server.md.")] = OUT / "server",
    turns: Annotated[int, typer.Option(min=1, help="Aggregations of each, in turns.")] = 7,
    quick: Annotated[bool, typer.Option("--quick", help="A small model and few clients, as a check.")] = False,
    page: Annotated[Path | None, typer.Option(help="Page whose table is replaced: docs/deployment.md.")] = None,
) -> None:
    """Time and memory of a live server: an aggregation against Flower's FedAvg, and the peak while it streams."""
    from benchmarks.server import measure, table

    values, clients, streamed = (267_000, (2, 3), (2, 3)) if quick else (25_600_000, (10, 30), (4, 16, 64))
    typer.echo(table(measure(out, turns, values, clients, streamed, page)))


@app.command()
def combine(
    out: Annotated[Path, typer.Option(help="Folder for combine.json and combine.md.")] = OUT / "combine",
    turns: Annotated[int, typer.Option(min=1, help="Calls of each, in turns.")] = 7,
    before: Annotated[str | None, typer.Option(help="A commit whose rules are measured as well.")] = None,
    byzfl: Annotated[
        Path | None, typer.Option(help="Environment for ByzFL, created if it does not exist; none leaves ByzFL out.")
    ] = None,
    part: Annotated[str, typer.Option(help="What to measure: time, memory or both; the other part is kept.")] = "both",
    quick: Annotated[bool, typer.Option("--quick", help="Short vectors, as a check that it works.")] = False,
) -> None:
    """Combine rules against torch, NumPy, Flower and ByzFL on the same vectors, and the memory that they need."""
    from benchmarks.combine import measure

    typer.echo(measure(out, turns, before, byzfl, part, quick))


@app.command()
def large(
    out: Annotated[Path, typer.Option(help="Folder for large.json and large.md.")] = OUT / "large",
    part: Annotated[str, typer.Option(help="What to measure: train, cohort or both; the other part is kept.")] = "both",
    quick: Annotated[bool, typer.Option("--quick", help="A small model, as a check that it works.")] = False,
) -> None:
    """Models of 25 and 125 million parameters beside a plain loop, and the memory of 10, 100 and 1,000 clients."""
    from benchmarks.large import measure

    typer.echo(measure(out, part, quick))


@app.command()
def loops(
    out: Annotated[Path, typer.Option(help="Folder for loops.json.")] = OUT / "loops",
    turns: Annotated[int, typer.Option(min=1, help="Rounds of each, in turns.")] = 5,
    quick: Annotated[bool, typer.Option("--quick", help="One batch per client, as a check that it works.")] = False,
) -> None:
    """Compare the seconds a round with a plain loop of torch: residual networks, LSTM, transformer, on one core."""
    from benchmarks.loops import measure

    measure(out, turns, 0.0 if quick else 1.0)


@app.command()
def methods(
    out: Annotated[Path, typer.Option(help="Folder of the results; its runs are not repeated.")] = OUT / "methods",
    only: Annotated[
        list[str] | None, typer.Option(help="A federation: digits or fashion-mnist (repeatable) [default: both].")
    ] = None,
    draw: Annotated[bool, typer.Option("--draw", help="Run nothing: tables and figure of the runs in --out.")] = False,
    page: Annotated[Path | None, typer.Option(help="Page whose tables are replaced, such as docs/methods.md.")] = None,
) -> None:
    """Compare all methods on the same seeds of the same federations."""
    from benchmarks.methods import measure

    measure(out, only, draw, page)


@app.command()
def tune(
    out: Annotated[Path, typer.Option(help="Folder of the results; its real runs are not repeated.")] = OUT / "tune",
    races: Annotated[int, typer.Option(min=1, help="Races of every kind.")] = 2000,
    seeds: Annotated[int, typer.Option(min=30, help="Seeds of the real federation.")] = 40,
    page: Annotated[Path | None, typer.Option(help="Page whose tables are replaced, such as docs/tune.md.")] = None,
) -> None:
    """Count false winners of `fedalpha tune` among ten names for one rule, and how often a known winner is found."""
    from benchmarks.tune import measure

    measure(out, races, seeds, page, lambda line: print(line, flush=True))
    print(f"written to {out}: results.json, table.md, scores.json")


@app.command()
def asynchrony(
    out: Annotated[Path, typer.Option(help="Folder of the results; its cells are not run again.")] = OUT / "async",
    page: Annotated[Path | None, typer.Option(help="Page whose tables are replaced, such as docs/async.md.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Cells at a time.")] = 2,
    seeds: Annotated[
        str | None, typer.Option(help="Seeds instead of those of the study, such as 2, 3,4 or 0-4.")
    ] = None,
) -> None:
    """Synchronous, over-selection and buffered servers under four strategies and two kinds of speeds."""
    from benchmarks.asynchrony import measure

    print(measure(out, page, jobs, seeds))


@app.command()
def atlas(
    step: Annotated[str, typer.Argument(help="tune, choose, race, test or page.")],
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = OUT / "atlas",
    runs: Annotated[Path, typer.Option(help="Folder of the runs, from which a step resumes.")] = Path("runs/atlas"),
    only: Annotated[list[str] | None, typer.Option(help="A regime (repeatable) [default: all].")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Cells at a time.")] = 2,
    page: Annotated[Path | None, typer.Option(help="Page whose tables are replaced, such as docs/atlas.md.")] = None,
) -> None:
    """Compare methods in regimes where something goes wrong, all tuned alike, and test a rule of this library."""
    from benchmarks.atlas import run

    run(step, out, runs, only or (), jobs, page, lambda line: print(line, flush=True))  # type: ignore[arg-type]


@app.command()
def phases(
    out: Annotated[Path, typer.Option(help="Folder for phases.json and phases.md.")] = OUT / "phases",
    turns: Annotated[int, typer.Option(min=1, help="Runs of each variant, in turns.")] = 3,
    rounds: Annotated[int, typer.Option(min=2, help="Rounds of a run; the first is not counted.")] = 4,
    page: Annotated[Path | None, typer.Option(help="Page whose table is replaced: docs/deployment.md.")] = None,
) -> None:
    """What a round of a live Flower federation costs by where its losses come from: seconds, messages, models."""
    from benchmarks.phases.measure import measure

    typer.echo(measure(out, turns, rounds, page=page))


def main() -> None:
    """Run the command line; an error is shown in one line."""
    try:
        app(prog_name="python -m benchmarks")
    except (ValueError, OSError, RuntimeError, ImportError) as error:
        sys.exit(f"benchmarks: {error}")


@app.command("bytes")
def bytes_(
    before: Annotated[str, typer.Argument(help="The commit to compare with.")],
    after: Annotated[str, typer.Option(help="The other commit.")] = "HEAD",
    only: Annotated[str, typer.Option(help="Only the settings whose name contains this text.")] = "",
    out: Annotated[
        Path, typer.Option(help="Folder for bytes.json; what it holds of these commits is not run again.")
    ] = OUT / "bytes",
) -> None:
    """Compare model SHA-256, cohorts, alpha and losses of two commits over 37 settings, on this machine."""
    from benchmarks.bytes import compare

    differ = 0
    for name, found in compare(before, after, only, out):
        typer.echo(f"{found:<20} {name}")
        differ += found != "equal"
    raise typer.Exit(min(differ, 1))


@app.command()
def turns(
    before: Annotated[str, typer.Argument(help="The commit to compare with.")],
    after: Annotated[str, typer.Option(help="The other commit.")] = "HEAD",
    count: Annotated[int, typer.Option("--turns", min=1, help="Processes per commit and workload.")] = 7,
    quick: Annotated[
        bool, typer.Option("--quick", help="Tiny sizes: shows that it works, nothing about speed.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for turns.json.")] = OUT / "turns",
) -> None:
    """Compare the seconds a round of two commits, workloads A and B, in turns; the machine should be idle."""
    from benchmarks.speed.workloads import FULL, QUICK
    from benchmarks.turns import compare, line, store

    found = []
    for one in compare(before, after, count, sizes=QUICK if quick else FULL):
        found.append(one)
        typer.echo(line(*one))
    store(out, before, after, found)


@app.command()
def secure(
    quick: Annotated[bool, typer.Option("--quick", help="Tiny sizes: shows that it works.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for results.json and table.md.")] = OUT / "secure",
    page: Annotated[Path | None, typer.Option(help="Page whose table is replaced, such as docs/privacy.md.")] = None,
) -> None:
    """Measure bytes and seconds of secure sums beside plain ones, and how they grow with clients and losses."""
    from benchmarks.secure import run, table

    typer.echo(table(run(out, quick, page)))


@app.command()
def uploads(
    out: Annotated[Path, typer.Option(help="Folder of the study.")] = OUT / "uploads",
    page: Annotated[Path | None, typer.Option(help="Page whose table is replaced, such as docs/uploads.md.")] = None,
) -> None:
    """Measure compressed uploads on Fashion-MNIST: rounds and bytes to 60 %, and what they cost in accuracy."""
    from benchmarks.uploads import run

    typer.echo(run(out, page))


@app.command()
def scaling(
    clients: Annotated[int | None, typer.Option(min=1, help="Clients in a round: prints the model for them.")] = None,
    parameters: Annotated[int, typer.Option(min=1, help="Parameters of the model.")] = 1_000_000,
    seconds: Annotated[float, typer.Option(min=0, help="Processor seconds that a client trains.")] = 30.0,
    upload: Annotated[str | None, typer.Option(help="How clients write updates [default: whole models].")] = None,
    link: Annotated[float, typer.Option(min=1e-3, help="The server's link, Mbit/s each way.")] = 1000.0,
    client_link: Annotated[float, typer.Option(min=1e-3, help="A client's link, Mbit/s each way.")] = 20.0,
    cores: Annotated[int, typer.Option(min=1, help="Cores of the server.")] = 4,
    workers: Annotated[int, typer.Option(min=1, help="Cores of a cluster that simulates the clients.")] = 1,
    check: Annotated[
        bool, typer.Option("--check", help="Measure this machine's rates, and Ray with 1 and 2 workers.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="With --check: tiny sizes.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for results.json.")] = OUT / "scaling",
    page: Annotated[Path | None, typer.Option(help="Page whose tables are replaced, such as docs/scaling.md.")] = None,
) -> None:
    """Model what a round costs on a cluster and in a live federation, for given numbers; --check measures."""
    from benchmarks.scaling import MBIT, Setting, answer, run

    if clients is not None:
        given = Setting(clients, parameters, seconds, upload, link * MBIT, client_link * MBIT, cores, workers)
        typer.echo(answer(given))
    else:
        typer.echo(run(out, quick, page, redraw=not check))


@app.command()
def tree(
    before: Annotated[str, typer.Argument(help="The commit to compare with.")],
    after: Annotated[str, typer.Option(help="The other commit.")] = "HEAD",
    out: Annotated[Path, typer.Option(help="Folder for tree.json and table.md.")] = OUT / "tree",
) -> None:
    """Compare the structure of two commits: modules, longest functions and signatures, import cycles, weight."""
    from benchmarks.tree import compare

    typer.echo(compare(before, after, out))


if __name__ == "__main__":
    main()

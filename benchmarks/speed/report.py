"""Writes the results: ``results.json``, ``table.md`` and two pictures."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.speed.environments import PEERS
from benchmarks.speed.goals import OURS, Goal, arithmetic, goals, same_work
from benchmarks.speed.results import RATES, Cell, Cells, cells, rates
from benchmarks.speed.workloads import FULL, Sizes


def write(record: dict[str, Any], sizes: Sizes, out: Path) -> None:
    """Everything in ``record`` so far."""
    found = cells(record["runs"], record["initial"])
    measured = rates(record["rates"])
    promised = goals(found, measured, sizes)
    record["goals"] = [dataclasses.asdict(goal) | {"verdict": goal.verdict} for goal in promised]
    record["other_work"] = [f"{c.workload}, {c.title}" for c in same_work(found, sizes.tolerance)]
    (out / "results.json").write_text(json.dumps(record, indent=1) + "\n")
    (out / "table.md").write_text(table(record, found, promised, measured, sizes))
    draw_rounds(found.values(), out / "rounds.png")
    draw_memory(found.values(), out / "memory.png")


def table(
    record: Mapping[str, Any],
    found: Cells,
    promised: Sequence[Goal],
    measured: Mapping[str, float],
    sizes: Sizes,
) -> str:
    """The results as Markdown."""
    machine = record["machine"]
    memory = "" if machine["memory"] is None else f", {machine['memory'] / 2**30:.0f} GiB"
    turns: dict[str, int] = {}
    for run in record["runs"]:
        turns[run["workload"]] = max(turns.get(run["workload"], 0), run["repetition"])
    counts = {n: ", ".join(w for w, m in turns.items() if m == n) for n in sorted(set(turns.values()))}
    repeated = " and ".join(f"{n} ({names})" if len(counts) > 1 else f"{n}" for n, names in counts.items())
    lines = [
        "# Speed",
        "",
        f"{machine['processor']}, {machine['cores']} cores{memory}; {machine['system']}; Python {machine['python']}.",
        "",
        f"Medians (smallest–largest) over the rounds of {repeated} interleaved repetitions; every repetition is a "
        f"fresh process of {sizes.rounds} rounds (B, C: {sizes.rounds_of('B')}) whose first one warms up "
        "and stands apart. Nothing is evaluated inside the timed part. The "
        "robust rules of workload E run once. "
        "Memory is the largest sum of PSS over all processes of a contestant, watched in a repetition of its own.",
        "",
    ]
    if dataclasses.replace(sizes, repetitions=FULL.repetitions, rounds=FULL.rounds) != FULL:
        lines += ["**These are not the sizes of the goals** (see `sizes` in results.json): judge no speed by them.", ""]
    groups: dict[str, list[Cell]] = {}
    for cell in found.values():
        groups.setdefault(cell.workload, []).append(cell)
    lines += ["## Goals", "", "| workload | goal | measured | wanted | |", "|---|---|---|---|---|"]
    lines += [_goal(goal) for goal in promised if goal.workload in record["workloads"]]
    for workload, text in record["workloads"].items():
        lines += [
            "",
            f"## {'Start-up' if workload == 'start' else f'Workload {workload}'}",
            "",
            f"{text[0].upper()}{text[1:]}.",
            "",
        ]
        lines += _workload(workload, groups.get(workload, []), record)
    if measured:
        lines += ["", "## The machine", "", *_machine(record, measured, arithmetic(found, sizes))]
    lines += ["", "## Versions", ""]
    lines += [f"- {title}: {', '.join(f'{n} {v}' for n, v in found.items())}" for title, found in _versions(record)]
    return "\n".join(lines) + "\n"


def draw_rounds(found: Iterable[Cell], path: Path) -> None:
    """Seconds per round in workloads A and B, with a bar from the smallest to the largest."""
    from fedalpha.analysis.plots import figure
    from fedalpha.store.exports import COLOURS

    timed = [[c for c in found if c.workload == w and c.median is not None] for w in ("A", "B")]
    timed = [sorted(group, key=lambda c: c.median or 0) for group in timed if group]
    if not timed:
        return
    fig, axes = figure(6.4 * len(timed), 3.6, len(timed))
    for ax, group in zip(axes, timed, strict=True):
        medians = [c.median or 0.0 for c in group]
        spreads = [c.spread or (0.0, 0.0) for c in group]
        low = [m - s[0] for m, s in zip(medians, spreads, strict=True)]
        high = [s[1] - m for m, s in zip(medians, spreads, strict=True)]
        colours = [COLOURS[0] if c.name == OURS else COLOURS[-1] for c in group]
        ax.barh([_short(c) for c in group], medians, xerr=[low, high], color=colours, ecolor="#333333", capsize=3)
        ax.set_xscale("log")
        ax.invert_yaxis()
        ax.set_xlabel("seconds a round (log scale; median, smallest to largest)")
        ax.set_title(f"Workload {group[0].workload}", loc="left")
    fig.savefig(path, dpi=150)


def draw_memory(found: Iterable[Cell], path: Path) -> None:
    """Peak memory and seconds per round against the number of registered clients."""
    from fedalpha.analysis.plots import figure
    from fedalpha.store.exports import COLOURS

    populations = [c for c in found if c.workload == "C" and c.median is not None]
    if not populations:
        return
    fig, (left, right) = figure(9.6, 3.6, 2)
    clients = [int(c.name) for c in populations]
    left.plot(clients, [(c.pss or 0) / 1e9 for c in populations], "o-", color=COLOURS[0])
    left.set_ylabel("peak memory, summed PSS (GB)")
    right.plot(clients, [c.median or 0.0 for c in populations], "o-", color=COLOURS[0])
    spreads = [c.spread or (0.0, 0.0) for c in populations]
    right.fill_between(clients, [s[0] for s in spreads], [s[1] for s in spreads], color=COLOURS[0], alpha=0.2)
    right.set_ylabel("seconds a round")
    for ax in (left, right):
        ax.set_xscale("log")
        ax.set_ylim(bottom=0)
        ax.set_xlabel("registered clients")
    fig.savefig(path, dpi=150)


def _workload(workload: str, group: Sequence[Cell], record: Mapping[str, Any]) -> list[str]:
    rounds = workload in "ABCD"
    head = ["", "seconds a round" if rounds else "seconds"]
    head += ["first round"] if workload != "start" else []
    head += ["memory (GB)"] if workload != "E" else ["GB/s of updates", "memory besides them (models)"]
    head += ["times ours", "loss after 2 rounds", "progress"] if workload in "AB" else []
    ours = next((c.median for c in group if c.name == OURS), None)
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for cell in sorted(group, key=lambda c: (c.name != OURS, list(PEERS).index(c.name) if c.name in PEERS else 0)):
        if cell.median is None:
            lines.append(f"| {cell.title} | {cell.error or 'not timed yet'} |" + " |" * (len(head) - 2))
            continue
        low, high = cell.spread or (cell.median, cell.median)
        row = [cell.title, f"{_number(cell.median)} ({_number(low)}–{_number(high)})"]
        row += [_number(cell.first)] if workload != "start" else []
        if workload == "E":
            details = cell.details or {}
            row.append(_number(details["bytes"] / cell.median / 1e9))
            row.append(_number(None if cell.extra_bytes is None else cell.extra_bytes / details["model_bytes"]))
        else:
            row.append(_number(None if cell.pss is None else cell.pss / 1e9))
        if workload in "AB":
            row += [
                _number(cell.median / ours if ours else None),
                "–" if cell.loss is None else f"{cell.loss:.4f}",
                _number(cell.progress),
            ]
        if cell.error:
            row[0] += f" (a run failed: {cell.error})"
        lines.append(f"| {' | '.join(row)} |")
    for name, reason in record["unavailable"].items():
        if workload in PEERS[name].workloads:
            lines.append(f"| {PEERS[name].title} | {reason} |" + " |" * (len(head) - 2))
    if workload in "AB":
        start = record["initial"].get(workload)
        lines += [
            "",
            f"Progress: how far the test loss falls from {_number(start)} in two rounds, relative to the plain loop.",
        ]
        other = [text for text in record["other_work"] if text.startswith(f"{workload},")]
        if other:
            lines += ["", f"**Not the same work** (progress off by more than the tolerance): {'; '.join(other)}."]
    return lines


def _machine(record: Mapping[str, Any], measured: Mapping[str, float], ours: float | None) -> list[str]:
    lines = ["| | rate | workload A over it |", "|---|---|---|"]
    for name, value in measured.items():
        copy = name.startswith("copy")
        share = None if copy or ours is None else ours / value
        lines.append(f"| {RATES[name]} | {value:.1f} {'GB/s' if copy else 'GFLOP/s'} | {_number(share)} |")
    lines += ["", f"The peak is {record['roofline']}. A fused multiply-add is two operations."]
    if record["no_peak"]:
        lines += [
            "",
            f"**Fused multiply-adds were not measured**: {record['no_peak']}. The peak is that of a library, which the "
            "machine may exceed.",
        ]
    return [*lines, "", "A copy counts every byte twice, as it is read and written."]


def _goal(goal: Goal) -> str:
    unit = f" {goal.unit}" if goal.unit else ""
    wanted = f"{goal.sense} {goal.bound:g}{unit}"
    wanted += f" (at least {goal.sense} {goal.enough:g})" if goal.enough is not None else ""
    measured = "–" if goal.value is None else f"{_number(goal.value)}{unit}"
    verdict = {"met": "met", "resolved": "the lesser bound is met"}.get(goal.verdict, goal.verdict)
    return f"| {goal.workload} | {goal.text} | {measured} | {wanted} | {verdict} |"


def _versions(record: Mapping[str, Any]) -> list[tuple[str, Mapping[str, str]]]:
    found = {}
    for run in record["runs"]:
        if run["workload"] in ("A", "B") and run["versions"]:
            found[run["title"]] = run["versions"]
    return list(found.items())


def _short(cell: Cell) -> str:
    return cell.title.partition(":")[0].partition(",")[0]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"

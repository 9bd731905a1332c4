"""The processors on which cells ran, because the last bits of results depend on the processor.

Cells that were stored before processors were recorded are counted as one kind, "not recorded".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fedalpha.report.findings import Findings
from fedalpha.study import Result

NOT_RECORDED = "not recorded"


def processor(result: Result) -> str:
    """The processor of a cell, its instruction sets, and numba; several if the cell was resumed on another machine."""
    machines = result.about.get("machines", [result.about["versions"]])
    return ", then ".join(dict.fromkeys(map(_described, machines)))


def _described(versions: Mapping[str, str]) -> str:
    if "processor" not in versions:
        return NOT_RECORDED
    return f"{versions['processor']}; {versions['instruction_sets']}; numba {versions['numba']}"


def processors(findings: Findings) -> list[str]:
    """The distinct processors of a study's cells."""
    return list(dict.fromkeys(processor(result) for result in findings.results.values()))


def mixed_pairs(findings: Findings, case: str) -> dict[str, list[int]]:
    """The seeds on which a strategy and the reference ran on different processors, by strategy."""
    by_strategy = findings.of(case)
    reference = by_strategy[findings.study.against]
    found = {}
    for strategy, by_seed in by_strategy.items():
        common = sorted(by_seed.keys() & reference.keys())
        seeds = [seed for seed in common if processor(by_seed[seed]) != processor(reference[seed])]
        if seeds:
            found[strategy] = seeds
    return found


def processor_note(findings: Findings, case: str, strategy: str) -> str:
    """The note in a table for a strategy whose paired differences mix processors; empty if they do not."""
    seeds = mixed_pairs(findings, case).get(strategy)
    return f"another processor than {findings.study.against} on seeds {seeds_text(seeds)}" if seeds else ""


def processor_table(findings: Findings, case: str) -> tuple[list[str], list[list[str]]]:
    """Strategies × seeds by processor; no rows if all cells of the study have the same."""
    header = ["processor", "strategy", "seeds"]
    kinds = processors(findings)
    if len(kinds) < 2:
        return header, []
    body = []
    for kind in kinds:
        for strategy, by_seed in findings.of(case).items():
            seeds = [seed for seed, result in by_seed.items() if processor(result) == kind]
            if seeds:
                body.append([kind, strategy, seeds_text(seeds)])
    return header, body


def seeds_text(seeds: Iterable[int]) -> str:
    """Seeds as a text for tables.

    >>> seeds_text([5, 0, 1, 2, 8, 9])
    '0-2, 5, 8, 9'
    """
    runs: list[list[int]] = []
    for seed in sorted(seeds):
        if runs and seed == runs[-1][-1] + 1:
            runs[-1].append(seed)
        else:
            runs.append([seed])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)

"""A comparison: the runs of several strategies over the same seeds, as one object."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedalpha.analysis.comparison import Summary, summarise
from fedalpha.analysis.history import History, frame, read
from fedalpha.analysis.measures import Curve, Measure, curve
from fedalpha.analysis.measures.time import Seconds
from fedalpha.analysis.measures.until import Rounds
from fedalpha.analysis.tables import STATISTICS, latex_table, markdown_table, number, statistics
from fedalpha.store.exports import csv_text, html_table
from fedalpha.store.files import CONFIG_BYTES, read_bytes, write_atomically
from fedalpha.store.inside import names
from fedalpha.store.kinds import RUN, STUDY, check_kind
from fedalpha.text import counted, nearest

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RECORD = "comparison.json"
MOST_RUNS = 10**6
"""A comparison has no more runs: a file of some megabytes could name many times as many."""


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Histories by strategy and seed; the first strategy is the reference of the paired differences.

    ``comparison["FedAvg"]`` are the histories of a strategy by seed. ``target`` is the p of R_p, a fraction.
    """

    runs: Mapping[str, Mapping[int, History]]
    target: float = 0.6
    title: str = ""
    interrupted: bool = False
    """Whether runs are missing because of Ctrl-C."""

    def __post_init__(self) -> None:
        if not self.runs or not all(self.runs.values()):
            raise ValueError("a comparison needs at least one run of every strategy")

    @property
    def strategies(self) -> list[str]:
        return list(self.runs)

    @property
    def seeds(self) -> list[int]:
        """The seeds of all strategies."""
        return list(dict.fromkeys(seed for by_seed in self.runs.values() for seed in by_seed))

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[str]:
        return iter(self.runs)

    def __getitem__(self, strategy: str) -> Mapping[int, History]:
        if strategy not in self.runs:
            raise ValueError(f"unknown strategy {strategy!r}; {nearest(strategy, self.runs)}")
        return self.runs[strategy]

    def __repr__(self) -> str:
        strategies = counted(len(self.runs), "strategy", "strategies")
        end = "; interrupted" if self.interrupted else ""
        return f"Comparison({strategies}, {counted(len(self.seeds), 'seed')}: {', '.join(self.runs)}{end})"

    @cached_property
    def curves(self) -> dict[str, dict[int, Curve]]:
        """The numbers of every run."""
        return {s: {seed: curve(h.rows) for seed, h in by_seed.items()} for s, by_seed in self.runs.items()}

    @cached_property
    def measures(self) -> list[Measure]:
        """What the table shows: the final accuracy, R_p and with a clock T_p of the target; or the loss alone.

        The loss is shown if there is no accuracy.
        """
        ends = [h.rows[-1] for by_seed in self.runs.values() for h in by_seed.values()]
        if all(row.get("accuracy") is None for row in ends):
            return [Measure.parse("loss")]
        timed = [Seconds(100 * self.target)] if all(row.get("time") is not None for row in ends) else []
        return [Measure.parse("accuracy"), Rounds(100 * self.target), *timed]

    def summary(self, measure: str | None = None) -> list[Summary]:
        """One `Summary` per strategy: mean, interval, paired difference, p-value. The final accuracy by default."""
        return summarise(self.curves, self.measures[0] if measure is None else Measure.parse(measure))

    @cached_property
    def tables(self) -> list[list[Summary]]:
        """The summaries of every measure of the table."""
        return [summarise(self.curves, measure) for measure in self.measures]

    @property
    def rows(self) -> tuple[list[str], list[list[str]]]:
        """The table for people: its header and its body."""
        unit = "points" if self.measures[0].scale == 100 else "final loss"
        headings = ["final accuracy (%)" if m.text == "accuracy" else m.heading for m in self.measures]
        body = []
        for found in zip(*self.tables, strict=True):
            first = found[0]
            difference = "reference" if first is self.tables[0][0] else first.difference_text
            body.append([first.strategy, str(len(first.values)), *(row.text for row in found), difference])
        return ["strategy", "seeds", *headings, f"paired difference ({unit})"], body

    def table(self, form: str = "markdown") -> str:
        """The table as ``"markdown"``, ``"latex"`` (package booktabs) or ``"csv"``.

        CSV has the numbers themselves, with intervals and p-values; accuracies are fractions.
        """
        if form == "csv":
            lines = [statistics(row, self.strategies[0]) for rows in self.tables for row in rows]
            return csv_text([STATISTICS, *([number(v) for v in line] for line in lines)])
        writers = {"markdown": markdown_table, "latex": latex_table}
        if form not in writers:
            raise ValueError(f"form = {form!r} is not one of markdown, latex, csv")
        return writers[form](*self.rows) + "\n"

    def _repr_html_(self) -> str:
        return html_table("mean ± 95 % over seeds (Student t); the final round", *self.rows)

    def plot(self, ax: Axes | None = None, column: str | None = None) -> Figure:
        """Draw accuracy and loss over rounds, or one ``column``, with 95 % bands over seeds; returns the figure.

        On an axis ``ax`` of your own one column is drawn, the accuracy by default.
        """
        from fedalpha.analysis.plots import figure_of

        histories = {s: list(by_seed.values()) for s, by_seed in self.runs.items()}
        return figure_of(histories, ax, column, title="" if ax is not None else self.title, target=self.target)

    def to_pandas(self) -> pd.DataFrame:
        """All rows as one table, indexed by strategy, seed and round. Needs pandas."""
        rows = [
            {"strategy": s, "seed": seed, **row}
            for s, by_seed in self.runs.items()
            for seed, history in by_seed.items()
            for row in history.rows
        ]
        return frame(rows).set_index(["strategy", "seed", "round"])

    def save(self, folder: str | Path) -> Path:
        """Write a folder per run, the tables and the curves. Folders of runs that are there already are kept."""
        place = Path(folder)
        check_kind(place, "a comparison", RUN, STUDY)
        for strategy, by_seed in self.runs.items():
            for seed, history in by_seed.items():
                if not (place / run_name(strategy, seed) / "history.jsonl").exists():
                    history.save(place / run_name(strategy, seed))
        self.write_tables(place)
        return place

    def write_tables(self, folder: Path, seeds: list[int] | None = None) -> None:
        """Write ``comparison.json``, ``curves.png`` and the tables; ``seeds``: those that were planned."""
        from fedalpha.store.exports import write_figure

        record = {
            "strategies": self.strategies,
            "seeds": self.seeds if seeds is None else seeds,
            "target": self.target,
            "table": self._record(),
        }
        write_atomically(folder / RECORD, (json.dumps(record, indent=2) + "\n").encode())
        for ending, form in (("csv", "csv"), ("md", "markdown"), ("tex", "latex")):
            write_atomically(folder / f"table.{ending}", self.table(form).encode())
        write_figure(self.plot(), folder / "curves.png", dpi=130)

    def _record(self) -> list[dict[str, Any]]:
        found = []
        for rows in zip(*self.tables, strict=True):
            first, body = rows[0], {"strategy": rows[0].strategy, "seeds": len(rows[0].values)}
            name = first.measure.text
            line: dict[str, Any] = {**body, name: [v.value for v in first.values.values()]}
            if len(rows) > 1:
                line["rounds_to_target"] = [int(v.value) if v.reached else None for v in rows[1].values.values()]
            line[f"{name}_text"] = first.text
            line |= {"rounds_text": rows[1].text} if len(rows) > 1 else {}
            line |= {"seconds_text": rows[2].text} if len(rows) > 2 else {}
            line["difference_text"] = "reference" if first is self.tables[0][0] else first.difference_text
            found.append(line)
        return found

    @staticmethod
    def load(folder: str | Path) -> Comparison:
        """The comparison in a folder that `save` or ``fedalpha compare --out`` wrote; the runs that are finished."""
        place = Path(folder)
        strategies, seeds, target = _read_record(place)
        there = set(names(place))
        runs = {
            s: {
                seed: history
                for seed in seeds
                if run_name(s, seed) in there
                and "history.jsonl" in names(place / run_name(s, seed), place)  # a folder that is a link is refused
                and not (history := read(place / run_name(s, seed))).interrupted
            }
            for s in strategies
        }
        found = {s: by_seed for s, by_seed in runs.items() if by_seed}
        if not found:
            raise ValueError(
                f"{place} has no finished run; `fedalpha compare --out {place}` with its settings plays them"
            )
        return Comparison(found, target)


def _read_record(place: Path) -> tuple[list[str], list[int], float]:
    """The strategies, the seeds and the target of a comparison's folder."""
    try:
        record = json.loads(read_bytes(place / RECORD, most=CONFIG_BYTES))
        strategies, seeds, target = record["strategies"], record["seeds"], record["target"]
        texts = all(isinstance(s, str) and run_name(s, 0) for s in strategies)
        if not texts or not all(type(n) is int and n >= 0 for n in seeds) or not 0 <= target <= 1:
            raise ValueError
        if len(strategies) * len(seeds) > MOST_RUNS:
            raise ValueError
    except FileNotFoundError:
        raise ValueError(
            f"{place} holds no comparison: it has no {RECORD}; `fedalpha compare --out` writes one"
        ) from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f"{place / RECORD} is damaged; run the comparison again to write it") from None
    return strategies, seeds, target


def run_name(strategy: str, seed: int) -> str:
    """The name of a run's folder in a comparison.

    >>> run_name("switch(FedSoftBetter(T=0.2), FedAvg, at=20)", 3)
    'switch-FedSoftBetter-T=0.2-FedAvg-at=20-seed3'
    """
    kept = "".join(c if c.isalnum() or c in "=." else " " for c in strategy)
    return "-".join([*kept.split(), f"seed{seed}"])

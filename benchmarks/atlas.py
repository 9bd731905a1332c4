"""The atlas: methods × regimes (``studies/atlas.toml``), and the test of the rule that its tuning half chooses.

``python -m benchmarks atlas STEP``, in this order; every step resumes, and stores what it finds in a small file of its
own as soon as a regime is finished:

- ``tune``: the settings of every method in every regime, on tuning seeds and clients;
- ``choose``: FedAvg and our rules, as tuned, on other seeds of the tuning half: which rule is to be tested, with how
  many seeds, and the accuracy that counts as reached in each regime;
- ``race``: all methods on the reported half, 10 seeds, or 20 where the intervals are wide;
- ``test``: the chosen rule against tuned FedAvg on ``studies/atlas-held-out.toml``;
- ``page``: tables and heat map in docs/atlas.md, which says how results are judged. From stored rows alone.

Runs themselves are kept under ``runs/`` and are not part of the results.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from benchmarks.pages import put
from fedalpha.analysis.stats import Difference, holm, interval, paired
from fedalpha.study import Cell, Store, Study, load_study, read_study, read_tuning, run_study, study, tune
from fedalpha.text import nearest

Step = Literal["tune", "choose", "race", "test", "page"]
STEPS: tuple[Step, ...] = get_args(Step)
ROOT = Path(__file__).parents[1]
ATLAS, HELD_OUT = ROOT / "studies" / "atlas.toml", ROOT / "studies" / "atlas-held-out.toml"
OURS = (
    "FedLean",
    "aligned(FedLean(share=0.5), cosine=0.9)",
    "FedRegret",
    "FedBalance",
    "adaptive(FedLean(share=0.5), FedAvg, skew=0)",
    "adaptive(FedExP, FedAvg, skew=0)",
)
"""The rules of this library from which one is chosen: five families."""
CHOICE_SEEDS = "5000-5009"
SEEDS, MORE_SEEDS = "0-9", "0-19"
MARGIN = 0.005
"""Non-inferiority: a rule may be this much less accurate than tuned FedAvg."""
LEVEL, POWER = 0.05, 0.8
WIDE = 0.01
"""Half of a regime's intervals being wider than ± this asks for more seeds."""
ACCURACY, WORST = "accuracy", "worst_tenth_accuracy"
Record = dict[str, Any]
Say = Callable[[str], None]


def regimes(file: Path, only: Sequence[str] = (), **changes: Any) -> dict[str, Study]:
    """A study for each case of a file, by the name of the case; ``changes`` are for tests."""
    whole = read_study(file)
    if changes:
        whole = whole.with_changes(**changes)
    names = [str(case["name"]) for case in whole.cases]
    for name in only:
        if name not in names:
            raise ValueError(f"unknown regime {name!r}; {nearest(name, names)}")
    found = {}
    for name, case in zip(names, whole.cases, strict=True):
        if not only or name in only:
            found[name] = whole.with_changes(name=f"{whole.name}-{slug(name)}", cases=(case,))
    return found


def slug(name: str) -> str:
    """The name of a file or folder.

    >>> slug("digits, strong label skew")
    'digits-strong-label-skew'
    """
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def find(one: Study, case: str, runs: Path, out: Path, jobs: int) -> None:
    """Find the settings of every method; they are stored with what the search took."""
    tune(one, runs / one.name, jobs=jobs, race=False)
    methods = read_tuning(runs / one.name)["cases"][case]["methods"]
    found = {
        name: {
            "text": method["text"],
            "settings": method["settings"],
            "rounds": method["rounds"],
            "candidates": len({c for g in method["generations"] for c in g["scores"]}),
        }
        for name, method in methods.items()
    }
    write(out / "tuned" / f"{slug(case)}.json", {"regime": case, "methods": found})


def plain(one: Study, case: str, tuned: Mapping[str, Any], part: str, seeds: str, methods: Sequence[str]) -> Study:
    """A study of FedAvg and other methods with the settings that were found, on one part of the clients and samples.

    It needs the stored settings alone, so that the runs of the search may be deleted.
    """
    (given,) = one.cases
    own = {name: dict(method["settings"]) for name, method in tuned["methods"].items()}
    cut = f"{part}(share={one.tune.clients})" if one.tune else None
    settings = {**one.settings, **{k: v for k, v in given.items() if k != "name"}, "part": cut}
    values = {
        "name": f"{one.name}-{part}",
        "strategies": ["FedAvg"],
        "seeds": seeds,
        "per_client": "none",
        "settings": settings,
        "cases": [{"name": case, **{k: v for k, v in own[one.against].items() if k != "strategy"}}],
        "methods": [{"name": name, **own[name]} for name in methods if name in own and name != one.against],
    }
    return study(values)


def rows(store: Store, cells: Sequence[Cell]) -> Record:
    """method → seed → what the page needs of a run: accuracies (of the worst tenth: the last one) and megabytes."""
    found: Record = {}
    for cell in cells:
        columns = store.get(cell.key).columns
        sent = np.nansum([_numbers(columns, "bytes_down"), _numbers(columns, "bytes_up")], axis=0)
        found.setdefault(cell.strategy, {})[str(cell.seed)] = {
            ACCURACY: [None if np.isnan(v) else round(float(v), 4) for v in _numbers(columns, ACCURACY)],
            WORST: round(float(_numbers(columns, WORST)[-1]), 4),
            "megabytes": round(float(sent.sum()) / 1e6, 3),
        }
    return found


def _numbers(columns: Mapping[str, Any], name: str) -> list[float]:
    return [np.nan if v is None else float(v) for v in columns[name]]


def final(runs: Mapping[str, Any], measure: str) -> list[float]:
    """The last value of each seed, in the order of seeds; an accuracy that is not known counts as 0."""
    ordered = [runs[seed] for seed in sorted(runs, key=int)]
    values = [one[ACCURACY][-1] if measure == ACCURACY else one[measure] for one in ordered]
    return [0.0 if v is None or math.isnan(v) else float(v) for v in values]


def choose(stored: Mapping[str, Record]) -> Record:
    """The rule that is tested, and how that follows from the tuning half alone.

    A rule is out if it is significantly less accurate than FedAvg in some regime (5 %, Holm over rules and regimes).
    Of the others the one with the largest sum is taken: its mean difference in accuracy, half of that in the worst
    tenth's, and its difference in the regime that is worst for it. If all are out, the largest sum of all is tested,
    and the page says so.
    """
    found: Record = {"rules": {}, "targets": {}}
    known = [rule for rule in OURS if all(rule in record["runs"] for record in stored.values())]
    each = {rule: {c: _difference(r["runs"], rule, ACCURACY) for c, r in stored.items()} for rule in known}
    flat = [(rule, d) for rule, row in each.items() for d in row.values()]
    corrected = zip(flat, holm([d.p for _, d in flat]), strict=True)
    out = {rule for (rule, d), p in corrected if d.mean < 0 and p < LEVEL}
    for rule, row in each.items():
        worst = [_difference(record["runs"], rule, WORST).mean for record in stored.values()]
        least = min(row, key=lambda case: row[case].mean)
        found["rules"][rule] = {
            "mean": float(np.mean([d.mean for d in row.values()])),
            "worst_tenth": float(np.mean(worst)),
            "least": [least, row[least].mean],
            "deviation": max(_deviation(record["runs"], rule) for record in stored.values()),
        }

    def score(rule: str) -> float:
        one = found["rules"][rule]
        return float(one["mean"] + one["worst_tenth"] / 2 + one["least"][1])

    found["qualified"] = [rule for rule in known if rule not in out]
    found["chosen"] = max(found["qualified"] or known, key=score)
    deviations = [_deviation(record["runs"], found["chosen"]) for record in stored.values()]
    found["seeds"] = max(20, seeds_for(deviations, len(regimes(HELD_OUT))))
    for case, record in stored.items():
        mean = float(np.mean(final(record["runs"]["FedAvg"], ACCURACY)))
        found["targets"][case] = max(1, math.floor(100 * mean) - 2)
    return found


def _difference(runs: Mapping[str, Any], rule: str, measure: str) -> Difference:
    common = sorted(runs[rule].keys() & runs["FedAvg"].keys(), key=int)
    mine, theirs = ({s: runs[name][s] for s in common} for name in (rule, "FedAvg"))
    return paired(final(mine, measure), final(theirs, measure))


def _deviation(runs: Mapping[str, Any], rule: str) -> float:
    gap = np.subtract(final(runs[rule], ACCURACY), final(runs["FedAvg"], ACCURACY))
    return float(np.std(gap, ddof=1)) if len(gap) > 1 else 0.0


def power(deviation: float, seeds: int, truth: float = 0.0) -> float:
    """The probability that a one-sided t test shows difference > −MARGIN, if the true difference is ``truth``.

    >>> round(power(0.01, 27), 2), round(power(0.005, 27), 2)
    (0.81, 1.0)
    """
    from scipy import stats

    if deviation == 0:
        return 1.0
    shift = (truth + MARGIN) / deviation * math.sqrt(seeds)
    return float(stats.nct.sf(stats.t.ppf(1 - LEVEL, seeds - 1), seeds - 1, shift))


def seeds_for(deviations: Sequence[float], count: int, most: int = 60) -> int:
    """The seeds with which *all* of ``count`` regimes show non-inferiority with probability POWER, at most ``most``.

    The regimes that are tested are others, so each is given the upper quartile of the deviations of those seen.
    """
    typical = float(np.quantile(deviations, 0.75))
    needed = (n for n in range(5, most) if power(typical, n) ** count >= POWER)
    return next(needed, most)


def wide(record: Record) -> bool:
    """Whether more than half of a regime's intervals are wider than ±WIDE: it then gets more seeds."""
    halves = [_difference(record["runs"], name, ACCURACY).half for name in record["runs"] if name != "FedAvg"]
    return float(np.mean(np.array(halves) > WIDE)) > 0.5


def race(one: Study, case: str, tuned: Mapping[str, Any], runs: Path, out: Path, jobs: int) -> None:
    """All methods on the reported half; more seeds where the first ones decide little."""
    for seeds in (SEEDS, MORE_SEEDS):
        plan = plain(one, case, tuned, "reported", seeds, one.names)
        record = played(plan, case, runs, jobs)
        write(out / "reported" / f"{slug(case)}.json", record)
        if not wide(record):
            return


def played(plan: Study, case: str, runs: Path, jobs: int) -> Record:
    """Run a study of one regime, and return what is stored of it."""
    cells = plan.cells()
    store = run_study(plan, runs / plan.name, jobs=jobs)
    return {"regime": case, "rounds": cells[0].settings.rounds, "runs": rows(store, cells)}


def settings_of(out: Path, case: str) -> Record:
    """The stored settings of a regime."""
    file = out / "tuned" / f"{slug(case)}.json"
    if not file.exists():
        raise ValueError(f"the regime {case!r} is not tuned yet; run the step tune")
    found: Record = json.loads(file.read_text(encoding="utf-8"))
    return found


def write(path: Path, content: Record) -> None:
    """A small file, one line per method."""
    path.parent.mkdir(parents=True, exist_ok=True)
    inner = {k: v for k, v in content.items() if not isinstance(v, dict)}
    parts = [f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in inner.items()]
    for key, table in ((k, v) for k, v in content.items() if isinstance(v, dict)):
        lines = [
            f"  {json.dumps(n, ensure_ascii=False)}: {json.dumps(v, ensure_ascii=False)}" for n, v in table.items()
        ]
        parts.append(f"{json.dumps(key)}: {{\n" + ",\n".join(lines) + "\n}")
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def read(folder: Path) -> dict[str, Record]:
    """The stored records of a folder, by regime."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    return {record["regime"]: record for record in found}


def comparisons(stored: Mapping[str, Record], measure: str) -> dict[str, dict[str, tuple[Difference, float]]]:
    """regime → method → the paired difference to FedAvg, and its p-value after Holm's correction over the whole map."""
    each = {
        (case, name): _difference(record["runs"], name, measure)
        for case, record in stored.items()
        for name in record["runs"]
        if name != "FedAvg"
    }
    found: dict[str, dict[str, tuple[Difference, float]]] = {}
    for ((case, name), difference), p in zip(each.items(), holm([d.p for d in each.values()]), strict=True):
        found.setdefault(case, {})[name] = difference, p
    return found


def verdicts(stored: Mapping[str, Record], rule: str) -> dict[str, tuple[Difference, float, float]]:
    """regime → the difference of a rule to FedAvg, p that it is not inferior, and p (Holm) that it is better.

    Not inferior in *every* regime: every single test must reject, so these p-values need no correction.
    """
    from scipy import stats

    found, better = {}, []
    for case, record in stored.items():
        d = _difference(record["runs"], rule, ACCURACY)
        gap = np.subtract(final(record["runs"][rule], ACCURACY), final(record["runs"]["FedAvg"], ACCURACY)) + MARGIN
        flat = float(np.ptp(gap)) < 1e-12
        not_worse = float(gap[0] <= 0) if flat else float(stats.ttest_1samp(gap, 0, alternative="greater").pvalue)
        found[case] = d, not_worse, 0.0
        better.append(d.p / 2 if d.mean > 0 else 1 - d.p / 2)
    return {case: (d, p, q) for (case, (d, p, _)), q in zip(found.items(), holm(better), strict=True)}


def sentences(accuracy: Mapping[str, Any], worst: Mapping[str, Any]) -> list[str]:
    """Which rule when: from the rows alone."""
    names = list(next(iter(accuracy.values())))

    def where(table: Mapping[str, Any], name: str, sign: int) -> list[str]:
        return [case for case, row in table.items() if sign * row[name][0].mean > 0 and row[name][1] < LEVEL]

    total = len(accuracy)
    ahead = {name: where(accuracy, name, 1) for name in names}
    behind = {name: where(accuracy, name, -1) for name in names}
    best = max(
        names, key=lambda n: (len(ahead[n]) - len(behind[n]), np.mean([r[n][0].mean for r in accuracy.values()]))
    )
    safe = [n for n in names if not behind[n] and ahead[n]]
    never = [n for n in names if not ahead[n]]
    lowest = max(names, key=lambda n: len(behind[n]))
    fair = max(names, key=lambda n: (len(where(worst, n, 1)), np.mean([r[n][0].mean for r in worst.values()])))
    return [
        f"Most often ahead of tuned FedAvg: **{best}**, significantly in {len(ahead[best])} of {total} regimes "
        f"({_list(ahead[best])}) and behind in {len(behind[best])} ({_list(behind[best])}).",
        f"Ahead somewhere and never significantly behind: {_list([f'**{n}**' for n in safe])}.",
        f"Never significantly ahead: {_list([f'**{n}**' for n in never])}.",
        f"Most often behind: **{lowest}**, in {len(behind[lowest])} regimes ({_list(behind[lowest])}).",
        f"For the worst tenth of the clients: **{fair}**, significantly ahead in {len(where(worst, fair, 1))} regimes "
        f"({_list(where(worst, fair, 1))}).",
    ]


def _list(texts: Sequence[str]) -> str:
    return ", ".join(texts) if texts else "none"


def table(found: Mapping[str, Mapping[str, tuple[Difference, float]]]) -> str:
    """Differences in points; bold where significant after correction."""
    names = list(next(iter(found.values())))
    lines = ["| regime | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    for case, row in found.items():
        cells = [f"{100 * row[n][0].mean:+.1f} ± {100 * row[n][0].half:.1f}" for n in names]
        marked = [f"**{text}**" if row[n][1] < LEVEL else text for n, text in zip(names, cells, strict=True)]
        lines.append(f"| {case} | " + " | ".join(marked) + " |")
    return "\n".join(lines)


def efforts(stored: Mapping[str, Record], targets: Mapping[str, int]) -> str:
    """FedAvg's accuracy, and what it takes to the target: median rounds, and megabytes at the method's mean a round."""
    names = list(next(iter(stored.values()))["runs"])
    lines = [
        "| regime | target | FedAvg | seeds | " + " | ".join(names) + " |",
        "|---|---:|---:|---:|" + "---:|" * len(names),
    ]
    for case, record in stored.items():
        runs = record["runs"]
        own = interval(final(runs["FedAvg"], ACCURACY)).text(1, 100)
        shown = [_rounds(runs[name], targets[case]) for name in names]
        lines.append(f"| {case} | {targets[case]} % | {own} | {len(runs['FedAvg'])} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def _rounds(runs: Mapping[str, Any], target: int) -> str:
    """The median of the rounds with its megabytes, or how many runs got there if fewer than half of them did."""
    reached, each = [], []
    for one in runs.values():
        at = [r for r, a in enumerate(one[ACCURACY]) if a is not None and a >= target / 100]
        reached.append(float(at[0]) if at else math.inf)
        each.append(one["megabytes"] / max(1, len(one[ACCURACY]) - 1))
    middle = float(np.median(reached))
    if not math.isfinite(middle):
        return f"{sum(map(math.isfinite, reached))} of {len(reached)}"
    return f"{middle:.0f} ({middle * float(np.mean(each)):.1f} MB)"


def page_text(out: Path) -> str:
    """What stands between the marks of docs/atlas.md."""
    stored, tested = read(out / "reported"), read(out / "held-out")
    choice = json.loads((out / "choice.json").read_text(encoding="utf-8")) if (out / "choice.json").exists() else None
    parts = []
    if stored and choice:
        accuracy, worst = comparisons(stored, ACCURACY), comparisons(stored, WORST)
        parts += ["### Which rule when", "\n".join(f"{i}. {s}" for i, s in enumerate(sentences(accuracy, worst), 1))]
        parts += ["![paired differences to tuned FedAvg](results/atlas/atlas.png)"]
        parts += ["**Accuracy minus tuned FedAvg's**, points, paired:", table(accuracy)]
        parts += ["**The worst tenth of the clients**, points, paired:", table(worst)]
        parts += [
            "**Rounds to the target**, median, and the megabytes (both ways) that so many rounds take:",
            efforts(stored, choice["targets"]),
        ]
    if choice:
        parts += ["### The rule that was chosen", _choice_text(choice)]
    if tested and choice:
        parts += ["### The test", _test_text(tested, choice["chosen"])]
    return "\n\n".join(parts) or "Nothing has been run yet."


def _choice_text(choice: Record) -> str:
    lines = [
        f"From the tuning half: `{choice['chosen']}`, to be tested with {choice['seeds']} seeds. "
        f"Qualified: {_list([f'`{r}`' for r in choice['qualified']])}.",
        "",
        "| rule | mean difference | worst tenth | its worst regime | largest deviation |",
        "|---|---:|---:|---|---:|",
    ]
    for rule, one in choice["rules"].items():
        case, least = one["least"]
        lines.append(
            f"| `{rule}` | {100 * one['mean']:+.2f} | {100 * one['worst_tenth']:+.2f} | {100 * least:+.2f} ({case}) | "
            f"{100 * one['deviation']:.2f} |"
        )
    return "\n".join(lines)


def _test_text(tested: Mapping[str, Record], rule: str) -> str:
    found = verdicts(tested, rule)
    everywhere = all(p < LEVEL for _, p, _ in found.values())
    ahead = [case for case, (_, _, q) in found.items() if q < LEVEL]
    said = "is" if everywhere else "is **not** shown to be"
    lines = [
        f"`{rule}` {said} within {100 * MARGIN:g} points of tuned FedAvg, or better, in all {len(found)} regimes; it "
        f"is significantly better in {len(ahead)} ({_list(ahead)}).",
        "",
        "| regime | seeds | difference (points) | p, not inferior | p, better (Holm) | power at no difference |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for case, (d, p, q) in found.items():
        able = power(_deviation(tested[case]["runs"], rule), d.n)
        lines.append(f"| {case} | {d.n} | {d.text(2, 100)} | {p:.2g} | {q:.2g} | {100 * able:.0f} % |")
    return "\n".join(lines)


def draw(stored: Mapping[str, Record], path: Path) -> None:
    """The heat map: a row per method, a column per regime; bold where it is significant."""
    from fedalpha.analysis.plots import figure
    from fedalpha.store.exports import write_figure

    found = comparisons(stored, ACCURACY)
    cases, names = list(found), list(next(iter(found.values())))
    values = np.array([[100 * found[case][name][0].mean for case in cases] for name in names])
    fig, (ax,) = figure(2.6 + 0.62 * len(cases), 1.8 + 0.3 * len(names))
    limit = 10.0
    image = ax.imshow(np.clip(values, -limit, limit), cmap="RdBu", vmin=-limit, vmax=limit, aspect="auto")
    for i, name in enumerate(names):
        for j, case in enumerate(cases):
            sure = found[case][name][1] < LEVEL
            colour = "white" if abs(values[i, j]) > 0.6 * limit else "black"
            weight = "bold" if sure else "normal"
            ax.text(j, i, f"{values[i, j]:+.1f}", ha="center", va="center", fontsize=7, color=colour, weight=weight)
    ax.grid(visible=False)
    ax.set_xticks(range(len(cases)), cases, rotation=40, ha="right", fontsize=8)
    ax.set_yticks(range(len(names)), names, fontsize=8)
    fig.colorbar(image, ax=ax, label="points of accuracy over tuned FedAvg (cut at ±10)", shrink=0.8)
    write_figure(fig, path, path.parent, dpi=110)


def run(step: Step, out: Path, runs: Path, only: Sequence[str], jobs: int, page: Path | None, say: Say = print) -> None:
    """One step of the atlas; see the top of this module."""
    if step not in STEPS:
        raise ValueError(f"unknown step {step!r}; {nearest(step, STEPS)}")
    if step in ("tune", "race"):
        if step == "race" and not (out / "choice.json").exists():
            raise ValueError(
                f"{out} has no choice.json; run the steps tune and choose first, and commit what they store"
            )
        for case, one in regimes(ATLAS, only).items():
            if step == "race":
                race(one, case, settings_of(out, case), runs, out, jobs)
            elif not (out / "tuned" / f"{slug(case)}.json").exists():
                find(one, case, runs, out, jobs)
            say(f"{step}: {case}")
    elif step == "choose":
        _choose(out, runs, jobs, say)
    elif step == "test":
        choice = json.loads((out / "choice.json").read_text(encoding="utf-8"))
        for case, one in regimes(HELD_OUT, only).items():
            chosen = one.with_changes(strategies=("FedAvg", choice["chosen"]), seeds=one.seeds[: choice["seeds"]])
            tune(chosen, runs / chosen.name, jobs=jobs)
            record = {"regime": case, "runs": rows(Store(runs / chosen.name), load_study(runs / chosen.name)[1])}
            write(out / "held-out" / f"{slug(case)}.json", record)
            say(f"test: {case}")
    if stored := read(out / "reported"):
        draw(stored, out / "atlas.png")
    if page is not None:
        put(page, "measured", page_text(out))


def _choose(out: Path, runs: Path, jobs: int, say: Say) -> None:
    found = {}
    for case, one in regimes(ATLAS).items():
        plan = plain(one, case, settings_of(out, case), "tuning", CHOICE_SEEDS, OURS)
        found[case] = played(plan, case, runs, jobs)
        write(out / "choice" / f"{slug(case)}.json", found[case])
        say(f"choose: {case}")
    (out / "choice.json").write_text(json.dumps(choose(found), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

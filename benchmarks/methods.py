"""The common study behind docs/methods.md: every method on the same seeds of the same federations.

``python -m benchmarks methods`` does the runs that its folder lacks and writes one JSON file per federation and a
figure; ``--out docs/results/methods --page docs/methods.md`` extends the stored ones and their tables. A method with a
constant of its own gets the best of a few values, tuned on a seed of digits that is not reported, and uses it on
Fashion-MNIST too; local rate, batch and epochs are the same for all. Methods of one seed see the same initial model,
partition and batches; results are those of the final round.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedalpha.analysis.stats import Difference, holm, interval, paired
from fedalpha.text import nearest

Plugs = Mapping[str, str]
TUNING_SEED = 1000
TARGET = 0.6
MARK = "<!-- tables -->"


@dataclass(frozen=True)
class Setting:
    """A federation and what all methods share on it."""

    dataset: str
    partition: str
    clients: int
    model: str
    C: float
    d: float
    lr: float
    rounds: int
    seeds: int

    @property
    def p(self) -> float:
        """PAGE's probability of a round with all clients, m/(N + m)."""
        return round(self.C / (1 + self.C), 2)

    @property
    def shared(self) -> dict[str, str]:
        return {"select": f"uniform(C={self.C})", "update": f"sgd(lr={self.lr})"}


SETTINGS = {
    "digits": Setting("digits", "shards(size=30)", 20, "mlp", C=0.25, d=0.5, lr=0.1, rounds=40, seeds=5),
    "fashion-mnist": Setting("fashion-mnist", "shards(size=30)", 100, "mlp", C=0.1, d=0.3, lr=0.05, rounds=15, seeds=3),
}


def methods(s: Setting) -> dict[str, list[Plugs]]:
    """Name → what to plug in, or several choices of which the tuning seed picks one. FedAvg is the reference."""

    def weigh(*texts: str) -> list[Plugs]:
        return [{"strategy": text} for text in texts]

    def select(*arguments: str) -> list[Plugs]:
        texts = [f"power_of_choice(C={s.C}, d={s.d}{a})" for a in arguments]
        return [{"strategy": "FedAvg(prior=uniform)", "select": text} for text in texts]

    half, third = s.rounds // 2, s.rounds // 3
    return {
        "FedAvg": weigh("FedAvg"),
        "FedSoftWorse": weigh("FedSoftWorse(T=0.2)", "FedSoftWorse(T=1)", "FedSoftWorse(T=5)"),
        "FedSoftBetter": weigh("FedSoftBetter(T=0.2)", "FedSoftBetter(T=1)", "FedSoftBetter(T=5)"),
        "FedSoftBetterAvg (half)": weigh(f"FedSoftBetterAvg(T=1, at={half})"),
        "FedSoftWorseAvg (half)": weigh(f"FedSoftWorseAvg(T=1, at={half})"),
        "FedAvgSoftWorse (half)": weigh(f"FedAvgSoftWorse(T=1, at={half})"),
        "FedSoftBetterAvgSoftWorse (thirds)": weigh(f"FedSoftBetterAvgSoftWorse(T=1, at=[{third}, {2 * third}])"),
        "adaptive": weigh("adaptive(FedSoftBetter(T=1), FedAvg, FedSoftWorse(T=1))"),
        "qFedAvg": weigh(*(f"qFedAvg(q={q}, lr={s.lr})" for q in (0.1, 1, 5))),
        "AFL": weigh("AFL(gamma=0.01)", "AFL(gamma=0.1)", "AFL(gamma=0.1, ascent=exponential)"),
        "Superquantile": weigh("Superquantile(tail=0.8)", "Superquantile(tail=0.5)"),
        "FedMGDA": weigh("FedMGDA(eta=0.5)", "FedMGDA(eta=1)", "FedMGDA(eta=2)"),
        "FedNolowe": weigh("FedNolowe"),
        "FedCostWAvg": weigh("FedCostWAvg"),
        "FedPIDAvg": weigh("FedPIDAvg"),
        "FedNova": weigh("FedNova"),
        "FedExP": weigh("FedExP(epsilon=0.001)", "FedExP(epsilon=0.01)", "FedExP(epsilon=0.1)"),
        "FedDisco": weigh("FedDisco(a=0.1)", "FedDisco(a=0.5)"),
        "AAggFF": weigh(f"AAggFF(clients={s.clients})"),
        "PropFair": weigh("PropFair(M=3)", "PropFair(M=5)", "PropFair(M=10)"),
        "FedAWA": weigh("FedAWA(lr=0.001)", "FedAWA(lr=0.1)"),
        "FedAU": weigh("FedAU"),
        "unbiased by size": [{"strategy": "unbiased(FedAvg)", "select": f"by_size(C={s.C})"}],
        "Power-of-Choice": select(""),
        "Power-of-Choice, 16 samples": select(", batch=16"),
        "Power-of-Choice, stale": select(", stale=true"),
        "Power-of-Choice, adaptive": select(f", until={half}"),
        "loss-proportional": [{"strategy": "FedAvg(prior=uniform)", "select": f"loss_proportional(C={s.C})"}],
        "FedProx": [{"update": f"fedprox(mu={mu}, lr={s.lr})"} for mu in (0.01, 0.1, 1)],
        "SCAFFOLD": [{"update": f"scaffold(lr={s.lr}, prior=size)"}],
        "PAGE": [{"update": f"page(lr={s.lr})"}],
        "FedPAGE": [
            {
                "select": f"fedpage(C={s.C}, p={s.p})",
                "update": f"fedpage(lr={s.lr}, steps={steps}, p={s.p}, prior=size)",
            }
            for steps in (2, 5, 10)
        ],
        "L-BFGS": [{"update": f"lbfgs(lr={s.lr}, memory=5)"}],
        "PFNM": [{"combine": "pfnm(sigma=1)"}, {"combine": "pfnm(sigma=0.01)"}],
        "FedDist": [{"combine": "feddist(spread=1.8, rise=0, limit=128)"}],
        "FedLWS": [{"combine": "fedlws"}],
        "FedAWARE": [{"combine": f"fedaware(lr={lr})"} for lr in (0.3, 1, 3)],
        "FedAvgM": [{"apply": f"fedavgm(lr={lr}, beta=0.9)"} for lr in (0.1, 0.3, 1)],
        "FedAdagrad": [{"apply": f"fedadagrad(lr={lr})"} for lr in (0.01, 0.03, 0.1)],
        "FedAdam": [{"apply": f"fedadam(lr={lr})"} for lr in (0.003, 0.01, 0.03)],
        "FedYogi": [{"apply": f"fedyogi(lr={lr})"} for lr in (0.003, 0.01, 0.03)],
    }


def play(s: Setting, plugs: Plugs, seed: int) -> dict[str, Any]:
    """One run: its curve, its last loss and the bytes sent."""
    from fedalpha import run

    options: dict[str, Any] = {**s.shared, **plugs}
    history = run(_data(s, seed), s.model, rounds=s.rounds, seed=seed, engine="embedded(workers=1)", **options)
    return {
        "seed": seed,
        "accuracy": [round(a, 6) for a in history.accuracy.tolist()],
        "loss": history.rows[-1]["loss"],
        "megabytes": round(sum(r["bytes_down"] + r["bytes_up"] for r in history.rows) / 1e6, 3),
    }


@lru_cache(maxsize=8)
def _data(s: Setting, seed: int) -> Any:
    from fedalpha import federation

    return federation(s.dataset, partition=s.partition, clients=s.clients, seed=seed)


def tuned(s: Setting, choices: Sequence[Plugs]) -> tuple[Plugs, list[dict[str, Any]]]:
    """The choice with the best final accuracy on the tuning seed, and the accuracies of all choices."""
    if len(choices) == 1:
        return choices[0], []
    tried = [{"plugs": dict(c), "accuracy": play(s, c, TUNING_SEED)["accuracy"][-1]} for c in choices]
    return max(tried, key=lambda t: t["accuracy"])["plugs"], tried


def study(name: str, path: Path) -> dict[str, Any]:
    """Do the runs that are missing in ``path`` and return all of them. Each run is stored as soon as it is done."""
    s, tuning = SETTINGS[name], SETTINGS["digits"]
    if s != tuning and not (path.parent / "digits.json").exists():
        raise ValueError(f"{path.parent} holds no digits.json, on which constants are tuned; run digits first")
    stored = json.loads(path.read_text()) if path.exists() else {"setting": asdict(s), "methods": {}}
    if stored["setting"] != asdict(s):
        raise ValueError(f"{path} holds another setting; remove it to run the study again")
    for method, choices in methods(s).items():
        record = stored["methods"].get(method)
        if record is None:
            if s == tuning:
                plugs, tried = tuned(s, choices)
            else:
                best = json.loads((path.parent / "digits.json").read_text())["methods"][method]["plugs"]
                plugs, tried = choices[methods(tuning)[method].index(best)], []
            record = stored["methods"][method] = {"plugs": dict(plugs), "tried": tried, "runs": []}
        for seed in range(len(record["runs"]), s.seeds):
            record["runs"].append(play(s, record["plugs"], seed))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(stored, indent=1) + "\n")
        print(f"{name}: {method} {interval([r['accuracy'][-1] for r in record['runs']]).text(2, 100)} %", flush=True)
    return stored


def summary(stored: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row per method: final accuracy, the paired difference to FedAvg (p by Holm), R_60, megabytes."""
    reference = [r["accuracy"][-1] for r in stored["methods"]["FedAvg"]["runs"]]
    rows: list[dict[str, Any]] = []
    for method, record in finished(stored).items():
        final = [r["accuracy"][-1] for r in record["runs"]]
        reached = [next((i for i, a in enumerate(r["accuracy"]) if a >= TARGET), None) for r in record["runs"]]
        never = reached.count(None)
        rows.append(
            {
                "method": method,
                "plugs": ", ".join(record["plugs"].values()),
                "accuracy": interval(final),
                "difference": paired(final, reference[: len(final)]),
                "rounds": f"not in {never} of {len(reached)}" if never else interval(reached).text(1),  # type: ignore[arg-type]
                "megabytes": interval([r["megabytes"] for r in record["runs"]]).mean,
            }
        )
    others = [row for row in rows if row["method"] != "FedAvg"]
    for row, p in zip(others, holm([row["difference"].p for row in others]), strict=True):
        row["p"] = float(p)
    return rows


def table(stored: Mapping[str, Any]) -> str:
    """The summary as Markdown."""
    s = stored["setting"]
    lines = [
        f"**{s['dataset']}**: {s['partition']}, {s['clients']} clients of whom {s['C']:.0%} take part, {s['model']}, "
        f"{s['rounds']} rounds, local rate {s['lr']}; {s['seeds']} seeds, mean ± 95 % (Student t), final round.",
        "",
        "| method | as run | accuracy (%) | minus FedAvg (points, paired) | p (Holm) | R_60 | MB |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for row in summary(stored):
        difference = f"{row['difference'].text(2, 100)} | {row['p']:.2f}" if "p" in row else "reference | –"
        lines.append(
            f"| {row['method']} | `{row['plugs']}` | {row['accuracy'].text(2, 100)} | {difference} | "
            f"{row['rounds']} | {row['megabytes']:.1f} |"
        )
    for hybrid, gap in against(stored, "adaptive").items():
        lines += ["", "`adaptive` minus the fixed hybrids, points:"] if lines[-1].startswith("|") else []
        lines.append(f"- {hybrid}: {gap.text(2, 100)}")
    unfinished = [m for m in methods(SETTINGS[s["dataset"]]) if m not in finished(stored)]
    lines += ["", f"Not run: {', '.join(unfinished)}."] if unfinished else []
    return "\n".join(lines) + "\n"


def finished(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The methods with results of all seeds."""
    return {m: r for m, r in stored["methods"].items() if len(r["runs"]) == stored["setting"]["seeds"]}


def against(stored: Mapping[str, Any], method: str) -> dict[str, Difference]:
    """The paired differences of a method to each fixed hybrid."""
    final = {m: [run["accuracy"][-1] for run in r["runs"]] for m, r in finished(stored).items()}
    return {m: paired(final[method], v) for m, v in final.items() if method in final and "(" in m}


def draw(studies: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Paired differences to FedAvg with their intervals, one panel per federation."""
    from fedalpha.analysis.plots import figure
    from fedalpha.store.exports import COLOURS

    height = 1.2 + 0.24 * max(len(s["methods"]) for s in studies.values())
    fig, axes = figure(6.2 * len(studies), height, columns=len(studies))
    for ax, (name, stored) in zip(axes, studies.items(), strict=True):
        rows = [row for row in summary(stored) if row["method"] != "FedAvg"][::-1]
        for place, row in enumerate(rows):
            difference = row["difference"]
            colour = COLOURS[0] if row["p"] < 0.05 else COLOURS[-1]
            ax.errorbar(
                100 * difference.mean, place, xerr=100 * difference.half, fmt="o", color=colour, capsize=2, markersize=4
            )
        ax.set_yticks(range(len(rows)), [row["method"] for row in rows], fontsize=8)
        ax.axvline(0, color="#888888", linewidth=1)
        ax.set_xlabel("accuracy minus FedAvg's, points (paired, 95 %)")
        ax.set_title(f"{name}, {stored['setting']['seeds']} seeds", loc="left", fontsize=11)
    fig.savefig(path, dpi=130)


def measure(out: Path, only: Sequence[str] | None = None, drawn: bool = False, page: Path | None = None) -> None:
    """Do the runs that ``out`` lacks (none if ``drawn``), draw methods.png, and write the tables into ``page``."""
    for name in only or ():
        if name not in SETTINGS:
            raise ValueError(f"unknown federation {name!r}; {nearest(name, SETTINGS)}")
    for name in [] if drawn else only or SETTINGS:
        study(name, out / f"{name}.json")
    files = {name: out / f"{name}.json" for name in SETTINGS}
    studies = {name: json.loads(path.read_text()) for name, path in files.items() if path.exists()}
    if not studies:
        raise ValueError(f"{out} holds no results; leave --draw out to run the study")
    if page is not None:
        text, _, _ = page.read_text().partition(MARK)
        page.write_text(text + MARK + "\n\n" + "\n".join(table(stored) for stored in studies.values()))
    draw(studies, out / "methods.png")

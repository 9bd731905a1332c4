"""How often races are wrong, and how often they find a known winner: simulated scores, and scores of real federations.

``python -m benchmarks tune --out docs/results/tune --page docs/tune.md`` repeats what the page shows. Races follow
the rule of ``fedalpha tune`` on reported seeds (`fedalpha.study.tuning.race.Race`, with half of the error).

*Null races*: ten names for one rule. Paired runs of one rule are equal to the bit, and such a race never has a winner.
Here every name has noise of its own instead. The real federations are digits: the runs of one seed have the same
initial model, partition and cohorts, and differ in the order of the batches alone. Every one of 2,000 races takes 30 of
the stored seeds at random and deals the scores of each seed to the ten names at random. So given the stored scores
the names are exchangeable by construction, and the races are independent draws.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedalpha.analysis.anytime import Evidence, evidence
from fedalpha.rng import generator

Array = NDArray[np.float64]
NAMES = 10
SEEDS = 30
ERROR = 0.05
MARK = "<!-- measured -->"
SETTINGS: dict[str, Any] = {
    "dataset": "digits",
    "partition": "shards(size=30)",
    "clients": 8,
    "model": "softmax",
    "rounds": 5,
    "select": "uniform(C=0.5)",
}


@dataclass(frozen=True)
class Tally:
    """Races of one kind: how many ended with a winner, with which, and after how many seeds."""

    kind: str
    what: str
    races: int
    winners: int
    """Races that named anyone."""
    right: int
    """Races that named the best one; 0 if there is none."""
    upper: float
    """The upper 95 % limit of the probability of a false winner."""
    seeds: float | None
    """The median number of seeds of the races with a winner."""

    @property
    def false(self) -> int:
        return self.winners - self.right


def streams() -> dict[str, Callable[[np.random.Generator], Array]]:
    """Null scores by kind, seeds × names: in each the hypothesis holds for every pair."""
    shape = (SEEDS, NAMES)

    def seeds(rng: np.random.Generator) -> Array:
        return 3 * rng.standard_normal((SEEDS, 1))

    return {
        "normal": lambda rng: seeds(rng) + rng.standard_normal(shape),
        "unequal spread (0.2 to 5)": lambda rng: seeds(rng) + np.geomspace(0.2, 5, NAMES) * rng.standard_normal(shape),
        "heavy tails (t, 1.5 degrees)": lambda rng: rng.standard_t(1.5, shape),
        "skewed (log-normal)": lambda rng: seeds(rng) + rng.lognormal(0, 1.5, shape),
        "collapse (1 run in 20)": lambda rng: rng.standard_normal(shape) - 30 * (rng.random(shape) < 0.05),
        "ties (correct of 100)": lambda rng: rng.binomial(100, 0.97, shape).astype(np.float64),
        "two equally good, eight worse": lambda rng: rng.standard_normal(shape) - np.array([0.0] * 2 + [5.0] * 8),
        "two names only": lambda rng: rng.standard_normal((SEEDS, 2)),
    }


def outside(rng: np.random.Generator) -> Array:
    """Equal means, but the hypothesis does not hold: one name has rare large gains, the others have rare losses."""
    scores = 1.0 - rng.exponential(1.0, (SEEDS, NAMES))
    scores[:, 0] = rng.exponential(1.0, SEEDS) - 1.0
    return scores


def play(scores: Array, error: float = ERROR) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Many races at once, races × seeds × names: the winner of each (−1: none) and the seeds that it took.

    The rule is that of `Race`, which plays one race; a test compares the two.
    """
    races, seeds, names = scores.shape
    alive = np.ones((races, names), dtype=bool)
    winner, took, wealth = np.full(races, -1), np.full(races, seeds), Evidence()
    means = np.cumsum(scores, axis=1) / np.arange(1, seeds + 1)[:, None]
    for look in range(seeds):
        row = scores[:, look]
        paired = alive[:, :, None] & alive[:, None, :]
        found = wealth.add(np.where(paired, row[:, None, :] - row[:, :, None], 0.0))
        against = (found.sum(axis=2) - 1) / (names - 1)  # the diagonal is 1
        leader = np.where(alive, means[:, look], -np.inf).argmax(axis=1)
        drop = alive & (against >= 2 / error)
        drop[np.arange(races), leader] = False
        alive &= ~drop
        ended = (winner < 0) & (alive.sum(axis=1) == 1)
        winner[ended], took[ended] = alive[ended].argmax(axis=1), look + 1
    return winner, took


def tally(kind: str, what: str, draw: Callable[[int], Array], races: int, best: int | None = None) -> Tally:
    """Play races; ``draw(number)`` makes the scores of one."""
    winner, took = play(np.stack([draw(i) for i in range(races)]))
    winners, right = int((winner >= 0).sum()), 0 if best is None else int((winner == best).sum())
    seeds = float(np.median(took[winner >= 0])) if winners else None
    return Tally(kind, what, races, winners, right, upper_limit(winners - right, races), seeds)


def upper_limit(events: int, trials: int) -> float:
    """The exact one-sided upper 95 % limit of a probability (Clopper and Pearson).

    >>> round(upper_limit(0, 2000), 5)
    0.0015
    """
    from scipy import stats

    return 1.0 if events >= trials else float(stats.beta.ppf(0.95, events + 1, trials - events))


def naive(races: int, kind: str) -> int:
    """Null races in which a paired t test at 5 %, looked at after every seed from the third on, would name a winner:
    the leader beats each of the others."""
    from scipy import stats

    scores = np.stack([streams()[kind](generator(i, "naive race")) for i in range(races)])
    wrong = np.zeros(races, dtype=bool)
    for n in range(3, SEEDS + 1):
        seen = scores[:, :n]
        leader = seen.mean(axis=1).argmax(axis=1)
        D = np.take_along_axis(seen, leader[:, None, None], axis=2) - seen
        spread = D.std(axis=1, ddof=1)
        t = D.mean(axis=1) * np.sqrt(n) / np.where(spread > 0, spread, 1.0)
        t[np.arange(races), leader] = np.inf
        wrong |= 2 * stats.t.sf(t.min(axis=1), n - 1) < ERROR
    return int(wrong.sum())


def coverage(races: int) -> dict[str, int]:
    """Confidence sequences of symmetric differences that miss their centre at any of `SEEDS` looks."""
    kinds: dict[str, Callable[[np.random.Generator], Array]] = {
        "normal": lambda rng: rng.standard_normal(SEEDS),
        "heavy tails (t, 1.5 degrees)": lambda rng: rng.standard_t(1.5, SEEDS),
        "two values": lambda rng: rng.choice([-1.0, 1.0], SEEDS),
    }
    found = {}
    for kind, draw in kinds.items():
        D = np.stack([draw(generator(i, f"coverage {kind}")) for i in range(races)], axis=1)
        largest = np.maximum(evidence(D).max(axis=0), evidence(-D).max(axis=0))
        found[kind] = int((largest >= 2 / ERROR).sum())
    return found


def bank(file: Path, seeds: int, progress: Callable[[str], None]) -> dict[str, Array]:
    """Final accuracies of real runs in %, seeds × names: ten orders of batches, and one rule that is better."""
    stored: dict[str, Any] = {"settings": SETTINGS, "same": [], "better": []}
    if file.exists() and json.loads(file.read_text())["settings"] == SETTINGS:
        stored = json.loads(file.read_text())
    for seed in range(len(stored["same"]), seeds):
        *same, better = _accuracies(seed)
        stored["same"].append(same)
        stored["better"].append(better)
        if (seed + 1) % 10 == 0 or seed + 1 == seeds:
            file.write_text(json.dumps(stored, separators=(",", ":")) + "\n")
            progress(f"{seed + 1} of {seeds} seeds of the real federation")
    return {key: np.array(stored[key][:seeds], dtype=np.float64) for key in ("same", "better")}


def _accuracies(seed: int) -> list[float]:
    """Of one rule under ten names, and of one with twice the learning rate."""
    from benchmarks.reordered import reordered
    from fedalpha import federation, run

    data = federation(SETTINGS["dataset"], partition=SETTINGS["partition"], clients=SETTINGS["clients"], seed=seed)
    updates = [*(reordered(lr=0.1, skip=i) for i in range(NAMES)), reordered(lr=0.2, skip=NAMES)]
    shared = {"rounds": SETTINGS["rounds"], "select": SETTINGS["select"], "evaluate": SETTINGS["rounds"]}
    runs = (run(data, SETTINGS["model"], seed=seed, update=u, engine="embedded(workers=1)", **shared) for u in updates)
    return [round(100 * float(history.accuracy[-1]), 4) for history in runs]


def dealt(scores: Array, number: int) -> Array:
    """A null race from stored scores: some seeds, and in each the names dealt anew."""
    rng = generator(number, "dealt race")
    rows = rng.choice(len(scores), SEEDS, replace=False)
    return np.stack([rng.permutation(scores[row]) for row in rows])


def ahead(same: Array, better: Array, number: int) -> Array:
    """A race that name 0 should win: the better rule against nine names of the other."""
    rng = generator(number, "better race")
    rows = rng.choice(len(same), SEEDS, replace=False)
    return np.stack([np.r_[better[row], rng.permutation(same[row])[1:]] for row in rows])


def measure(out: Path, races: int, seeds: int, page: Path | None, progress: Callable[[str], None]) -> dict[str, Any]:
    """Run all races and write results.json and table.md; the tables also go into ``page``."""
    out.mkdir(parents=True, exist_ok=True)
    tallies = []
    for kind, draw in streams().items():
        tallies.append(tally("null, simulated", kind, lambda i, d=draw, k=kind: d(generator(i, k)), races))  # type: ignore[misc]
        progress(f"null, simulated, {kind}: {tallies[-1].winners} false winners in {races} races")
    tallies.append(tally("outside", "equal means, opposite skews", lambda i: outside(generator(i, "outside")), races))
    for effect in (0.5, 0.75, 1.0, 1.5, 2.0, 3.0):
        tallies.append(tally("winner, simulated", f"{effect:g}", shifted(effect), races, best=0))
        progress(f"winner by {effect:g} standard deviations: found in {tallies[-1].right} of {races} races")
    scores = bank(out / "scores.json", seeds, progress)
    same, better = scores["same"], scores["better"]
    tallies.append(tally("null, real", "digits", lambda i: dealt(same, i), races))
    progress(f"null, digits: {tallies[-1].winners} false winners in {races} races")
    D = better[:, None] - same
    effect = float(D.mean() / D.std(axis=0, ddof=1).mean())
    tallies.append(tally("winner, real", f"{effect:.2f}", lambda i: ahead(same, better, i), races, best=0))
    record = {
        "names": NAMES,
        "seeds": SEEDS,
        "error": ERROR,
        "tallies": [asdict(t) for t in tallies],
        "naive": {"races": races, "winners": naive(races, "normal"), "two": naive(races, "two names only")},
        "coverage": {"sequences": races, "missed": coverage(races)},
        "real": {"points": float(D.mean()), "deviation": float(D.std(axis=0, ddof=1).mean()), "seeds": len(same)},
    }
    (out / "results.json").write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    (out / "table.md").write_text(tables(record))
    if page is not None:
        before, _, _ = page.read_text().partition(MARK)
        page.write_text(f"{before}{MARK}\n\n{tables(record)}")
    return record


def shifted(effect: float) -> Callable[[int], Array]:
    """Normal scores; the paired differences of name 0 to any other have mean ``effect`` and standard deviation 1."""

    def draw(number: int) -> Array:
        rng = generator(number, f"shifted {effect:g}")
        scores: Array = 3 * rng.standard_normal((SEEDS, 1)) + rng.standard_normal((SEEDS, NAMES)) / np.sqrt(2)
        scores[:, 0] += effect
        return scores

    return draw


def tables(record: Mapping[str, Any]) -> str:
    """The measured tables of the page."""
    found = [Tally(**t) for t in record["tallies"]]
    names, seeds, error = record["names"], record["seeds"], 100 * record["error"]
    null = [t for t in found if t.kind.startswith("null")]
    lines = [
        f"**Null races**: {names} names, at most {seeds} seeds, error {error:g} %.",
        "",
        "| scores | races | false winners | upper 95 % limit |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {'real federations, ' * (t.kind == 'null, real')}{t.what} | {t.races:,} | {t.winners} | "
        f"{100 * t.upper:.2f} % |"
        for t in null
    ]
    total, wrong = sum(t.races for t in null), sum(t.winners for t in null)
    lines += [f"| all | {total:,} | {wrong} | {100 * upper_limit(wrong, total):.2f} % |", ""]
    lines += [
        f"**A known winner** among {names}: its paired differences to each of the others have the stated mean, in "
        "standard deviations of these differences.",
        "",
        "| lead | races | found | wrong winner | median seeds |",
        "|---|---|---|---|---|",
    ]
    for t in found:
        if t.kind.startswith("winner"):
            real = "real federations, " * (t.kind == "winner, real")
            median = "–" if t.seeds is None else f"{t.seeds:g}"
            lines.append(f"| {real}{t.what} | {t.races:,} | {100 * t.right / t.races:.1f} % | {t.false} | {median} |")
    lines += ["", *_notes(record, next(t for t in found if t.kind == "outside"))]
    return "\n".join(lines)


def _notes(record: Mapping[str, Any], odd: Tally) -> list[str]:
    """What stands below the tables."""
    sure, naive, real = record["coverage"], record["naive"], record["real"]
    missed = ", ".join(f"{n} ({kind})" for kind, n in sure["missed"].items())
    return [
        f"- Confidence sequences at 95 % for symmetric differences: of {sure['sequences']:,} sequences of each kind, "
        f"these missed the centre after at least one of {record['seeds']} seeds: {missed}.",
        f"- Scores with equal means but opposite skews, which the hypothesis excludes: {odd.winners} of {odd.races:,} "
        "races named a winner.",
        f"- For comparison, a paired t test of the leader against each of the others at {100 * record['error']:g} %, "
        f"repeated after every seed from the third on: {naive['winners']} of {naive['races']:,} null races with normal "
        f"scores named a winner; with two names, {naive['two']}.",
        f"- Real federations use {real['seeds']} seeds of digits. The better rule leads by {real['points']:.2f} points "
        f"on average; the standard deviation of the paired differences is {real['deviation']:.2f}.",
        "",
    ]

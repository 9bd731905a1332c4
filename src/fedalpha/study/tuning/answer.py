"""The result of a finished race, in words and as a table, from ``tune.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedalpha.analysis.anytime import Bounds, bounds, p_value
from fedalpha.analysis.measures import Measure
from fedalpha.analysis.tables import markdown_table, markdown_text
from fedalpha.text import counted


@dataclass(frozen=True)
class Standing:
    """A method after the race. ``ahead`` is its mean lead over the reference, positive if it is better."""

    method: str
    text: str
    """The method with the settings that were found."""
    mean: float
    """Of the measure, over its reported seeds."""
    seeds: int
    ahead: float
    bounds: Bounds
    """The bounds of the lead; with probability 1 − error those of all methods hold."""
    p: float
    """The p-value of *not ahead of the reference*; valid after every seed, not corrected for the number of methods."""
    dropped: int | None
    """The reported seeds after which it was dropped."""
    behind: str | None
    candidates: int
    rounds: int
    """The cost of tuning the method."""


@dataclass(frozen=True)
class Verdict:
    """The answer in one case."""

    case: str
    reference: str
    winner: str | None
    rounds: int
    seeds: int
    standings: Mapping[str, Standing]
    measure: Measure

    @property
    def alive(self) -> list[Standing]:
        """The methods that were not dropped, the best first."""
        left = [s for s in self.standings.values() if s.dropped is None]
        return sorted(left, key=lambda s: -s.ahead)

    def words(self) -> str:
        """The answer in a sentence or two."""
        where = f"{self.case}: " if self.case else ""
        on = f"after {counted(self.rounds, 'round')} on {counted(self.seeds, 'held-out seed')}"
        if not self.standings or not self.seeds:
            return f"{where}nothing was compared yet"
        reference = self.standings[self.reference]
        if self.winner is None:
            best = self.alive[0]
            left = _listed([s.text for s in self.alive])
            told = f"{where}No winner {on}: the evidence does not separate {left}"
            lead = "" if best.method == self.reference else f"; {best.text} leads {reference.text} by {self.lead(best)}"
            return told + lead + self._dropped() + "."
        if self.winner == self.reference:
            rivals = [s for s in self.standings.values() if s.method != self.reference]
            rival = max(rivals, key=lambda s: (s.seeds, s.ahead))
            beaten = Bounds(-rival.bounds.high, -rival.bounds.low)
            lead = self._amount(-rival.ahead, beaten)
            return f"{where}{reference.text} over {rival.text} by {lead} {on}{self._dropped(rival.method)}."
        won = self.standings[self.winner]
        return f"{where}{won.text} over {reference.text} by {self.lead(won)} {on}{self._dropped(self.reference)}."

    def lead(self, standing: Standing) -> str:
        """The lead of a method over the reference, with its half-width."""
        return self._amount(standing.ahead, standing.bounds)

    def _amount(self, ahead: float, within: Bounds) -> str:
        """mean ± the larger distance to a bound, which contains the bounds."""
        unit = "points" if self.measure.scale == 100 else f"in {self.measure.text}"
        digits = max(1, self.measure.digits - 1) if self.measure.scale == 100 else self.measure.digits
        scale = self.measure.scale
        if not within.known:
            return f"{scale * ahead:.{digits}f} {unit} (too few seeds for an interval)"
        half = max(within.high - ahead, ahead - within.low)
        return f"{scale * ahead:.{digits}f} ± {scale * half:.{digits}f} {unit}"

    def _dropped(self, but: str = "") -> str:
        """The seeds after which the others were dropped."""
        gone = [s for s in self.standings.values() if s.dropped is not None and s.method != but]
        if not gone:
            return ""
        gone.sort(key=lambda s: (s.dropped or 0, s.method))
        places = [f"{s.text} after {counted(s.dropped or 0, 'seed')}" for s in gone]
        if len(gone) == 1:
            return f"; {gone[0].text} was dropped after {counted(gone[0].dropped or 0, 'seed')}"
        return f"; the others were dropped: {', '.join(places)}"


@dataclass(frozen=True)
class Answer:
    """The verdict of every case."""

    name: str
    error: float
    budget: int
    verdicts: Mapping[str, Verdict]

    def words(self) -> str:
        return "\n".join(verdict.words() for verdict in self.verdicts.values())

    def table(self, verdict: Verdict) -> list[list[str]]:
        """A head and a row per method, the best first."""
        scale, digits = verdict.measure.scale, verdict.measure.digits
        rows = [["method", "found", "tuning", "held-out seeds", verdict.measure.heading, "lead", "p", "dropped"]]
        for s in sorted(verdict.standings.values(), key=lambda s: (s.dropped is not None, -s.ahead)):
            own = s.method == verdict.reference
            rows.append(
                [
                    s.method,
                    s.text,
                    f"{counted(s.candidates, 'candidate')}, {counted(s.rounds, 'round')}",
                    str(s.seeds),
                    f"{scale * s.mean:.{digits}f}",
                    "reference" if own else verdict.lead(s),
                    "" if own else f"{s.p:.2g}",
                    "" if s.dropped is None else f"after {counted(s.dropped, 'seed')}, behind {s.behind}",
                ]
            )
        return rows

    def markdown(self) -> str:
        """``answer.md``."""
        lines = [f"# {markdown_text(self.name)}", ""]
        for verdict in self.verdicts.values():
            lines += [markdown_text(verdict.words()), ""]
            head, *rows = self.table(verdict)
            lines += [markdown_table(head, rows), ""]
        lines += [self.promise(), ""]
        return "\n".join(lines)

    def promise(self) -> str:
        """The meaning of the numbers."""
        each = " in each case" if len(self.verdicts) > 1 else ""
        return (
            f"Every method had {self.budget:,} rounds to find its settings, on other seeds. A winner that is not "
            f"better than all others is declared with probability at most {100 * self.error:g} %{each}, at whichever "
            f"seed the race ends. All leads are within ± with probability at least {100 * (1 - self.error):g} %{each}, "
            "if paired differences are symmetric about their mean. p is valid after every seed and not corrected."
        )


def answer(journal: Mapping[str, Any]) -> Answer:
    """The answer in ``tune.json``."""
    measure = Measure.parse(journal["measure"])
    verdicts = {case: _verdict(case, found, journal, measure) for case, found in journal["cases"].items()}
    return Answer(journal["name"], journal["error"], journal["budget"], verdicts)


def _verdict(case: str, found: Mapping[str, Any], journal: Mapping[str, Any], measure: Measure) -> Verdict:
    reference, race = journal["reference"], found["reported"]
    sign = 1.0 if measure.higher_is_better else -1.0
    standings: dict[str, Standing] = {}
    if race is not None and race["seeds"]:
        base = np.array(race["scores"][reference])
        each = journal["error"] / max(1, len(race["scores"]) - 1)
        for name, scores in race["scores"].items():
            D = np.array(scores) - base[: len(scores)]
            tuned = found["methods"][name]
            drop = race["dropped"].get(name)
            standings[name] = Standing(
                method=name,
                text=tuned["text"],
                mean=sign * float(np.mean(scores)),
                seeds=len(scores),
                ahead=float(D.mean()),
                bounds=Bounds(0.0, 0.0) if name == reference else bounds(D, each),
                p=p_value(D),
                dropped=None if drop is None else drop["seeds"],
                behind=None if drop is None else found["methods"][drop["behind"]]["text"],
                candidates=len({c for g in tuned["generations"] for c in g["scores"]}),
                rounds=tuned["rounds"],
            )
    left = [name for name, s in standings.items() if s.dropped is None]
    winner = left[0] if len(left) == 1 < len(standings) else None
    seeds = len(race["seeds"]) if race is not None else 0
    return Verdict(case, reference, winner, found["rounds"], seeds, standings, measure)


def _listed(texts: list[str]) -> str:
    """
    >>> _listed(["a", "b", "c"])
    'a, b and c'
    """
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"

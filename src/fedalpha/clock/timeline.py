"""The times in one run at which clients deliver, and at which they are available."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from fedalpha.clock.availability import always
from fedalpha.clock.pace import Pace
from fedalpha.clock.speeds import Moment
from fedalpha.select import Population
from fedalpha.select.base import Ids
from fedalpha.strategies import Array


@dataclass(frozen=True)
class Job:
    """One client's training: the time at which it ends, and why there is no update (None if there is one)."""

    end: float
    lost: str | None = None


@dataclass(frozen=True)
class Timeline:
    """The times of a run: pure functions of its seed. After ``deadline`` the server no longer waits for a client."""

    pace: Pace
    seed: int
    population: Population
    deadline: float | None = None

    def jobs(self, start: float, round: int, ids: Ids) -> dict[int, Job]:
        """The jobs of clients that are sent the model of ``round`` at the time ``start``."""
        assert self.pace.clock is not None
        moment = Moment(self.seed, round, self.population)
        seconds, drops = self.pace.clock.seconds(moment, ids), self.pace.clock.drops(moment, ids)
        last = start + max(seconds.tolist(), default=0.0)
        if not (np.isfinite(seconds).all() and math.isfinite(last) and (seconds > 0).all()):
            raise ValueError(
                f"{self.pace.clock} gave a time that is not a finite number > 0, after {start:g} simulated seconds; "
                "fix the clock"
            )
        return {
            id: self._job(start, id, took, share)
            for id, took, share in zip(ids.tolist(), seconds.tolist(), drops.tolist(), strict=True)
        }

    def _job(self, start: float, id: int, seconds: float, share: float) -> Job:
        """The first of these events: the update arrives, the client drops out or goes offline, the deadline passes."""
        left = math.inf
        if self.pace.availability != always():
            window = self.pace.availability.window(self.seed, id, start)
            left = 0.0 if window is None else max(0.0, window[1] - start)
        ends = [(seconds, "")]
        if not math.isnan(share):
            ends.append((share * seconds, "dropped out after {:.4g} s"))
        if left < seconds:
            ends.append((left, "went offline after {:.4g} s"))
        took, reason = min(ends)
        if self.deadline is not None and took > self.deadline:
            late = f"came after {took:g} s" if not reason else reason.format(took)
            return Job(start + self.deadline, f"{late}; the deadline is {self.deadline:g} s")
        return Job(start + took, reason.format(took) or None)

    def present(self, time: float) -> Ids | None:
        """The ids of the clients that are available at a time; None for all."""
        if self.pace.availability == always():
            return None
        return np.array([id for id in self._everybody.tolist() if self._on(id, time) <= time], dtype=np.int64)

    def next_on(self, time: float, without: Iterable[int] = ()) -> float:
        """The first time after ``time`` at which a client becomes available; infinity if there is none."""
        if self.pace.availability == always():
            return math.inf
        out = set(without)
        starts = (self._on(id, time) for id in self._everybody.tolist() if id not in out)
        return min((start for start in starts if start > time), default=math.inf)

    def _on(self, id: int, time: float) -> float:
        window = self.pace.availability.window(self.seed, id, time)
        return math.inf if window is None else window[0]

    @property
    def _everybody(self) -> Ids:
        return self.population.named(np.arange(self.population.clients))


@dataclass(frozen=True)
class Among:
    """The clients of a population that are available and not in training, for a selection."""

    population: Population
    ids: Ids

    @property
    def clients(self) -> int:
        return len(self.ids)

    def named(self, places: Ids) -> Ids:
        return self.ids[places]

    def sizes(self, ids: Ids) -> Array:
        return self.population.sizes(ids)

    def optima(self, ids: Ids) -> Array | None:
        return self.population.optima(ids)


def order(jobs: Mapping[int, Job]) -> list[tuple[int, Job]]:
    """Jobs by (time, client), the order of events."""
    return sorted(jobs.items(), key=lambda item: (item[1].end, item[0]))

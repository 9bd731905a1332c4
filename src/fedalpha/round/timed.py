"""A synchronous round on the virtual clock: which clients deliver, and how long the round takes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from fedalpha.clock import Timeline
from fedalpha.clock.timeline import Among, order
from fedalpha.round.driver import Engine, play
from fedalpha.round.orders import Heard, Train
from fedalpha.round.state import Algorithm, Outcome, ServerState


def play_timed(algorithm: Algorithm, state: ServerState, engine: Engine, timeline: Timeline) -> Outcome:
    """Play one round: the cohort is selected from the clients that are available, and the round waits for its end.

    A round without clients to choose from begins when the first one becomes available. Losses before training take
    no time.
    """
    now = awake(timeline, float(state.clock["time"]))
    present = timeline.present(now)
    among = None if present is None else Among(timeline.population, present)
    heard = Heard(among=among, few=among is not None and among.clients < timeline.population.clients)
    waiting = _Waiting(timeline, state.round, now)
    outcome = play(algorithm, state, engine, timeline.population, timeline.seed, heard, waiting.deliver)
    return dataclasses.replace(outcome, state=dataclasses.replace(outcome.state, clock={"time": waiting.end}))


def awake(timeline: Timeline, now: float) -> float:
    """``now``, or the first time after it at which a client is available. Raises ValueError if there will be none."""
    present = timeline.present(now)
    if present is None or len(present):
        return now
    then = timeline.next_on(now)
    if math.isinf(then):
        raise ValueError(
            f"no client is available after {now:g} simulated seconds ({timeline.pace.availability}); play fewer "
            "rounds, or give an availability that does not end, such as a trace with period="
        )
    return then


class _Waiting:
    """One round: what its clients do on the clock. ``end`` is the time at which the server has what it waits for."""

    def __init__(self, timeline: Timeline, round: int, start: float) -> None:
        self.timeline, self.round, self.start = timeline, round, start
        self.end = start

    def deliver(self, train: Train) -> tuple[Train, Mapping[int, str]]:
        """The order for the clients that deliver in time, and why the others do not.

        A round may give its order again; the same clients then deliver at the same times.
        """
        server = self.timeline.pace.server
        first = len(train.ids) if server.first is None else server.first
        problems: dict[int, str] = {}
        came: list[int] = []
        end = self.start
        for id, job in order(self.timeline.jobs(self.start, self.round, train.ids)):
            if len(came) == first:
                problems[id] = f"came after the first {first}, which end the round ({server})"
                continue
            end = max(end, job.end)
            if job.lost is None:
                came.append(id)
            else:
                problems[id] = job.lost
        self.end = max(self.end, end)
        here = np.isin(train.ids, came)
        if here.all():
            return train, problems
        alpha = None if train.alpha is None or not here.any() else train.alpha[here]
        return dataclasses.replace(train, ids=train.ids[here], alpha=alpha), problems

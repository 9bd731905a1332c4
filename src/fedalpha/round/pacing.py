"""A round at the pace of a run: without simulated time, on the clock, or by a server that does not wait."""

from __future__ import annotations

from fedalpha.clock import Pace, Timeline
from fedalpha.round import buffered
from fedalpha.round.buffered import At, play_buffered
from fedalpha.round.driver import play
from fedalpha.round.state import Algorithm, Outcome, ServerState
from fedalpha.round.timed import play_timed
from fedalpha.select import Population
from fedalpha.strategies import State


def begin(pace: Pace) -> State:
    """What a state holds of time before the first round."""
    if not pace.timed:
        return {}
    return {"time": 0.0} if pace.server.waits else buffered.begin()


def play_at(pace: Pace, algorithm: Algorithm, state: ServerState, at: At, population: Population, seed: int) -> Outcome:
    """Play one round; ``at(version)`` is the engine whose clients work in a version."""
    if not pace.timed:
        return play(algorithm, state, at(state.round), population, seed)
    timeline = Timeline(pace, seed, population, algorithm.admission.deadline)
    if pace.server.waits:
        return play_timed(algorithm, state, at(state.round), timeline)
    return play_buffered(algorithm, state, at, timeline)

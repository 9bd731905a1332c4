"""Simulated time: how long clients take, when they are available, and which updates the server waits for.

Three plug points, written as text: ``clock`` (`CLOCKS`), ``availability`` (`AVAILABILITIES`) and ``server``
(`SERVERS`). A `Pace` has one of each. This package trains no models: a `Timeline` computes when a client delivers, and
the drivers of `fedalpha.round` order their events by (time, client). Every draw comes from (seed, purpose, round,
client), where the round is that of the model which the client was sent, so times do not depend on the engine or the
number of workers.
"""

from __future__ import annotations

from fedalpha.clock.availability import AVAILABILITIES, Availability
from fedalpha.clock.pace import Pace
from fedalpha.clock.servers import SERVERS, Server
from fedalpha.clock.speeds import CLOCKS, Clock
from fedalpha.clock.timeline import Job, Timeline

__all__ = ["AVAILABILITIES", "CLOCKS", "SERVERS", "Availability", "Clock", "Job", "Pace", "Server", "Timeline"]

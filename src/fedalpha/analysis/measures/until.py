"""What it takes to reach an accuracy: rounds, bytes, local steps."""

from __future__ import annotations

from fedalpha.analysis.measures.base import MEASURES, Curve, Until, total


@MEASURES.register
class Rounds(Until):
    """R_p: the smallest r such that the model after r rounds has at least p % test accuracy."""

    name = "R"
    order = 30
    heading = "R_{} (rounds)"
    unit = "rounds"

    def spent(self, run: Curve, end: int) -> float:
        return float(end)


@MEASURES.register
class Bytes(Until):
    """All bytes, both ways."""

    name = "bytes_to"
    order = 40
    heading = "MB to {} %"
    scale = 1e-6
    digits = 1

    def spent(self, run: Curve, end: int) -> float:
        return total(run, "bytes_down", "bytes_up", end=end)


@MEASURES.register
class Uploaded(Until):
    """The bytes that clients sent, which is what an upload makes fewer."""

    name = "bytes_up_to"
    order = 45
    heading = "MB sent by clients to {} %"
    scale = 1e-6
    digits = 3

    def spent(self, run: Curve, end: int) -> float:
        return total(run, "bytes_up", end=end)


@MEASURES.register
class Steps(Until):
    """The local steps of all clients."""

    name = "steps_to"
    order = 50
    heading = "local steps to {} %"
    digits = 0

    def spent(self, run: Curve, end: int) -> float:
        return total(run, "steps", end=end)

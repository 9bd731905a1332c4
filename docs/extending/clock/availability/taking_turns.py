"""Two halves of the clients, one after the other."""

import math

from fedalpha.clock.availability import AVAILABILITIES, Availability


@AVAILABILITIES.register(formula="even ids in the first half of each period, odd ids in the second")
class taking_turns(Availability):
    """Clients with an even id are available for ``period``/2 seconds, then those with an odd one, and so on."""

    period: float = 10.0

    def __post_init__(self) -> None:
        if not 0 < self.period < math.inf:
            raise ValueError(f"taking_turns: period = {self.period}; give a number of seconds > 0")

    def window(self, seed: int, client: int, time: float) -> tuple[float, float]:
        half = self.period / 2
        turn = math.floor(time / half)
        turn += (turn - client) % 2  # the present half if it is the client's own, else the next one
        return turn * half, (turn + 1) * half

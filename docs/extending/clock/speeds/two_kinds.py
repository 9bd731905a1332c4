"""Two kinds of devices."""

import numpy as np

from fedalpha.clock.speeds import CLOCKS, Drawn


@CLOCKS.register(formula="1 s, or ``times`` seconds with probability ``slow``", examples=("two_kinds(slow=0.3)",))
class two_kinds(Drawn):
    """Each client is a fast device, or with probability ``slow`` one that takes ``times`` as long."""

    slow: float = 0.5
    times: float = 4.0

    def __post_init__(self) -> None:
        if not 0 <= self.slow <= 1 or not self.times > 0:
            raise ValueError(f"two_kinds: slow = {self.slow}, times = {self.times}; give a share and a number > 0")

    def draw(self, rng: np.random.Generator) -> float:  # once for each client, from its own generator
        return self.times if rng.random() < self.slow else 1.0

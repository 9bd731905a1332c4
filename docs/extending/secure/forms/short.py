"""A secure sum of few bytes."""

from typing import Any

from fedalpha.secure.forms import SECURES, masked


@SECURES.register(formula="masked, in words of 16 bits for updates of norm at most ``clip``", examples=("short",))
class short(masked):
    """Half the bytes of ``masked``; clients clip, so that 16 bits are enough."""

    bits: int = 16
    clip: float | None = 1.0

    def _check_weights(self, algorithm: Any) -> None:
        super()._check_weights(algorithm)
        if self.clip is None:
            raise ValueError("short: 16 bits are too few for updates of any length; give a clip")

"""A Little Is Enough: colluders that hide within the spread of the honest updates."""

from __future__ import annotations

from collections.abc import Callable

from fedalpha.defence.faults.base import FAULTS, Scene
from fedalpha.defence.faults.update_attack import Moves, UpdateAttack, statistics
from fedalpha.update import Report


@FAULTS.register(
    formula="x_i → mean − z·deviation of the honest moves",
    reference="A Little Is Enough: Baruch et al., 2019, 1902.06156",
    examples=("alie(clients=2)", "alie(z=1.5, clients=2)"),
)
class alie(UpdateAttack):
    """Colluders hide within the spread of the honest updates, ``z`` deviations off the mean (none: the paper's z)."""

    z: float | None = None

    def forger(self, scene: Scene, honest: list[Report], attackers: int) -> Callable[[Report], Moves]:
        mean, deviation = statistics(scene, honest)
        z = self.z if self.z is not None else hiding(len(honest) + attackers, attackers)
        forged = {k: mean[k] - z * deviation[k] for k in mean}
        return lambda report: forged


def hiding(n: int, f: int) -> float:
    """z of ALIE: the attackers need s = ⌊n/2⌋ + 1 − f honest supporters, Φ(z) = (n − f − s)/(n − f).

    >>> round(hiding(50, 24), 2)  # Baruch et al., section 3.2: s = 2, Φ(z) = 24/26
    1.43
    """
    from scipy.stats import norm

    supporters = n // 2 + 1 - f
    if n <= f:
        return 1.0
    share = (n - f - supporters) / (n - f)
    return float(norm.ppf(min(max(share, 1e-3), 1 - 1e-3)))

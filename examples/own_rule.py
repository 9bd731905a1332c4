"""A strategy of your own: registered once, it is used by its name, alone or inside other rules."""

import numpy as np

import fedalpha
from fedalpha.strategies import STRATEGIES, Traits


@STRATEGIES.register(formula="alpha_i ∝ p_i where F_i(w_t) is above the median, p_i / 2 elsewhere")
class Upper(fedalpha.Strategy):
    """Clients with a loss above the median count twice as much."""

    @property
    def requires(self):
        return frozenset({"before"})  # the losses before training

    @property
    def traits(self):
        return Traits(shift_invariant=True, monotone=1)

    def weights(self, state, cohort):
        losses = cohort.require("before")
        a = cohort.sizes * np.where(losses > np.median(losses), 1.0, 0.5)
        return a / a.sum(), state


print(fedalpha.weights("Upper", losses=[0.9, 0.5, 0.1], sizes=[100, 100, 100]))
digits = fedalpha.federation("digits", partition="shards(size=30)", clients=10)
for strategy in ("FedAvg", "Upper", "switch(cap(Upper, 0.2), FedAvg, at=4)"):
    print(strategy, fedalpha.run(digits, "mlp", strategy, rounds=6))

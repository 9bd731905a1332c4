"""Makes known_epsilon.json: reference values of ε by dp-accounting, with which test_epsilon.py compares ours.

``pip install dp-accounting==0.6.0`` in an environment of its own, then ``python tests/defence/known_epsilon.py``. It
takes about a minute. For a Gaussian mechanism with noise multiplier z, Poisson sampling with probability q (1: none),
T rounds and δ, under adding or removing one client:

- ``rdp``: the Rényi accountant with its own orders, an upper bound;
- ``pld``: privacy loss distributions with losses rounded up, in steps of 10^−4, an upper bound;
- ``least``: the same with losses rounded down, in steps of at most 10^−2/T, a lower bound.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import dp_accounting
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from dp_accounting.rdp import RdpAccountant

CASES = [
    (1.0, 1.0, 1, 1e-5),
    (0.5, 1.0, 1, 1e-3),
    (2.0, 1.0, 10, 1e-5),
    (5.0, 1.0, 100, 1e-6),
    (20.0, 1.0, 500, 1e-8),
    (1.0, 0.1, 1, 1e-5),
    (0.7, 0.01, 1, 1e-5),
    (1.0, 0.1, 30, 1e-5),
    (1.0, 0.01, 300, 1e-5),
    (0.8, 0.05, 100, 1e-6),
    (3.0, 0.5, 50, 1e-8),
    (1.3, 0.0025, 1000, 1e-5),
]
"""(z, q, T, δ)"""


def known(z: float, q: float, rounds: int, delta: float) -> dict[str, float]:
    event: dp_accounting.DpEvent = dp_accounting.GaussianDpEvent(z)
    if q < 1:
        event = dp_accounting.PoissonSampledDpEvent(q, event)
    relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    down = from_gaussian_mechanism(
        z,
        sampling_prob=q,
        pessimistic_estimate=False,
        value_discretization_interval=min(1e-4, 1e-2 / rounds),
        use_connect_dots=False,
    )
    return {
        "z": z,
        "q": q,
        "rounds": rounds,
        "delta": delta,
        "rdp": RdpAccountant(neighboring_relation=relation).compose(event, rounds).get_epsilon(delta),
        "pld": PLDAccountant(relation).compose(event, rounds).get_epsilon(delta),
        "least": down.self_compose(rounds).get_epsilon_for_delta(delta),
    }


if __name__ == "__main__":
    stored = {"dp-accounting": version("dp-accounting"), "values": [known(*case) for case in CASES]}
    Path(__file__).with_suffix(".json").write_text(json.dumps(stored, indent=1) + "\n")

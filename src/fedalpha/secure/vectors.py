"""The vector that a client adds to the sum, and the server's decoding of the sum."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedalpha.secure.field import Overflow
from fedalpha.secure.keys import fresh
from fedalpha.secure.messages import Session

Vector = NDArray[np.float64]


def prepared(session: Session, weight: float, clients: int, update: Vector, loss: float | None = None) -> Vector:
    """The vector of one of ``clients`` in a roster: its clipped update times its weight, with its part of the noise.

    Raises `Overflow` if the values do not fit, with a remedy. The server sees that text, so it contains no
    value of the update and no loss.
    """
    largest = float(np.max(np.abs(update), initial=0.0))
    if not math.isfinite(largest):
        raise Overflow("its update is not finite")
    if (shorter := clipped(update, session.clip)) is not update:
        update = shorter
    elif largest > session.range:
        raise Overflow(f"its update has a value beyond the range {session.range:g}: give a larger range, or clip")
    vector = update * (weight * _tilt(session, loss))
    if session.blind:
        vector = np.concatenate([[weight * _tilt(session, loss) * min(session.range, session.clip)], vector])
    if session.deviation:
        vector = vector + system_generator().normal(0.0, session.noise(clients), len(vector))
    return np.asarray(vector)


def clipped(update: Vector, most: float) -> Vector:
    """The update, scaled to the Euclidean norm ``most`` if it is longer; otherwise the same object.

    >>> np.linalg.norm(clipped(np.array([3.0, 4.0]), 1.0)).round(4)
    np.float64(1.0)
    """
    with np.errstate(over="ignore"):
        norm = math.sqrt(float(np.dot(update, update)))
    if not math.isfinite(norm):
        raise Overflow("its update is too large for its norm to be computed")
    return update * (most / norm * (1 - 1e-6)) if norm > most else update


def _tilt(session: Session, loss: float | None) -> float:
    """The factor of a client's weight that depends on its loss."""
    if not session.blind:
        return 1.0
    if loss is None or not math.isfinite(loss):
        raise Overflow("its loss is not finite")
    exponent = session.slope * (loss - session.reference)
    if exponent > session.steepest:
        raise Overflow(
            f"its loss is too far from the reference {session.reference:g}: its weight would be more than "
            f"exp({session.steepest:g}); give another reference, or a larger steepest"
        )
    return math.exp(exponent)


def system_generator() -> np.random.Generator:
    """A generator seeded by the system's generator: nobody knows its seed, so nobody can subtract its noise."""
    return np.random.Generator(np.random.Philox(int.from_bytes(fresh(16))))


@dataclass(frozen=True, eq=False)
class Weighted:
    """Σ a_i·x_i over the clients in the sum, and the largest error of a value."""

    values: Vector
    error: float


def weighted(session: Session, values: Vector, error: float, mass: float) -> Weighted:
    """The weighted sum of the updates, from the sum of the vectors of clients whose public weights sum to ``mass``.

    If clients have weighed themselves, their weights are also scaled so that they sum to ``mass``.
    """
    if not session.blind:
        return Weighted(values, error)
    unit = min(session.range, session.clip)
    hidden = float(values[0]) / unit
    if not hidden > 1000 * error / unit:
        raise Overflow(
            f"the weights add up to {hidden:.3g}, too little for {session.bits} bits: the losses are too far from the "
            f"reference {session.reference:g}; give another one"
        )
    return Weighted(values[1:] * (mass / hidden), 2 * error * mass / hidden)

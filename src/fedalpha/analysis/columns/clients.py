"""How evenly the model serves the clients."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import numpy as np

from fedalpha.analysis.columns.base import COLUMNS, Array, Column, Context


def accuracies(context: Context) -> Array | None:
    """One accuracy per client; None if test samples cannot be assigned to clients, and clients reported none."""
    if context.told:
        return np.array([context.told[id] for id in sorted(context.told)])
    if context.correct is None or context.owners is None:
        return None
    return context.owners.accuracies(context.correct)


class _Served(Column):
    """A column about the accuracies of clients; None in rounds in which they are not known."""

    dtype: ClassVar[Literal["int32", "float32", "float64"]] = "float64"
    scale = 100.0
    tested = True


@COLUMNS.register
class ClientAccuracy(_Served):
    """The accuracy on each client's own test samples, where clients have some or evaluate the model themselves."""

    name = "client_accuracy"
    order = 40
    dtype: ClassVar[Literal["int32", "float32", "float64"]] = "float32"  # in cells
    per_client = True
    panel = True
    optional = True

    def present(self, context: Context) -> bool:
        return context.told is not None or (context.owners is not None and context.owners.test_owner is not None)

    def value(self, context: Context) -> list[float] | None:
        found = context.once(accuracies)
        return None if found is None else found.tolist()


@COLUMNS.register
class TestedClients(ClientAccuracy):
    """The ids of the clients in ``client_accuracy``."""

    name = "tested_clients"
    order = 45
    dtype = "int32"

    def value(self, context: Context) -> list[int] | None:  # type: ignore[override]
        if context.told is not None:
            return sorted(context.told)
        return None if context.owners is None else context.owners.ids


@COLUMNS.register
class WorstClientAccuracy(_Served):
    """The smallest accuracy of a client."""

    name = "worst_client_accuracy"
    order = 50
    heading = "worst client's accuracy (%)"
    better = "higher"

    def value(self, context: Context) -> float | None:
        found = context.once(accuracies)
        return None if found is None else float(found.min())


@COLUMNS.register
class WorstTenthAccuracy(_Served):
    """The mean accuracy of the tenth of the clients (at least one) that is served worst, in runs with a clock."""

    name = "worst_tenth_accuracy"
    order = 55
    heading = "accuracy of the worst tenth (%)"
    better = "higher"
    optional = True
    timed = True

    def present(self, context: Context) -> bool:
        return context.time is not None

    def value(self, context: Context) -> float | None:
        found = context.once(accuracies)
        if found is None:
            return None
        worst = np.sort(found)[: math.ceil(len(found) / 10)]
        return math.fsum(worst.tolist()) / len(worst)


@COLUMNS.register
class ClientAccuracySpread(_Served):
    """The standard deviation of the accuracy over clients."""

    name = "client_accuracy_spread"
    order = 60
    heading = "spread of client accuracy (points)"
    better = "lower"
    praise = "more even"

    def value(self, context: Context) -> float | None:
        found = context.once(accuracies)
        return None if found is None else float(found.std())

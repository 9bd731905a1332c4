"""How good the model is on the server's data."""

from __future__ import annotations

from fedalpha.analysis.columns.base import COLUMNS, Column, Context, finite


@COLUMNS.register
class Accuracy(Column):
    """The share of the test samples that the model gets right."""

    name = "accuracy"
    order = 10
    dtype = "float64"
    heading = "test accuracy (%)"
    scale = 100.0
    better = "higher"
    tested = True

    def value(self, context: Context) -> float | None:
        return context.accuracy


@COLUMNS.register
class Loss(Column):
    """The mean loss over the test samples; None where it is not finite."""

    name = "loss"
    order = 20
    dtype = "float64"
    heading = "test loss"
    digits = 4
    better = "lower"
    tested = True

    def value(self, context: Context) -> float | None:
        return finite(context.loss)


@COLUMNS.register
class ValidationAccuracy(Column):
    """The accuracy on the validation part, if the strategy, ``stop`` or ``keep`` looks at it."""

    name = "validation_accuracy"
    order = 30
    dtype = "float64"
    stored = False

    def present(self, context: Context) -> bool:
        return context.validation_accuracy is not None

    def value(self, context: Context) -> float | None:
        return context.validation_accuracy


@COLUMNS.register
class ValidationLoss(Column):
    """The mean loss over the validation part, if ``stop`` or ``keep`` looks at it; None where it is not finite."""

    name = "validation_loss"
    order = 35
    dtype = "float64"
    stored = False

    def present(self, context: Context) -> bool:
        return context.validation_loss is not None

    def value(self, context: Context) -> float | None:
        return finite(context.validation_loss)

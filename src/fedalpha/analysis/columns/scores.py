"""Scores on the test set besides accuracy, in runs whose task asks for them."""

from __future__ import annotations

from typing import ClassVar, Literal

from fedalpha.analysis.columns.base import COLUMNS, Column, Context, finite


class _Score(Column):
    """A score that the task names; rows of other runs do not have the column."""

    dtype = "float64"
    better: ClassVar[Literal["higher", "lower"] | None] = "higher"
    optional = True
    tested = True
    scored = True

    def present(self, context: Context) -> bool:
        return self.name in context.scores

    def value(self, context: Context) -> float | None:
        return finite(context.scores.get(self.name))


@COLUMNS.register
class BalancedAccuracy(_Score):
    """The accuracy of each class, averaged over the classes that occur."""

    name = "balanced_accuracy"
    heading = "balanced test accuracy (%)"
    scale = 100.0


@COLUMNS.register
class F1(_Score):
    """The F1 score of each class, averaged over classes (macro)."""

    name = "f1"
    heading = "macro F1 (%)"
    scale = 100.0


@COLUMNS.register
class RocAuc(_Score):
    """The area under the ROC curve of each class against the rest, averaged over classes."""

    name = "roc_auc"
    heading = "ROC AUC (%)"
    scale = 100.0


@COLUMNS.register
class MeanSquaredError(_Score):
    """The mean squared error of the predicted values."""

    name = "mse"
    heading = "test MSE"
    digits = 4
    better = "lower"


@COLUMNS.register
class R2(_Score):
    """The coefficient of determination: 1 is perfect, 0 as good as the mean."""

    name = "r2"
    heading = "test R²"
    digits = 3

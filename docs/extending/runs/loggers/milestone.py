"""A line when a run is good enough."""

from collections.abc import Sequence

from fedalpha.analysis.history import Row
from fedalpha.round import ServerState
from fedalpha.runs.callbacks import Callback
from fedalpha.runs.loggers import LOGGERS


@LOGGERS.register(examples=("milestone(0.6)",))
class milestone(Callback):
    """Prints the first round in which the test accuracy is at least ``accuracy``."""

    def __init__(self, accuracy: float) -> None:
        self.accuracy = accuracy

    def on_start(self, rounds: int) -> None:
        self.reached = False

    def on_resume(self, rows: Sequence[Row]) -> None:
        self.reached = any(self._reaches(row) for row in rows)

    def on_round(self, row: Row, state: ServerState) -> None:
        if not self.reached and self._reaches(row):
            self.reached = True
            print(f"milestone: accuracy {row['accuracy']:.3f} after round {row['round']}")

    def _reaches(self, row: Row) -> bool:
        return row["accuracy"] is not None and bool(row["accuracy"] >= self.accuracy)

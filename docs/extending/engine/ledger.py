"""An engine that writes down its orders."""

import json
from pathlib import Path

from fedalpha.combine import Reports
from fedalpha.data.federations import Federation
from fedalpha.engine import ENGINES
from fedalpha.engine.embedded import embedded
from fedalpha.round import Engine, Evaluation, Ids, Part, Sample, Train
from fedalpha.strategies import Array
from fedalpha.task import Task
from fedalpha.update import Broadcast, Update


@ENGINES.register(examples=("ledger(file=orders.jsonl)",))
class ledger(embedded):
    """Clients are computed on this machine, and ``file`` gets a line for every order."""

    file: str = "orders.jsonl"

    def start(self, federation: Federation, task: Task, update: Update, seed: int) -> Engine:
        return Ledger(super().start(federation, task, update, seed), Path(self.file))


class Ledger:
    """An engine in use: it answers for the clients, and knows nothing of strategies."""

    def __init__(self, engine: Engine, file: Path) -> None:
        self.engine, self.file = engine, file

    def losses(self, broadcast: Broadcast, ids: Ids, sample: Sample | None = None) -> Array:
        self._write("losses", ids.tolist())
        return self.engine.losses(broadcast, ids, sample)

    def update(self, broadcast: Broadcast, order: Train) -> Reports:
        self._write("update", order.ids.tolist())
        reports: Reports = self.engine.update(broadcast, order)
        return reports

    def evaluate(self, broadcast: Broadcast, part: Part) -> Evaluation:
        self._write("evaluate", part)
        return self.engine.evaluate(broadcast, part)

    def close(self) -> None:
        self.engine.close()

    def _write(self, order: str, of: object) -> None:
        with self.file.open("a") as lines:
            lines.write(json.dumps({"order": order, "of": of}) + "\n")

"""A structured log: one JSON object per line, for log collectors."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from fedalpha.analysis.history import History, Row
from fedalpha.round import ServerState
from fedalpha.runs.callbacks import Callback
from fedalpha.runs.loggers.base import LOGGERS, opened


@LOGGERS.register(name="jsonlog", examples=("jsonlog(events.jsonl)",))
class JsonLog(Callback):
    """Appends a line per event to the file ``path``: start, resume, refused, kept, round, stopped, end.

    Each line has the ``time`` (UTC), the ``event`` and the ``round``. A round has its numbers, without the lists of
    clients (those are in the history). The file is never shortened: a resumed run adds to it.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self._file: TextIO | None = None

    def on_start(self, rounds: int) -> None:
        self._file = opened(self.path, "a")
        self._write("start", 0, rounds=rounds)

    def on_resume(self, rows: Sequence[Row]) -> None:
        self._write("resume", rows[-1]["round"])

    def on_round(self, row: Row, state: ServerState) -> bool | None:
        round = row["round"]
        for refusal in row.get("refused") or ():
            self._write("refused", round, client=refusal["client"], reason=refusal["reason"])
        if row.get("kept") is not None:
            self._write("kept", round, reason=row["kept"])
        numbers = {k: v for k, v in row.items() if isinstance(v, int | float) and k != "round"}
        shadow = {rule: found.get("distance") for rule, found in (row.get("shadow") or {}).items()}
        self._write("round", round, **numbers, **({"shadow_distance": shadow} if shadow else {}))
        if "stopped" in row:
            self._write("stopped", round, reason=row["stopped"])
        return None

    def on_end(self, history: History) -> None:
        if self._file is not None:
            last = history.rows[-1]["round"] if history.rows else 0
            self._write("end", last, interrupted=history.interrupted)
            self._file.close()
            self._file = None

    def _write(self, event: str, round: int, **more: Any) -> None:
        assert self._file is not None
        time = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        line = {"time": time, "event": event, "round": round, **more}
        self._file.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
        self._file.flush()

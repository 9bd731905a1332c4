"""What a run returns: one row per round, and the final model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from fedalpha.analysis.columns import check_numbers, numbers
from fedalpha.analysis.measures.base import rounds_to
from fedalpha.store.exports import html_table
from fedalpha.store.files import CONFIG_BYTES, read_bytes, write_atomically
from fedalpha.text import counted, nearest, shown

if TYPE_CHECKING:  # torch is needed to read a model, not to hold rows
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedalpha.models import Parameters
    from fedalpha.round import ServerState

SAVED = "saved.json"
"""The file of `History.save` with what the other files do not say."""
FORMAT = 1
"""The format of ``saved.json``."""
_SHOWN_ROWS = 3
"""How many of the first rows, and of the last, a notebook shows."""

Row = dict[str, Any]
"""A JSON object: ``round`` r describes the model after r rounds (0 is the initial model)."""


@dataclass(frozen=True, eq=False, repr=False)
class Best:
    """The best model of a run that keeps it, and the row of its round."""

    row: Row
    model: Parameters

    @property
    def round(self) -> int:
        return int(self.row["round"])

    def __repr__(self) -> str:
        return f"Best(round={self.round})"


@dataclass(frozen=True, eq=False, repr=False)
class History:
    """The rows of a run and its last model; ``interrupted`` says that it stopped before its end.

    ``best`` is the best model, if the run keeps it (``Evaluate(keep="best")``). ``history[5]`` is the row after 5
    rounds, ``history[-1]`` the last one, ``history["accuracy"]`` a column; iterating gives the rows.
    """

    rows: list[Row]
    model: Parameters
    interrupted: bool = False
    best: Best | None = None
    state: ServerState | None = None
    """The server's state after the last row; None for a history that was read from files."""
    more: Callable[[int, Sequence[Any], bool], History] | None = field(default=None, repr=False)
    """How `continue_` plays more rounds."""

    def __repr__(self) -> str:
        if not self.rows:
            return "History(no rows)"
        last = self.rows[-1]
        parts = [counted(last["round"], "round")]
        parts += [f"{name} {last[name]:.4g}" for name in ("accuracy", "loss") if last.get(name) is not None]
        parts += [f"best after round {self.best.round}"] if self.best is not None else []
        parts += [f"stopped: {self.stopped}"] if self.stopped is not None else []
        return f"History({', '.join(parts)}{', interrupted' if self.interrupted else ''})"

    @property
    def stopped(self) -> str | None:
        """Why the run stopped early: the condition, and the data that it looked at; None if it did not."""
        found: str | None = self.rows[-1].get("stopped") if self.rows else None
        return found

    def column(self, name: str) -> NDArray[np.float64]:
        """One number per round; missing ones are NaN. Lists, such as alpha, are in ``rows``."""
        known = dict.fromkeys([found.name for found in numbers()] + [key for row in self.rows for key in row])
        if name not in known:
            raise ValueError(f"unknown column {name!r}; {nearest(name, known)}")
        if any(isinstance(row.get(name), list | dict) for row in self.rows):
            raise ValueError(f"{name!r} is a list in each row; read it as [row[{name!r}] for row in history.rows]")
        return np.array([np.nan if row.get(name) is None else row[name] for row in self.rows], dtype=np.float64)

    def __len__(self) -> int:
        """The number of rows: one more than the rounds, because row 0 is the initial model."""
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    @overload
    def __getitem__(self, key: int) -> Row: ...
    @overload
    def __getitem__(self, key: slice) -> list[Row]: ...
    @overload
    def __getitem__(self, key: str) -> NDArray[np.float64]: ...
    def __getitem__(self, key: int | slice | str) -> Row | list[Row] | NDArray[np.float64]:
        return self.column(key) if isinstance(key, str) else self.rows[key]

    @property
    def accuracy(self) -> NDArray[np.float64]:
        return self.column("accuracy")

    @property
    def loss(self) -> NDArray[np.float64]:
        return self.column("loss")

    def rounds_to(self, accuracy: float) -> int | None:
        """R_p: the smallest r such that the model after r rounds has at least this accuracy; None if never."""
        return rounds_to(self.accuracy, accuracy)

    def summary(self, target: float = 0.6) -> dict[str, Any]:
        """The end of the run in a few numbers. Accuracy and loss belong to the last row, never to the best one.

        ``R_60`` is `rounds_to` of ``target``, and with a clock ``T_60`` the simulated seconds until then and ``time``
        those of the whole run. Bytes, local steps and seconds are sums over all rounds.
        """
        reached = self.rounds_to(target)
        last = self.rows[-1] if self.rows else {}
        found: dict[str, Any] = {"rounds": last.get("round", 0)}
        found |= {name: last.get(name) for name in ("accuracy", "loss")}
        found[f"R_{100 * target:g}"] = reached
        if last.get("time") is not None:
            found[f"T_{100 * target:g}"] = None if reached is None else self.rows[reached]["time"]
            found["time"] = last["time"]
        for name in ("bytes_down", "bytes_up", "steps", "seconds"):
            found[name] = sum(row.get(name) or 0 for row in self.rows)
        found |= {"best_round": self.best.round} if self.best is not None else {}
        found |= {"stopped": self.stopped} if self.stopped is not None else {}
        return found | {"interrupted": self.interrupted}

    def plot(self, ax: Axes | None = None, column: str | None = None, label: str = "") -> Figure:
        """Draw accuracy and loss over rounds, or one ``column``; returns the figure.

        On an axis ``ax`` of your own one column is drawn, the accuracy by default.
        """
        from fedalpha.analysis.plots import figure_of

        return figure_of({label or "run": [self]}, ax, column, legend=bool(label))

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a table with the round as its index. Needs pandas; lists stay lists."""
        return frame(self.rows).set_index("round")

    def _repr_html_(self) -> str:
        """A short table for notebooks: the first and the last rows."""
        names = [name for name in ("accuracy", "loss", "effective_clients", "heaviest") if self._measured(name)]
        cut = len(self.rows) > 2 * _SHOWN_ROWS
        chosen = [*self.rows[:_SHOWN_ROWS], None, *self.rows[-_SHOWN_ROWS:]] if cut else [*self.rows]
        body = [
            ["…"] * (1 + len(names)) if row is None else [str(row["round"]), *(_short(row.get(n)) for n in names)]
            for row in chosen
        ]
        return html_table(repr(self), ["round", *names], body)

    def _measured(self, name: str) -> bool:
        return any(row.get(name) is not None for row in self.rows)

    def save(self, folder: str | Path) -> Path:
        """Write the rows and the models to a new folder, which `History.load` and ``fedalpha report`` read.

        A run with ``out=`` writes such a folder by itself, round by round, and can be resumed from it.
        """
        place = Path(folder)
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            raise ValueError(f"{place} exists and is not an empty folder; choose another one")
        place.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(row, allow_nan=False) + "\n" for row in self.rows]
        write_atomically(place / "history.jsonl", "".join(lines).encode())
        if self.model:
            write_atomically(place / "model.safetensors", model_bytes(self.model))
        if self.best is not None:
            write_atomically(place / "best.safetensors", model_bytes(self.best.model))
        about = {"format": FORMAT, "interrupted": self.interrupted}
        write_atomically(place / SAVED, (json.dumps(about) + "\n").encode())
        return place

    @staticmethod
    def load(folder: str | Path) -> History:
        """The history of a run folder, or of a folder that `save` wrote."""
        return read(folder)

    def continue_(self, rounds: int, callbacks: Sequence[Any] = (), progress: bool = False) -> History:
        """Play on until ``rounds`` rounds in all; the rows are those of a run that had them from the start.

        The history itself is not changed. ``callbacks`` and ``progress`` watch the rounds that are played now.
        """
        if self.more is None:
            raise ValueError(
                "this history was read from files, so it cannot be continued; call fedalpha.run(…) again with the same "
                f"arguments, its folder as out= and rounds={rounds}: the run is lengthened"
            )
        played = self.rows[-1]["round"] if self.rows else 0
        if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds <= played:
            raise ValueError(f"rounds = {rounds!r}, but {played} are played; give a larger number of rounds in all")
        if self.stopped is not None:
            raise ValueError(
                f"the run stopped early ({self.stopped}); run it without this condition to play more rounds"
            )
        return self.more(rounds, callbacks, progress)


def read(folder: str | Path) -> History:
    """The history of a run folder."""
    folder = Path(folder)
    try:
        rows = [_row(line, number, folder) for number, line in enumerate(_lines(folder / "history.jsonl"), 1)]
    except FileNotFoundError:
        raise ValueError(
            f"{folder} is not a run folder: it has no history.jsonl; `fedalpha run --out` writes one"
        ) from None
    try:
        check_numbers(rows)
    except ValueError as error:
        raise ValueError(_damaged(folder, str(error))) from None
    kept = _kept_round(rows)
    best = None if kept is None else _load(folder / "best.safetensors")
    return History(
        rows,
        _load(folder / "model.safetensors") or {},
        interrupted(folder),
        best=Best(rows[kept], best) if kept is not None and best is not None else None,
    )


def interrupted(folder: Path) -> bool:
    """Whether the run of a folder has not ended: it was interrupted, or is still running."""
    if (folder / "checkpoint").is_dir():
        return not (folder / "checkpoint" / "finished").is_file()
    try:
        about = json.loads(read_bytes(folder / SAVED, most=CONFIG_BYTES))
        if about["format"] != FORMAT:
            raise ValueError(f"{folder / SAVED} has the format {shown(about['format'])}; this version reads {FORMAT}")
        return bool(about["interrupted"])
    except FileNotFoundError:
        return False
    except (KeyError, TypeError, json.JSONDecodeError, RecursionError):
        raise ValueError(f"{folder / SAVED} is damaged; remove it") from None


def model_bytes(parameters: Mapping[str, Any]) -> bytes:
    """A model of tensors, or of NumPy arrays, as the content of a safetensors file."""
    if all(isinstance(value, np.ndarray) for value in parameters.values()):
        from safetensors.numpy import save as save_arrays

        return save_arrays({k: np.ascontiguousarray(v).reshape(v.shape) for k, v in parameters.items()})
    from safetensors.torch import save

    return save({k: v.contiguous() for k, v in parameters.items()})


def frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows as a table of pandas, which is imported here only."""
    try:
        import pandas as pd
    except ImportError:
        raise ValueError("to_pandas needs pandas; install it with: pip install pandas") from None
    return pd.DataFrame(list(rows))


def _short(value: Any) -> str:
    return "–" if value is None else f"{value:.4g}"


def _kept_round(rows: list[Row]) -> int | None:
    """The round of the best model, if the run keeps one."""
    found = rows[-1].get("best_round") if rows else None
    return found if type(found) is int and 0 <= found < len(rows) else None


def _load(model: Path) -> Parameters | None:
    """The model in a file; None if there is none."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        found: Parameters = load(read_bytes(model))
    except FileNotFoundError:
        return None
    except (SafetensorError, KeyError) as error:  # KeyError: a dtype that torch does not have
        raise ValueError(f"{model} is damaged: {shown(error)}; remove it") from None
    return found


def _lines(path: Path) -> list[bytes]:
    return read_bytes(path).splitlines()


def _row(line: bytes, number: int, folder: Path) -> Row:
    try:
        row = json.loads(line)
        if type(row) is dict and type(row["round"]) is int:
            return row
    except (ValueError, KeyError, RecursionError):
        pass
    raise ValueError(_damaged(folder, f"line {number} is not a row"))


def _damaged(folder: Path, why: str) -> str:
    again = f"`fedalpha resume {folder}` writes it again from the checkpoint"
    return f"{folder / 'history.jsonl'} is damaged: {why}; {again}"

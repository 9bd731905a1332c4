"""Files of run folders and of studies: checkpoints, cells, plans, logs, histories, pages, races."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fuzzing.base import Target
from fuzzing.mutations import changed_bytes, changed_state, changed_tree


class Checkpoints(Target):
    """Generations with valid checksums and changed contents, or with changed bytes."""

    name, share = "checkpoints", 3
    readers: ClassVar = {
        "store/generations.py": (
            *("Generations.load", "Generations._read", "_unpacked", "_records", "_checked", "_verified"),
        ),
        "store/tree.py": ("unpack", "unpack.decode", "_tensor"),
        "runs/folder.py": ("Folder._accepted",),
        "runs/saved_state.py": (
            *("check_state", "_models", "_alike", "restored", "form", "_check_rows", "_check_extras", "_check_clock"),
            "_kind",
        ),
        "round/buffered.py": ("check", "finite"),
    }

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        import fedalpha
        from fedalpha.clock import Pace
        from fedalpha.round import Algorithm
        from fedalpha.runs.experiment import Experiment
        from fedalpha.runs.folder import Folder
        from fedalpha.runs.saved_state import state_tree
        from fedalpha.store import DamagedError, FormatError
        from fedalpha.store.tree import pack
        from fedalpha.strategies import STRATEGIES

        type(self).errors = (ValueError, DamagedError, FormatError)
        digits = fedalpha.federation("digits", partition="iid", clients=3)
        algorithm = Algorithm(weigh=STRATEGIES.parse("switch(FedSoftWorse(optima=estimated), FedAvg, at=3)"))
        pace = Pace.of("buffered(K=1, concurrency=2)", "constant")
        experiments = [Experiment(digits, algorithm, "softmax", 3, 0, pace=p) for p in (Pace(), pace)]
        self.starts = [experiment.start() for experiment in experiments]
        self.run = Folder(self.folder, {"clients": 3, "rounds": 3})
        kept = {0: {"x": [np.float64(1), float("inf"), (1, None), np.int64(3), "y"], "array": np.zeros(2)}}
        sent = {"parameters": self.starts[1].broadcast.parameters, "extras": {}}
        flights = {i: {"version": i, "end": 3.0, "lost": None, "before": 0.5} for i in (1, 2)}
        clocks = {}, {"time": 2.5, "flights": flights, "versions": {1: sent}}
        self.states = []
        best = {"best": {"round": 1, "model": self.starts[0].broadcast.parameters}}
        for start, clock, watch in zip(self.starts, clocks, ({}, best), strict=True):
            same = {"round": 2, "accuracy": 0.5, "clients": kept, "clock": clock, "watch": watch}
            self.states.append(state_tree(dataclasses.replace(start, **same)))
        packed = [pack(state) for state in self.states]
        self.trees, self.arrays = [json.loads(text) for text, _ in packed], [arrays for _, arrays in packed]
        tensor = next(iter(sent["parameters"].values()))
        self.values = (
            *(None, True, -1, 0, 1, 2, 3, 2**70, 0.5, -0.5, float("inf"), float("nan"), "x", "y" * 300, {}, [], ()),
            *(np.float64(1), np.int64(1), np.zeros(2), tensor, {"x": tensor}, {"x": np.zeros(2)}, {1: tensor}),
            *({0: 0}, {1: {}}, ["x"], sent, {7: sent}, {"best": {"round": 9, "model": {}}}, ("mlp", (1, 8, 8), 10)),
        )
        self.rows = [{"round": r, "accuracy": 0.5, "alpha": [0.5, 0.5], "cohort": [0, 2]} for r in range(3)]

    def make(self, draw: random.Random) -> Any:
        which = draw.randrange(2)
        tree, rows, manifest = self.trees[which], self.rows, {}
        kind = draw.randrange(7)
        arrays = self.arrays[which]
        if kind >= 5:
            tree, arrays = self._odd(self.states[which], draw)
        elif kind == 0 and which:  # its clock alone
            tree = json.loads(json.dumps(tree))
            place = next(pair for pair in tree["map"] if pair[0] == "clock")
            place[1] = changed_tree(place[1], draw)
        elif kind <= 1:
            tree = changed_tree(tree, draw)
        elif kind == 2 and draw.random() < 0.1:
            rows = draw.choice((rows * 3, [*rows[:2], {"round": 2, "x": "x" * 2**21}]))
        elif kind == 2:
            rows = changed_tree(rows, draw)
        elif kind == 3:
            manifest = {draw.choice(("format", "number", "files", "round", "x")): draw.choice((0, None, [], "2", {}))}
        raw = (draw.choice(("data", "rows", "manifest")), draw.getrandbits(32)) if kind == 4 else None
        if draw.random() < 0.005:
            raw = "absent", 0
        return (tree, arrays), rows, manifest, raw, (which, draw.random() < 0.1)

    def _odd(self, state: dict[str, Any], draw: random.Random) -> tuple[Any, Any]:
        """A state in which a Python value is odd before it is packed, or of which a dtype is not one."""
        from fedalpha.store.tree import pack

        if draw.random() < 0.05:
            text, arrays = pack(state)
            return json.loads(text.replace('"float32"', draw.choice(('"nn"', '"none"', '"int8"', '"bool"')), 1)), arrays
        part = draw.choice((*state, "clock", "clock", "watch", "broadcast", "round"))
        state = dict(state)
        if part == "broadcast" and draw.random() < 0.5:
            inside = draw.choice(("architecture", "extras", "parameters"))
            state[part] = {**state[part], inside: draw.choice(self.values)}
        elif part in state:
            state[part] = changed_state(state[part], self.values, draw)
        else:
            state[part] = draw.choice(self.values)
        text, arrays = pack(state)
        return json.loads(text), arrays

    def first(self, given: Any) -> bool:
        return given[3] is None

    def read(self, given: Any) -> None:
        from safetensors.numpy import save

        from fedalpha.store.generations import FORMAT, _facts, _packed, _signed

        (tree, arrays), rows, change, raw, (which, live) = given
        text = json.dumps(tree).encode()
        content = {
            "data": save({**arrays, "tree": np.frombuffer(text, dtype=np.uint8)}),
            "rows": b"".join(map(_packed, rows if isinstance(rows, list) else [rows])),
        }
        files = {"000002.safetensors": _facts(content["data"]), "even.rows": _facts(content["rows"])}
        manifest = {"format": FORMAT, "number": 2, "round": 2, "files": files}
        content["manifest"] = _signed({**manifest, **change})
        if raw is not None and raw[0] != "absent":
            content[raw[0]] = changed_bytes(content[raw[0]], random.Random(raw[1]))
        place = self.folder / "checkpoint"
        place.mkdir(exist_ok=True)
        for name, part in zip(("000002.safetensors", "even.rows", "000002.json"), content.values(), strict=True):
            (place / name).write_bytes(part)
        if raw is not None and raw[0] == "absent":
            (place / "000002.json").unlink()
        self.run.resume(self.starts[which], None if live else 3)  # a live federation does not know how many clients


HEADERS = (
    *(b"\x16" + b"\xff" * 12, b"\x1c" * 20, b"\x19" * 20, b"\x19\xf3" + b"\xff" * 6 + b"\x01", b"\x19\x47", b"\x1d\0"),
    *(b"\x18\xff\xff\xff\xff\x0f", b"\x15\x00\x15\x01\x15\x01\x00", b"\x06\x00\x00", b"\x13\x07\x07", b"\0" * 4),
)
"""Headers of pages in Thrift's compact protocol: endless numbers, deep nesting, negative sizes, other kinds."""


class Cells(Target):
    """Parquet files of cells."""

    name, share = "cells (Parquet)", 3
    readers: ClassVar = {
        "study/tables.py": ("read", "_without_dictionaries", "split", "result_of", "_about", "_kind", "check_format"),
        "study/parquet_pages.py": ("announced", "_pages", "_struct", "_value", "_whole", "_varint"),
        "study/store.py": ("Store.get", "Store._tables", "Store._read"),
    }
    key = "0123456789abcdef"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from fedalpha.analysis.columns import stored
        from fedalpha.study.tables import content

        self.form = {c.name: (c.dtype, c.per_client) for c in stored()}
        self.tables = [self._table(dict(self._columns())), self._table(dict(self._columns(rows=1)))]
        self.files = [content(table) for table in self.tables]
        self.bombs = self._bombs()
        self.pages = [self._pages(file) for file in self.files]

    def _pages(self, file: bytes) -> list[int]:
        """Where the pages of a file begin: Arrow does not read their headers when it opens the file."""
        import pyarrow
        from pyarrow import parquet

        group = parquet.read_metadata(pyarrow.BufferReader(file)).row_group(0)
        columns = [group.column(i) for i in range(group.num_columns)]
        return [c.data_page_offset for c in columns] + [
            c.dictionary_page_offset for c in columns if c.has_dictionary_page
        ]

    def _changed_header(self, draw: random.Random) -> bytes:
        """A file with an odd header of a page, or with other metadata that Arrow accepts."""
        which = draw.randrange(len(self.files))
        file = bytearray(self.files[which])
        if draw.random() < 0.2:
            return bytes(file).replace(b"parquet-cpp", draw.choice((b"parquet-cpX", b"parquet-mr ")))
        place = draw.choice(self.pages[which])
        odd = draw.choice(HEADERS)
        file[place : place + len(odd)] = odd
        return bytes(file)

    def _bombs(self) -> list[bytes]:
        """Small files that stand for large tables, against a limit that is small here, and one of another format."""
        import io

        import pyarrow
        from pyarrow import parquet

        from fedalpha.study import tables

        tables._FREE = 2**16
        rows = 200_000
        key = pyarrow.DictionaryArray.from_arrays(np.zeros(rows, np.int8), [self.key])
        long = pyarrow.DictionaryArray.from_arrays(np.zeros(1_000, np.int8), ["x" * 5_000])
        zeros = pyarrow.array(np.zeros(rows, np.int64))
        one = pyarrow.ListArray.from_arrays(pyarrow.array([0, rows], pyarrow.int32()), np.zeros(rows, np.float32))
        found = []
        for columns, dictionary, form in (
            ({"cell": key, "round": zeros}, True, 2),
            ({"cell": key, "round": zeros}, False, 2),
            ({"about": long}, True, 2),
            ({"cell": [self.key], "alpha": one}, True, 2),
            ({"round": zeros[:4]}, True, 7),
        ):
            table = pyarrow.table(columns).replace_schema_metadata({"fedalpha": json.dumps({"format": form})})
            file = io.BytesIO()
            parquet.write_table(table, file, compression="zstd", use_dictionary=dictionary)
            found.append(file.getvalue())
        return found

    def _columns(self, rows: int = 4) -> Any:
        facts = {"ended": "rounds", "versions": {"torch": "2", "python": "3"}, "hash": self.key, "config": {}}
        about = json.dumps({**facts, "shares": {"cell": self.key, "rounds": 2}})
        yield from {"cell": [self.key] * rows, "strategy": ["FedAvg"] * rows, "seed": [0] * rows}.items()
        for name, (_, per_client) in self.form.items():
            empty = None if name == "cohort" and rows == 1 else [0.0, 1.0]
            yield name, list(range(rows)) if name == "round" else [empty if per_client else 0.5] * rows
        yield "about", [about] + [None] * (rows - 1)

    def _table(self, columns: dict[str, Any]) -> Any:
        import pyarrow

        made = {}
        for name, values in columns.items():
            dtype, per_client = self.form.get(name, ("int64" if name == "seed" else "string", False))
            kind = getattr(pyarrow, dtype)()
            try:
                made[name] = pyarrow.array(values, pyarrow.list_(kind) if per_client else kind)
            except (pyarrow.ArrowException, TypeError, OverflowError, ValueError):
                made[name] = pyarrow.array([repr(v)[:100].encode(errors="replace").decode() for v in values])
        shortest = min(map(len, made.values()), default=0)
        return pyarrow.table({name: values[:shortest] for name, values in made.items()})

    def make(self, draw: random.Random) -> Any:
        from fedalpha.study.tables import content

        if draw.random() < 0.02:
            return draw.choice(self.bombs)
        if draw.random() < 0.4:
            return changed_bytes(draw.choice(self.files), draw)
        if draw.random() < 0.05:
            return self._changed_header(draw)
        columns = dict(self._columns(draw.choice((1, 4))))
        about = json.loads(columns["about"][0])
        for _ in range(draw.choice((1, 1, 2))):
            name = draw.choice(list(columns))
            if draw.random() < 0.2 and len(columns) > 2:
                del columns[name]
            elif name == "about" and draw.random() < 0.7:
                columns[name] = [json.dumps(changed_tree(about, draw)), *columns[name][1:]]
            else:
                found = changed_tree(columns[name], draw)
                columns[name] = found if isinstance(found, list) else [found] * 4
        return content(self._table(columns))

    def first(self, given: Any) -> bool:
        import pyarrow
        from pyarrow import parquet

        try:
            parquet.read_schema(pyarrow.BufferReader(given))
        except (pyarrow.ArrowException, OSError, ValueError):
            return False
        return True

    def read(self, given: Any) -> None:
        from fedalpha.study import Store

        store = Store(self.folder)
        store.packed.write_bytes(given)
        for _ in range(2):  # the second one is not read again
            found = store.get(self.key)
        assert found.last >= 0


class Plans(Target):
    """The ``study.json`` and the logs of a study's folder."""

    name, share = "plans and logs (JSON)", 3
    readers: ClassVar = {
        "study/status.py": ("load_study", "status", "_left", "_record", "_times"),
        "study/store.py": ("Store.plan",),
        "study/cells.py": ("Cell.from_entry",),
        "text/shown.py": ("cleaned", "plain", "shown"),
    }

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from fedalpha.study import study
        from fedalpha.study.runner import plan

        values = {"name": "x", "strategies": ["FedAvg", "FedWorse"], "seeds": 1, "note": "n", "settings": {"rounds": 2}}
        found = study({**values, "cases": [{"name": "a", "clients": 4}, {"name": "b"}], "zoom": [{"rounds": [0, 1]}]})
        self.plan = json.loads(json.dumps({"format": 2, **plan(found, found.cells())}))
        key = self.plan["cells"][0]["cell"]
        self.running = {"pid": 1, "label": "x", "started": 1.0, "time": 2.0, "begun": 0, "round": 1, "rounds": 2}
        self.times = {"cell": self.plan["cells"][1]["cell"], "rounds": 2, "seconds": 1.5, "label": "y"}
        self.running_file = f"{key}.running"

    def make(self, draw: random.Random) -> Any:
        parts = {"study.json": self.plan, f"log/{self.running_file}": self.running, "log/times.jsonl": self.times}
        name = draw.choice(("study.json", "study.json", *parts))
        tree = self._odd(draw) if name == "study.json" and draw.random() < 0.2 else changed_tree(parts[name], draw)
        changed = json.dumps(tree).encode()
        if draw.random() < 0.2:
            changed = changed_bytes(changed, draw)
        found = {n: json.dumps(p).encode() for n, p in parts.items()} | {name: changed}
        if draw.random() < 0.005:
            del found["study.json"]
        return found

    def _odd(self, draw: random.Random) -> Any:
        """The plan with an odd setting of a cell, a plugin that is not here, or cells that may stop early."""
        found = json.loads(json.dumps(self.plan))
        cell = draw.choice(found["cells"])
        match draw.randrange(3):
            case 0:
                name = draw.choice(("rounds", "clients", "seed", "evaluate_every", "dataset", "partition", "update"))
                cell["settings"][name] = draw.choice((None, True, -1, 2**60, 0.5, "x", [], {}))
            case 1:
                found["study"]["settings"]["plugin"] = draw.choice(("x.py", "\x1b.py", "y" * 9_000, 7))
                cell[draw.choice(list(cell))] = draw.choice((None, "x", {}))
            case 2:
                for one in found["cells"]:
                    one["stop_at"] = draw.choice(("accuracy >= 0.6", "round > 1", "patience(loss)", "x", 5))
        return found

    def first(self, given: Any) -> bool:
        try:
            return bool([json.loads(part) for part in given.values()])
        except (ValueError, RecursionError):
            return False

    def read(self, given: Any) -> None:
        from fedalpha.study import status

        (self.folder / "log").mkdir(exist_ok=True)
        (self.folder / "study.json").unlink(missing_ok=True)
        for name, content in given.items():
            (self.folder / name).write_bytes(content)
        status(self.folder)


class Histories(Target):
    """The files of a run folder that hold its results."""

    name, share = "histories and models", 12
    readers: ClassVar = {"analysis/history.py": ("read", "_row", "_lines", "interrupted", "_kept_round", "_load")}
    rows = tuple({"round": r, "accuracy": 0.5, "loss": 1.5, "alpha": [0.5, 0.5], "best_round": 1} for r in range(3))

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from safetensors.numpy import save

        self.model = save({"w": np.zeros((2, 3), np.float32), "b": np.ones(3, np.float32)})

    def make(self, draw: random.Random) -> Any:
        rows, about = list(self.rows), {"format": 1, "interrupted": False}
        rows = changed_tree(rows, draw) if draw.random() < 0.6 else rows
        about = changed_tree(about, draw) if draw.random() < 0.2 else about
        lines = "\n".join(json.dumps(row) for row in (rows if isinstance(rows, list) else [rows])).encode()
        lines = changed_bytes(lines, draw) if draw.random() < 0.4 else lines
        model = changed_bytes(self.model, draw) if draw.random() < 0.1 else self.model
        files = {"history.jsonl": lines, "saved.json": json.dumps(about).encode(), "model.safetensors": model}
        for name in ("saved.json", "model.safetensors"):
            if draw.random() < 0.05:
                del files[name]
        return files | ({"best.safetensors": model} if draw.random() < 0.5 else {}), draw.random() < 0.1

    def first(self, given: Any) -> bool:
        try:
            return bool([json.loads(line) for line in given[0]["history.jsonl"].splitlines()])
        except (ValueError, RecursionError):
            return False

    def read(self, given: Any) -> None:
        from fedalpha.analysis.history import read

        files, checkpoint = given
        for name in ("saved.json", "model.safetensors", "best.safetensors"):
            (self.folder / name).unlink(missing_ok=True)
        for name, content in files.items():
            (self.folder / name).write_bytes(content)
        if checkpoint:
            (self.folder / "checkpoint").mkdir(exist_ok=True)
        elif (self.folder / "checkpoint").is_dir():
            (self.folder / "checkpoint").rmdir()
        found = read(self.folder)
        _ = [row["round"] for row in found.rows]


class RunPages(Target):
    """A run folder as ``fedalpha report`` shows it; no picture is drawn of a single row."""

    name, share = "pages of runs", 2
    readers: ClassVar = {
        "report/single.py": ("is_run", "run_page", "_page", "_rows", "_cells", "_shadows", "_refusals", "table"),
    }
    row: ClassVar[dict[str, Any]] = {
        **{"round": 0, "accuracy": 0.5, "loss": None, "alpha": [0.5, 0.5], "cohort": [0, 2], "seconds": 1.5},
        **{"refused": [{"client": 1, "reason": "r"}], "nodes": {"1": 7}, "best_round": 0, "stopped": "s"},
        **{
            "effective_clients": 2.0,
            "shadow": {"FedWorse": {"distance": 0.5, "effective_clients": 1.0, "alpha": [1, 0]}},
        },
    }
    config: ClassVar[dict[str, Any]] = {"strategy": "FedAvg", "federation": "flower", "rounds": 2}

    def make(self, draw: random.Random) -> Any:
        row = changed_tree(self.row, draw) if draw.random() < 0.8 else dict(self.row)
        config = changed_tree(self.config, draw) if draw.random() < 0.3 else self.config
        line = json.dumps(row).encode() + b"\n"
        return changed_bytes(line, draw) if draw.random() < 0.1 else line, json.dumps(config).encode()

    def first(self, given: Any) -> bool:
        try:
            return bool(json.loads(given[0]))
        except (ValueError, RecursionError):
            return False

    def read(self, given: Any) -> None:
        from fedalpha.report.single import is_run, run_page

        for name, content in zip(("history.jsonl", "config.json"), given, strict=True):
            (self.folder / name).write_bytes(content)
        (self.folder / "config.json").unlink() if len(given[0]) % 50 == 0 else None
        assert is_run(self.folder)
        if given[0].count(b"\n") < 2:
            page = run_page(self.folder, refresh=len(given[0]) % 2)
            assert "<script" not in page


class Races(Target):
    """The ``tune.json`` of a study that tunes."""

    name, share = "races (tune.json)", 6
    readers: ClassVar = {
        "study/tuning/journal.py": ("read_tuning", "_Raced._whole", "_Journal._whole"),
        "study/tuning/answer.py": ("answer", "_verdict", "Verdict.words", "Verdict._amount", "Verdict._dropped"),
    }
    journal: ClassVar[dict[str, Any]] = {
        **{"format": 1, "study": {"name": "x"}, "name": "x", "complete": True, "reference": "a"},
        **{"measure": "accuracy", "error": 0.05, "budget": 32},
    }

    def _case(self, dropped: dict[str, Any], seeds: int = 4) -> dict[str, Any]:
        def raced(names: str, gone: dict[str, Any]) -> dict[str, Any]:
            scores = {n: [0.5 + i / 10 for i in range(gone[n]["seeds"] if n in gone else seeds)] for n in names}
            return {"seeds": list(range(seeds)), "scores": scores, "dropped": gone}

        methods = {
            name: {
                "text": f"{name}(T=1)",
                "settings": {"lr": 0.1},
                "rounds": 8,
                "generations": [{**raced("pq", {}), "new": [{}]}],
            }
            for name in "abc"
        }
        return {"rounds": 2, "methods": methods, "reported": raced("abc", dropped) if seeds else None}

    def make(self, draw: random.Random) -> Any:
        gone = {n: {"seeds": 2, "behind": draw.choice("abc")} for n in draw.choice(("", "b", "c", "bc", "ab", "abc"))}
        cases = {name: self._case(gone, draw.choice((0, 4, 4, 4))) for name in draw.choice((("",), ("one", "two")))}
        tree = {**self.journal, "measure": draw.choice(("accuracy", "loss", "auc")), "cases": cases}
        tree = changed_tree(tree, draw) if draw.random() < 0.8 else tree
        content = json.dumps(tree).encode()
        return changed_bytes(content, draw) if draw.random() < 0.1 else content

    def first(self, given: Any) -> bool:
        try:
            return bool(json.loads(given))
        except (ValueError, RecursionError):
            return False

    def read(self, given: Any) -> None:
        from fedalpha.study import read_tuning
        from fedalpha.study.tuning.answer import answer

        (self.folder / "tune.json").write_bytes(given)
        found = answer(read_tuning(self.folder))
        text = found.words() + found.promise() + found.markdown()
        assert "\x1b" not in text

"""What is fuzzed: every reader of texts, files and replies that somebody else may have made.

A target makes inputs from valid ones and reads them. A reader may accept an input or refuse it with one of its own
errors, whose text is short and cannot steer a terminal. Everything else is a finding.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import random
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fuzzing.mutations import changed_bytes, changed_text, changed_tree

LONGEST_ERROR = 5_000


class Target(ABC):
    """One reader. ``first`` says whether an input passes the reader's first check: the syntax, or the checksums."""

    name: ClassVar[str]
    share: ClassVar[int]
    """How many of 200 inputs it gets: fewer where one takes milliseconds."""
    readers: ClassVar[dict[str, tuple[str, ...]]]
    """The functions whose branches are counted, by file."""
    errors: ClassVar[tuple[type[Exception], ...]] = (ValueError,)

    def __init__(self, folder: Path) -> None:
        self.folder = folder / self.name.replace(" ", "-")
        self.folder.mkdir(exist_ok=True)

    @abstractmethod
    def make(self, draw: random.Random) -> Any: ...

    @abstractmethod
    def first(self, given: Any) -> bool: ...

    @abstractmethod
    def read(self, given: Any) -> None: ...

    def tried(self, given: Any) -> bool:
        """Whether the input was accepted; AssertionError for a finding."""
        try:
            self.read(given)
        except self.errors as error:
            text = str(error)
            assert len(text) <= LONGEST_ERROR, f"an error of {len(text)} characters"
            assert "\x1b" not in text, f"an escape in an error: {text!r}"
            return False
        return True


class Texts(Target):
    """Objects as text, of every registry."""

    name, share = "texts of rules", 100
    readers: ClassVar = {
        "text.py": ("Registry.parse", "Registry._call", "Registry._argument", "nearest", "call", "_value")
    }

    @cached_property
    def registries(self) -> list[Any]:
        from fedalpha.apply import APPLIES
        from fedalpha.combine import COMBINES
        from fedalpha.data import DATASETS, PARTITIONS
        from fedalpha.defence.faults import FAULTS
        from fedalpha.engine import ENGINES
        from fedalpha.models import MODELS
        from fedalpha.runs.loggers import LOGGERS
        from fedalpha.select import SELECTIONS
        from fedalpha.strategies import STRATEGIES
        from fedalpha.update import UPDATES

        plugs = (STRATEGIES, STRATEGIES, SELECTIONS, UPDATES, COMBINES, APPLIES)
        return [*plugs, FAULTS, PARTITIONS, DATASETS, MODELS, ENGINES, LOGGERS]

    @cached_property
    def examples(self) -> list[list[str]]:
        found = [[text for entry in registry for text in entry.examples] for registry in self.registries]
        found[0] += ["FedSoftWorse(T=1/2)", "FedSoftWorse(T=-1)", "FedWorse(k=1" + "0" * 400 + ")", "FedAvg()()", "1/2"]
        found[0] += [
            "FedSoftWorse(T=-x)",
            "cap(FedAvg, 1/x)",
            "cap(FedAvg, **{})",
            "cap(FedAvg, 1/0)",
            "mix(FedAvg, -(1))",
        ]
        return found

    def make(self, draw: random.Random) -> Any:
        place = draw.randrange(len(self.registries))
        others = self.examples[place]
        text = draw.choice(others)
        if place < 2 and draw.random() < 0.3:  # nested
            for _ in range(draw.randrange(1, 25)):
                text = draw.choice(
                    ("cap({}, 0.5)", "steady({}, 0.5)", "switch({}, FedAvg, at=3)", "floor({}, 0.1)", "per_step({})")
                ).format(text)
        return place, changed_text(text, others, draw) if draw.random() < 0.9 else text

    def first(self, given: Any) -> bool:
        try:
            ast.parse(given[1].strip(), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
        return True

    def read(self, given: Any) -> None:
        place, text = given
        found = self.registries[place].parse(text)
        if place < 10:  # a rule prints as a text that gives it back
            assert self.registries[place].parse(str(found)) == found, f"{text!r} prints as {str(found)!r}"


class Words(Target):
    """Small texts: conditions, measures, seeds."""

    name, share = "conditions, measures, seeds", 32
    readers: ClassVar = {
        "analysis/conditions.py": ("condition", "_one", "_known"),
        "analysis/measures/base.py": ("Measure.parse",),
        "study/plan.py": ("parse_seeds",),
    }
    seeds = ("accuracy >= 0.6", "round > 3", "R_60", "accuracy@30", "auc", "loss", "5", "3,4,5", "10-19", "steps_to_60")
    seeds = (
        *seeds,
        "accuracy >= e",
        "accuracy >= 60",
        "0-999999",
        "3,3",
        "patience(loss, rounds=5)",
        "round > 3 or x < 1",
    )

    def make(self, draw: random.Random) -> Any:
        text = draw.choice(self.seeds)
        return draw.randrange(3), changed_text(text, self.seeds, draw) if draw.random() < 0.9 else text

    def first(self, given: Any) -> bool:
        return given[1].isascii() and len(given[1]) < 40

    def read(self, given: Any) -> None:
        from fedalpha.analysis.conditions import condition
        from fedalpha.analysis.measures import Measure
        from fedalpha.study.plan import parse_seeds

        (condition, Measure.parse, parse_seeds)[given[0]](given[1])


class _Toml(Target):
    seeds: Sequence[str]

    def make(self, draw: random.Random) -> Any:
        text = draw.choice(self.seeds)
        if draw.random() < 0.5:  # past the syntax
            import tomli_w

            try:
                return tomli_w.dumps(_without_none(changed_tree(tomllib.loads(text), draw)))
            except (TypeError, ValueError, AttributeError):
                pass
        return changed_text(text, self.seeds, draw)

    def first(self, given: Any) -> bool:
        try:
            tomllib.loads(given)
        except (ValueError, RecursionError):
            return False
        return True

    def written(self, given: str) -> Path:
        file = self.folder / "input.toml"
        file.write_bytes(given.encode(errors="surrogatepass"))
        return file


class SettingsFiles(_Toml):
    """TOML files of settings."""

    name, share = "settings (TOML)", 12
    readers: ClassVar = {
        "runs/settings.py": (
            *("read_settings", "read_text", "settings", "_plugin", "_engine", "_address", "Settings._coherent"),
            *("Settings.resolved", "Settings._check_texts", "Settings.selection", "Settings.client_update"),
        ),
        "trust.py": ("need",),
        "plugins.py": ("load_plugin", "_content"),
    }
    seeds = (
        'dataset = "digits"\nclients = 20\nlr = 0.1\nepochs = 2\nstrategy = "FedSoftWorse(T=0.2)"\nseed = 1\n',
        'partition = "dirichlet(a=0.3)"\nmodel = "mlp"\nfault = "drop(p=0.1)"\nquorum = 0.5\nengine = "embedded"\n',
        'update = "sgd(steps=5)"\nselect = "uniform(count=5)"\nreevaluate = 2\ncombine = "median"\n',
        'plugin = "evil.py"\nengine = "ray"\nray_address = "evil:6379"\nratio = 0.5\n',
        'select = "uniform"\nratio = 0.5\nepochs = 1\nsteps = 2\n',
        'select = "uniform"\nratio = 0.5\nsteps = 2\n',
        'select = "uniform(count=5)"\nratio = 0.5\n',
        'select = "power_of_choice(d=5, m=2)"\nratio = 0.5\n',
        'update = "sgd(steps=5)"\nepochs = 2\n',
        'update = "lbfgs"\nmomentum = 0.5\n',
        'plugin = "FOLDER/harmless.py"\n',
        'plugin = "FOLDER/harmless.py@0123456789abcdef"\n',
        'plugin = "FOLDER/harmless.txt"\n',
        'validation = 0.2\nevaluate_every = 5\nsignal = "test"\npixels = "raw"\ntask = "summed"\n',
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        for ending in ("py", "txt"):
            (self.folder / f"harmless.{ending}").write_text("# nothing\n")

    def make(self, draw: random.Random) -> Any:
        made = super().make(draw).replace("FOLDER", str(self.folder))
        if draw.random() < 0.2:
            import contextlib

            with contextlib.suppress(ValueError, TypeError, RecursionError):
                made = json.dumps(changed_tree(tomllib.loads(made), draw))
        return made

    def first(self, given: Any) -> bool:
        return given[:1] in ("{", "[", '"') or super().first(given)

    def read(self, given: Any) -> None:
        from fedalpha.runs.settings import read_settings

        file = self.written(given)
        if given[:1] in ("{", "[", '"') or given in ("null", "true", "false", "0"):
            file = file.rename(file.with_suffix(".json"))
        options = {"plugin": str(self.folder / "harmless.py")} if len(given) % 50 == 0 else {}
        read_settings(file, options).resolved()


class StudyFiles(_Toml):
    """TOML files of studies."""

    name, share = "studies (TOML)", 3
    readers: ClassVar = {
        "study/plan.py": (
            *("read_study", "study", "_explained", "_once", "_why_not", "_label", "Study._plugin", "Study._seeds"),
            *(
                "Study._strategies",
                "Study._measures",
                "Study._coherent",
                "Study.variations",
                "Study.cells",
                "Study._cells",
            ),
        )
    }
    seeds = (
        'name = "x"\nstrategies = ["FedAvg", "FedWorse"]\nseeds = "0-2"\nmeasures = ["R_60", "accuracy@3"]\n'
        'stop_at = "accuracy >= 0.8"\n[settings]\nrounds = 3\n[grid]\nlr = [0.05, 0.1]\n',
        'name = "y"\nstrategies = ["FedAvg", "FedWorse"]\nseeds = [1, 2]\nprotocol = "printed"\n[[cases]]\n'
        'name = "a"\nclients = 4\n'
        '[[claims]]\ntext = "t"\nmeasure = "accuracy"\nbetter = "FedAvg"\nthan = ["FedWorse"]\n',
        'name = "v"\nstrategies = ["FedAvg", "FedAvg()", "FedWorse"]\nseeds = "0-9"\n[settings]\nrounds = 2\n[grid]\n'
        "lr = [0.1, 0.2, 0.3]\nepochs = []\n",
        'name = "u"\nstrategies = ["FedAvg"]\nseeds = 1\nmeasures = ["accuracy@9"]\n[settings]\nevaluate_every = 2\n'
        'rounds = 4\nplugin = "FOLDER/none.py"\n[protocols.printed]\nT = 0.5\n[[zoom]]\nrounds = [1]\n',
        'name = "t"\nstrategies = ["FedAvg"]\nseeds = 1\n[[zoom]]\nrounds = [1, 2, 3]\nwidth = 1\n',
        'name = "s"\nstrategies = ["FedAvg", "FedBetter"]\nseeds = 1\n[[claims]]\ntext = "t"\nmeasure = "accuracy"\n'
        'better = "FedAvg"\nthan = ["FedAvg"]\n',
        'name = "r"\nstrategies = ["FedAvg"]\nseeds = [1, 1]\n',
        'name = "z"\nstrategies = ["FedAvg"]\nseeds = 1\n[settings]\nplugin = "evil.py"\n[[zoom]]\nrounds = [0, 2]\n',
        'name = "w"\nstrategies = ["FedAvg", "FedBetter"]\nseeds = 1\nreference = "FedBetter"\n[[published]]\n'
        'strategy = "FedAvg"\nmeasure = "accuracy"\nmean = 0.5\nhalf = 0.1\n',
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from fedalpha.study import plan

        plan.MOST_CELLS = 60  # a study may have many cells, and reading them takes a while

    def read(self, given: Any) -> None:
        from fedalpha.study import read_study

        read_study(self.written(given)).unanswered()


def _without_none(tree: Any) -> Any:
    """TOML has no null."""
    if isinstance(tree, dict):
        return {k: _without_none(v) for k, v in tree.items() if v is not None}
    return [_without_none(v) for v in tree if v is not None] if isinstance(tree, list) else tree


class Checkpoints(Target):
    """Generations with valid checksums and changed contents, or with changed bytes."""

    name, share = "checkpoints", 3
    readers: ClassVar = {
        "store/generations.py": (
            *("Generations.load", "Generations._read", "_unpacked", "_records", "_checked", "_verified"),
        ),
        "store/tree.py": ("unpack", "unpack.decode", "_tensor"),
        "runs/folder.py": ("Folder._accepted", "_models", "_alike", "restored"),
    }

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        import fedalpha
        from fedalpha.round import Algorithm
        from fedalpha.runs.experiment import Experiment
        from fedalpha.runs.folder import Folder, state_tree
        from fedalpha.store import DamagedError, FormatError
        from fedalpha.store.tree import pack
        from fedalpha.strategies import STRATEGIES

        type(self).errors = (ValueError, DamagedError, FormatError)
        digits = fedalpha.federation("digits", partition="iid", clients=3)
        algorithm = Algorithm(weigh=STRATEGIES.parse("switch(FedSoftWorse(optima=estimated), FedAvg, at=3)"))
        experiment = Experiment(digits, algorithm, "softmax", 3, 0)
        self.start = experiment.start()
        self.run = Folder(self.folder, {"clients": 3, "rounds": 3})
        kept = {0: {"x": [np.float64(1), float("inf"), (1, None), np.int64(3), "y"], "array": np.zeros(2)}}
        text, self.arrays = pack(state_tree(dataclasses.replace(self.start, round=2, accuracy=0.5, clients=kept)))
        self.tree = json.loads(text)
        self.rows = [{"round": r, "accuracy": 0.5, "alpha": [0.5, 0.5], "cohort": [0, 2]} for r in range(3)]

    def make(self, draw: random.Random) -> Any:
        tree, rows, manifest = self.tree, self.rows, {}
        kind = draw.randrange(5)
        if kind <= 1:
            tree = changed_tree(tree, draw)
        elif kind == 2 and draw.random() < 0.1:
            rows = draw.choice((rows * 3, [*rows[:2], {"round": 2, "x": "x" * 2**21}]))
        elif kind == 2:
            rows = changed_tree(rows, draw)
        elif kind == 3:
            manifest = {draw.choice(("format", "number", "files", "round", "x")): draw.choice((0, None, [], "2", {}))}
        raw = (draw.choice(("data", "rows", "manifest")), draw.getrandbits(32)) if kind == 4 else None
        return tree, rows, manifest, raw

    def first(self, given: Any) -> bool:
        return given[3] is None

    def read(self, given: Any) -> None:
        from safetensors.numpy import save

        from fedalpha.store.generations import FORMAT, _facts, _packed, _signed

        tree, rows, change, raw = given
        text = json.dumps(tree).encode()
        content = {
            "data": save({**self.arrays, "tree": np.frombuffer(text, dtype=np.uint8)}),
            "rows": b"".join(map(_packed, rows if isinstance(rows, list) else [rows])),
        }
        files = {"000002.safetensors": _facts(content["data"]), "even.rows": _facts(content["rows"])}
        manifest = {"format": FORMAT, "number": 2, "round": 2, "files": files}
        content["manifest"] = _signed({**manifest, **change})
        if raw is not None:
            content[raw[0]] = changed_bytes(content[raw[0]], random.Random(raw[1]))
        place = self.folder / "checkpoint"
        place.mkdir(exist_ok=True)
        for name, part in zip(("000002.safetensors", "even.rows", "000002.json"), content.values(), strict=True):
            (place / name).write_bytes(part)
        self.run.resume(self.start)


class Cells(Target):
    """Parquet files of cells."""

    name, share = "cells (Parquet)", 3
    readers: ClassVar = {
        "study/tables.py": ("read", "_without_dictionaries", "split", "result_of", "_about", "_kind", "check_format"),
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

        if draw.random() < 0.4:
            return changed_bytes(draw.choice(self.files), draw)
        columns = dict(self._columns(draw.choice((1, 4))))
        for _ in range(draw.choice((1, 1, 2))):
            name = draw.choice(list(columns))
            if draw.random() < 0.2 and len(columns) > 2:
                del columns[name]
            elif name == "about" and draw.random() < 0.7:
                columns[name] = [json.dumps(changed_tree(json.loads(columns[name][0]), draw)), *columns[name][1:]]
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
        "text.py": ("cleaned", "plain", "shown"),
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
        changed = json.dumps(changed_tree(parts[name], draw)).encode()
        if draw.random() < 0.2:
            changed = changed_bytes(changed, draw)
        return {n: json.dumps(p).encode() for n, p in parts.items()} | {name: changed}

    def first(self, given: Any) -> bool:
        try:
            return bool([json.loads(part) for part in given.values()])
        except (ValueError, RecursionError):
            return False

    def read(self, given: Any) -> None:
        from fedalpha.study import status

        (self.folder / "log").mkdir(exist_ok=True)
        for name, content in given.items():
            (self.folder / name).write_bytes(content)
        status(self.folder)


class Histories(Target):
    """``history.jsonl`` of a run folder."""

    name, share = "histories (JSON lines)", 12
    readers: ClassVar = {"analysis/history.py": ("read", "_row", "_lines")}
    rows = tuple({"round": r, "accuracy": 0.5, "loss": 1.5, "alpha": [0.5, 0.5]} for r in range(3))

    def make(self, draw: random.Random) -> Any:
        rows = changed_tree(self.rows, draw) if draw.random() < 0.6 else list(self.rows)
        lines = "\n".join(json.dumps(row) for row in (rows if isinstance(rows, list) else [rows])).encode()
        return changed_bytes(lines, draw) if draw.random() < 0.5 else lines

    def first(self, given: Any) -> bool:
        try:
            return bool([json.loads(line) for line in given.splitlines()])
        except (ValueError, RecursionError):
            return False

    def read(self, given: Any) -> None:
        from fedalpha.analysis.history import read

        (self.folder / "history.jsonl").write_bytes(given)
        found = read(self.folder)
        _ = [row["round"] for row in found.rows]


class IdxFiles(Target):
    """Pictures and labels in MNIST's format."""

    name, share = "idx files", 20
    readers: ClassVar = {"data/idx.py": ("parse_idx",)}
    seeds = (
        bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 3, *range(12)]),
        bytes([0, 0, 8, 1, 0, 0, 0, 5, 1, 2, 3, 4, 5]),
    )

    def make(self, draw: random.Random) -> Any:
        return changed_bytes(draw.choice(self.seeds), draw)

    def first(self, given: Any) -> bool:
        return given[:3] == b"\0\0\x08"

    def read(self, given: Any) -> None:
        from fedalpha.data.idx import parse_idx

        found = parse_idx(given)
        assert found.nbytes <= len(given)


class Replies(Target):
    """Replies of Flower clients: metrics and arrays."""

    name, share = "Flower replies", 12
    readers: ClassVar = {
        "flower/replies.py": (
            *("content_of", "metrics_of", "number", "client_id", "finite", "arrays_of", "_check_announced", "_opened"),
            *("_names", "_brief"),
        )
    }

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from flwr.app import Array
        from flwr.supercore.task_identity import TaskIdentity

        from fedalpha.flower.replies import Rejected

        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1  # what Flower sets in a server app
        type(self).errors = (Rejected,)
        self.sent = {"w": np.zeros((2, 3), np.float32), "b": np.zeros(3, np.float64)}
        self.arrays = {name: Array(value) for name, value in self.sent.items()}

    def make(self, draw: random.Random) -> Any:
        metrics = {"loss": 0.5, "num-examples": 10, "id": 3}
        if draw.random() < 0.05:
            del metrics[draw.choice(("loss", "num-examples", "id"))]
        for _ in range(draw.randrange(3)):
            extremes = (float("nan"), -1, 2**63 - 1, 1e308, 0.5, 2**53 + 1, [1, 2], [0.5] * 99)
            metrics[draw.choice(("loss", "num-examples", "id", "x\x1b"))] = draw.choice(extremes)  # type: ignore[assignment]
        arrays = {name: (a.dtype, list(a.shape), a.stype, a.data) for name, a in self.arrays.items()}
        for _ in range(draw.randrange(3)):
            name = draw.choice(("w", "b"))
            dtype, shape, stype, data = arrays.pop(
                name, arrays.get("w", next(iter(arrays.values()), ("", [], "", b"")))
            )
            match draw.randrange(6):
                case 0:
                    dtype = draw.choice(("float64", "object", "<U8", "int8", "\x1b", "f" * 9_000))
                case 1:
                    shape = draw.choice(([], [2, 3, 1], [-1], [10**9, 10**9], [6], [3]))
                case 2:
                    stype = draw.choice(("torch.Tensor", "", "\x1b"))
                case 3 | 4:
                    data = changed_bytes(data, draw)
                case 5:
                    name = draw.choice(("w", "b", "x", "y" * 9_000))
            arrays[name] = (dtype, shape, stype, data)
        return metrics, arrays, draw.randrange(20)

    def first(self, given: Any) -> bool:
        return set(given[1]) == set(self.sent)

    def read(self, given: Any) -> None:
        from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict

        from fedalpha.flower.replies import arrays_of, client_id, finite, metrics_of, number

        metrics, arrays, kind = given
        asked = Message(RecordDict({}), dst_node_id=1, message_type="train")
        asked.metadata.__dict__["_message_id"] = "m"
        if kind == 0:
            reply = Message(Error(1, "x\x1b" * 9_000), reply_to=asked)
        elif kind == 3:
            reply = None
        else:
            records: dict[str, Any] = {"metrics": MetricRecord(metrics)} if kind != 1 else {}
            if kind != 2:
                made = {n: Array(dtype=d, shape=tuple(s), stype=t, data=b) for n, (d, s, t, b) in arrays.items()}
                records["arrays"] = ArrayRecord(made)
            reply = Message(RecordDict(records), reply_to=asked)
        reply_metrics = metrics_of(reply)
        finite(reply_metrics, "loss")
        number(reply_metrics, "num-examples", whole=True)
        client_id(reply_metrics, "id")
        found = arrays_of(reply, self.sent)
        assert all(np.isfinite(value).all() for value in found.values())


TARGETS: tuple[type[Target], ...] = (
    *(Texts, Words, SettingsFiles, StudyFiles, Checkpoints, Cells, Plans, Histories, IdxFiles, Replies),
)

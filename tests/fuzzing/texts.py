"""Texts and TOML: rules, conditions, measures, seeds, settings, studies."""

from __future__ import annotations

import ast
import json
import random
import tomllib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from fuzzing.base import Target
from fuzzing.mutations import changed_text, changed_tree


class Texts(Target):
    """Objects as text, of every registry."""

    name, share = "texts of rules", 100
    readers: ClassVar = {
        "text/registry.py": ("Registry.parse", "Registry._call", "Registry._argument"),
        "text/spelled.py": ("call", "value_text"),
        "text/shown.py": ("nearest",),
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
        from fedalpha.secure.forms import SECURES
        from fedalpha.select import SELECTIONS
        from fedalpha.strategies import STRATEGIES
        from fedalpha.update import UPDATES
        from fedalpha.upload import UPLOADS

        plugs = (STRATEGIES, STRATEGIES, SELECTIONS, UPDATES, COMBINES, APPLIES)
        return [*plugs, FAULTS, SECURES, PARTITIONS, DATASETS, MODELS, ENGINES, LOGGERS, UPLOADS]

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
            "cap(FedAvg, 1+2)",
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
        if draw.random() < 0.0002:
            return place, text + " " * 100_000
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
        "study/seeds.py": ("parse_seeds",),
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
        if draw.random() < 0.001:  # what is no text, as TOML may hold
            from fedalpha.analysis.conditions import condition

            return 0, draw.choice(
                (None, 5, 0.5, True, ["auc"], {"x": 1}, condition("accuracy > 0.5"), text + " " * 100_000)
            )
        return draw.randrange(3), changed_text(text, self.seeds, draw) if draw.random() < 0.9 else text

    def first(self, given: Any) -> bool:
        return isinstance(given[1], str) and given[1].isascii() and len(given[1]) < 40

    def read(self, given: Any) -> None:
        from fedalpha.analysis.conditions import condition
        from fedalpha.analysis.measures import Measure
        from fedalpha.study.seeds import parse_seeds

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
        "runs/reading.py": ("read_settings", "read_text"),
        "runs/shorthands.py": ("completed", "check_once", "layered"),
        "runs/settings.py": (
            *("settings", "_plugin", "_engine", "_address", "Settings._coherent"),
            *("Settings.resolved", "Settings._check_texts"),
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
        'plugin = ""\n',
        'secure = "masked(bits=64)"\ntransform = "flip"\nupload = "bfloat16"\nclock = "constant"\n',
        'update = "local(adamw, lr=0.001)"\nmomentum = 0.5\n',
        'engine = "embedded"\nray_address = "evil:6379"\ndevice = "cuda"\n',
        'engine = "multiprocess"\ndevice = "cuda"\n',
        'plugin = "FOLDER/harmless.py"\n',
        'plugin = "FOLDER/harmless.py@0123456789abcdef"\n',
        'plugin = "FOLDER/harmless.txt"\n',
        'validation = 0.2\nevaluate_every = 5\nsignal = "test"\npixels = "raw"\ntask = "summed"\n',
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        for ending in ("py", "txt"):
            (self.folder / f"harmless.{ending}").write_text("# nothing\n")
        with (self.folder / "large.py").open("wb") as file:
            file.truncate(2**24 + 1)

    def make(self, draw: random.Random) -> Any:
        if draw.random() < 0.005:  # no file, a folder, a file that is too large, a plugin that is, one that changes
            return draw.choice(("", ".", "# too large", f'plugin = "{self.folder}/large.py"\n', "changing", "changed"))
        made = super().make(draw).replace("FOLDER", str(self.folder))
        if draw.random() < 0.2:
            import contextlib

            with contextlib.suppress(ValueError, TypeError, RecursionError):
                made = json.dumps(changed_tree(tomllib.loads(made), draw))
        return made

    def first(self, given: Any) -> bool:
        return given[:1] in ("{", "[", '"') or super().first(given)

    def read(self, given: Any) -> None:
        from fedalpha.runs.reading import read_settings

        if given in ("", "."):
            read_settings(self.folder if given else None, {"lr": 0.1}).resolved()
            return
        file = self.written(given + " " * 2**24 if given == "# too large" else given)
        if given in ("changing", "changed"):
            file.write_text("")
            (self.folder / "changing.py").write_text(f"# {given}\n")
            read_settings(file, {"plugin": str(self.folder / "changing.py")}).resolved()
            return
        if given[:1] in ("{", "[", '"') or given in ("null", "true", "false", "0"):
            file = file.rename(file.with_suffix(".json"))
        options = {"plugin": str(self.folder / "harmless.py")} if len(given) % 50 == 0 else {}
        read_settings(file, options).resolved()


class StudyFiles(_Toml):
    """TOML files of studies."""

    name, share = "studies (TOML)", 3
    readers: ClassVar = {
        "study/plan.py": (
            *("study", "_once", "_label", "_check_settings", "Study._plugin", "Study._seeds", "Study._check_names"),
            *(
                "Study._strategies",
                "Study._measures",
                "Study._coherent",
                "Study.variations",
                "Study.cells",
                "Study.layout",
            ),
        ),
        "study/reading.py": ("read_study",),
        "study/mistakes.py": ("explained",),
        "study/expected.py": ("why_not",),
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
        'name = "s"\nstrategies = ["FedAvg", "FedWorse(k=whole(1, 3))"]\nseeds = 2\nreference = "FedAvg"\n[tune]\n'
        'budget = 64\nsampler = "random"\n[tune.space]\nlr = "log(0.01, 1)"\n[[methods]]\nname = "m"\n'
        'apply = "fedadam(lr=log(0.001, 0.1))"\n[settings]\nrounds = 1\n',
        'name = "r"\nstrategies = ["FedAvg", "FedWorse"]\nseeds = "0-9"\nreference = "FedWorse"\n'
        'measures = ["f1", "accuracy", "R_90", "accuracy@4"]\nstop_at = "accuracy >= 0.6"\n[settings]\nrounds = 4\n'
        'stop_at = "round > 2"\nevaluate_every = 3\n[grid]\nlr = [0.1, 0.2]\n[[cases]]\nname = "a"\n'
        '[[cases]]\nname = "b"\n',
        'name = "t"\nstrategies = ["FedAvg"]\nseeds = 1\n[[zoom]]\nrounds = [1, 2, 3]\nwidth = 1\n',
        'name = "s"\nstrategies = ["FedAvg", "FedBetter"]\nseeds = 1\n[[claims]]\ntext = "t"\nmeasure = "accuracy"\n'
        'better = "FedAvg"\nthan = ["FedAvg"]\n',
        'name = "r"\nstrategies = ["FedAvg"]\nseeds = [1, 1]\n',
        'name = "z"\nstrategies = ["FedAvg"]\nseeds = 1\n[settings]\nplugin = "evil.py"\n[[zoom]]\nrounds = [0, 2]\n',
        'name = "w"\nstrategies = ["FedAvg", "FedBetter"]\nseeds = 1\nreference = "FedBetter"\n[[published]]\n'
        'strategy = "FedAvg"\nmeasure = "accuracy"\nmean = 0.5\nhalf = 0.1\n',
        'name = "o"\nstrategies = ["FedAvg"]\nseeds = 1\nmeasures = ["T_60", "accuracy@9", "accuracy@4", "R_60"]\n'
        'stop_at = "round > 2"\n[settings]\nrounds = 7\nevaluate_every = 3\n',
        'name = "n"\nstrategies = ["FedAvg"]\nseeds = 1\nmeasures = ["T_60", "time", "f1", "auc", "loss"]\n'
        'stop_at = "patience(loss)"\n[settings]\nrounds = 3\nclock = "constant"\n',
        'name = "m"\nstrategies = ["FedAvg"]\nseeds = 1\nmeasures = ["time", "f1", "R_60"]\n'
        'stop_at = "patience(loss) or accuracy >= 0.9"\n[settings]\nrounds = 3\n',
        'name = "l"\nstrategies = ["FedAvg"]\nseeds = 1\n[settings]\nkeep = "best"\n',
        'name = "k"\nstrategies = ["FedAvg"]\nseeds = 1\n[settings]\nroundz = 3\nseed = 3\n',
        'name = "j"\nstrategies = ["FedAvg"]\nseeds = 1\n[[published]]\nstrategy = "FedAvg"\n'
        'measure = "accuracy"\nmean = 0.5\ncase = "a"\n[[cases]]\nname = "b"\n',
        'name = "i"\nstrategies = ["FedAvg", "FedWorse(k=whole(1, 3))"]\nseeds = 1\n',
        'name = "h"\nstrategies = ["FedAvg"]\nseeds = 1\n[protocols.printed]\nlr = 0.1\n[protocols.other]\nT = 1\n',
        'name = "g"\nstrategies = []\nseeds = 1\n',
        'name = "f"\nstrategies = ["FedAvg"]\nseeds = 1\n[settings]\nplugin = "FOLDER/harmless.py"\n',
        'name = "e"\nstrategies = ["FedAvg"]\nseeds = 1\nreference = "FedWorse"\n',
        'name = "d"\nstrategies = ["FedAvg"]\nseeds = 1\n[[zoom]]\nrounds = [1, 2]\naccuracy = [0, 0.5, 1]\n',
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from fedalpha.study import plan

        plan.MOST_CELLS = 60  # a study may have many cells, and reading them takes a while
        (self.folder / "harmless.py").write_text("# nothing in a study either\n")

    def make(self, draw: random.Random) -> Any:
        return super().make(draw).replace("FOLDER", str(self.folder))

    def read(self, given: Any) -> None:
        from fedalpha.study import read_study

        read_study(self.written(given)).unanswered()


def _without_none(tree: Any) -> Any:
    """TOML has no null."""
    if isinstance(tree, dict):
        return {k: _without_none(v) for k, v in tree.items() if v is not None}
    return [_without_none(v) for v in tree if v is not None] if isinstance(tree, list) else tree

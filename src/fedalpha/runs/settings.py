"""The settings of a run: one model for the command line, TOML files and ``config.json``.

Every field is an option of ``fedalpha run``; texts are checked when the settings are read, so a
mistake is reported before anything is trained.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedalpha import trust
from fedalpha.plugins import load_plugin
from fedalpha.runs.shorthands import SHORTHANDS, completed
from fedalpha.strategies import STRATEGIES
from fedalpha.text import nearest, quoted, shown
from fedalpha.trust import UntrustedError

if TYPE_CHECKING:
    from fedalpha.analysis.history import History, Row
    from fedalpha.analysis.watch import Watch
    from fedalpha.engine import Place
    from fedalpha.round import ServerState
    from fedalpha.runs.callbacks import Callback
    from fedalpha.runs.experiment import Experiment

VALIDATION_SHARE = 0.1


def _plugin(file: str | None) -> str | None:
    return None if file is None else load_plugin(file)


def _strategy(text: str) -> str:
    return str(STRATEGIES.parse(text))


def _engine(text: str) -> str:
    from fedalpha.engine import ENGINES

    place = ENGINES.parse(text)
    _address(getattr(place, "address", None))
    return str(place)


def _server(text: str | None) -> str | None:
    from fedalpha.clock import SERVERS

    return None if text is None else str(SERVERS.parse(text))


def _clock(text: str | None) -> str | None:
    from fedalpha.clock import CLOCKS

    return None if text is None else str(CLOCKS.parse(text))


def _availability(text: str | None) -> str | None:
    from fedalpha.clock import AVAILABILITIES

    return None if text is None else str(AVAILABILITIES.parse(text))


def _address(address: str | None) -> str | None:
    """Whoever runs a cluster can run code in a process that joins it."""
    if address is not None:
        join = f"join the Ray cluster at {shown(address)}, whose owner could then run code here"
        trust.need("ray", address, join, f"name the cluster yourself: --ray-address {shown(address)}")
    return address


def _loggers(texts: list[str] | None) -> list[str] | None:
    """A logger writes where its text says, and may serve or send: a file may not decide that alone."""
    for text in texts or []:
        consequence = f"log with {shown(text)}, which writes files or sends data where that text says"
        trust.need("log", text, consequence, f"name the logger yourself: --log {shown(text)}")
    return texts


class Settings(BaseModel):
    """All that is needed to repeat a run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    plugin: Annotated[str | None, AfterValidator(_plugin)] = Field(
        None, description="Python file that registers your own strategies, data sets and so on"
    )
    dataset: str = Field(
        "digits", description="Data set, as in `fedalpha data list`, such as digits or synthetic(a=1, b=1)"
    )
    partition: str = Field(
        "shards(size=30)", description="Rule that splits the samples among clients, such as iid or dirichlet(a=0.5)"
    )
    clients: int = Field(20, ge=1, description="Number of clients")
    part: str | None = Field(
        None, description="Use a part of the clients and samples: tuning(share=0.5), or the rest: reported(share=0.5)"
    )
    model: str | None = Field(None, description="Model, such as cnn, mlp or softmax [default: the data set's]")
    strategy: Annotated[str, AfterValidator(_strategy)] = Field(
        "FedAvg", description="Rule that weighs the clients, such as FedSoftWorse(T=0.2)"
    )
    rounds: int = Field(30, ge=0, description="Number of rounds")
    seed: int = Field(0, ge=0, description="Seed of every random draw")
    select: str = Field("uniform", description="Rule that selects the clients of a round, such as uniform(C=0.1)")
    ratio: float | None = Field(None, gt=0, le=1, description="Share C of the clients that take part in a round")
    update: str = Field("sgd", description="Client update, such as sgd or fedprox(mu=0.01)")
    lr: float | str | None = Field(None, description="Learning rate or schedule, such as exponential(0.1, rate=0.99)")
    batch: int | None = Field(None, ge=1, description="Batch size")
    epochs: int | None = Field(None, ge=1, description="Local epochs E")
    steps: int | None = Field(None, ge=1, description="Local steps, instead of epochs")
    momentum: float | None = Field(None, ge=0, lt=1, description="Momentum of local SGD")
    weight_decay: float | None = Field(None, ge=0, description="Weight decay of local SGD")
    combine: str = Field("mean", description="Rule that combines the reported models, such as median or krum(f=1)")
    apply: str = Field(
        "replace", description="Rule that makes the next model from the aggregate, such as fedadam(lr=0.01)"
    )
    quorum: float = Field(
        1.0,
        gt=0,
        description="Smallest number (3) or share (0.5) of a round's clients that must deliver; else the model is kept",
    )
    deadline: float | None = Field(None, gt=0, description="Seconds after which a report is refused")
    reevaluate: int = Field(
        0,
        ge=0,
        description="Number of clients with the largest weights whose losses the server measures on its own data",
    )
    liars: int = Field(
        1, ge=0, description="Number of lying clients whose largest possible influence the history records"
    )
    fault: str | None = Field(
        None, description="Fault or attack to simulate, such as drop(p=0.1) or sign_flip(clients=2)"
    )
    secure: str | None = Field(
        None, description="Let the server learn sums only: masked, or masked(clip=1.0, neighbours=log)"
    )
    upload: str | None = Field(
        None, description="How clients write their updates, such as quantised(bits=4) [default: whole models]"
    )
    server: Annotated[str | None, AfterValidator(_server)] = Field(
        "synchronous",
        description="Whether the server waits for its cohort: synchronous, or buffered(K=10, concurrency=30)",
    )
    clock: Annotated[str | None, AfterValidator(_clock)] = Field(
        None,
        description="How many simulated seconds clients take, such as lognormal(sigma=1) [default: no simulated time]",
    )
    availability: Annotated[str | None, AfterValidator(_availability)] = Field(
        "always", description="When clients can be reached, such as diurnal(share=0.3)"
    )
    pixels: str = Field("unit", description="Values of pixels: unit (0–1), raw, or standard (mean 0, deviation 1)")
    transform: str | None = Field(
        None, description="Random change of the samples that clients train on, such as chain(crop(padding=4), flip)"
    )
    task: str = Field("cross_entropy", description="What clients minimise: cross_entropy, mse, summed or batch_softmax")
    scores: str | None = Field(
        None, description="Test scores besides accuracy: balanced_accuracy, f1, roc_auc; mse, r2 with task mse"
    )
    signal: str = Field(
        "validation", description="Data on which strategies, stop and keep see the accuracy: validation or test"
    )
    validation: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="Share of the training data kept for validation [default: 0.1 if a strategy, stop or keep uses it]",
    )
    evaluate_every: int = Field(1, ge=1, description="Evaluate on the test set after every N rounds")
    stop: str | None = Field(
        None,
        description="When the run ends early, such as 'accuracy >= 0.9' or 'patience(loss, rounds=5)'",
    )
    keep: str | None = Field(None, description="Also keep the best model: best, or best(loss) [default: only the last]")
    shadow: list[str] | None = Field(
        None, description="A strategy whose weights are recorded in every row but not applied (repeatable)"
    )
    log: Annotated[list[str] | None, AfterValidator(_loggers)] = Field(
        None, exclude=True, description="Loggers that watch the run; not part of its configuration"
    )
    device: str = Field("cpu", description="Torch device")
    engine: Annotated[str, AfterValidator(_engine)] = Field(
        "embedded",
        description="Where clients are computed: embedded, ray or flower; the result does not depend on it",
    )
    ray_address: Annotated[str | None, AfterValidator(_address)] = Field(
        None, description="Address of a Ray cluster (host:6379, or auto), with --engine ray [default: a local one]"
    )

    @model_validator(mode="after")
    def _coherent(self) -> Settings:
        if self.epochs is not None and self.steps is not None:
            raise ValueError("epochs and steps exclude each other; give one of them")
        return self

    def resolved(self) -> Settings:
        """The same settings with every default made explicit, as ``config.json`` keeps them."""
        from fedalpha.clock import Pace
        from fedalpha.data import DATASETS
        from fedalpha.select import SELECTIONS
        from fedalpha.update import UPDATES

        self._check_texts()
        update = completed("update", UPDATES.parse(self.update), vars(self))
        select = completed("select", SELECTIONS.parse(self.select), vars(self))
        pace = Pace.of(self.server, self.clock, self.availability).settings
        return self.model_copy(
            update={
                "model": self.model or DATASETS.parse(self.dataset).model,
                "validation": self.validation_for([self.strategy]),
                "select": str(select),
                "update": str(update),
                **{name: pace.get(name) for name in ("server", "clock", "availability")},
                **dict.fromkeys(("stop", "keep", "shadow")),
                **self._watch().settings,
                **dict.fromkeys([*SHORTHANDS["select"], *SHORTHANDS["update"]]),
            }
        )

    def stored(self) -> dict[str, Any]:
        """What ``config.json`` holds; a plugin by its absolute path, so that a run is resumed from any directory."""
        values = self.model_dump(exclude_none=True)
        if self.plugin is not None:
            name, _, digest = self.plugin.rpartition("@")
            values["plugin"] = f"{Path(name).resolve()}@{digest}"
        return values

    def validation_for(self, strategies: Iterable[str]) -> float:
        """The share set aside for validation: the same for all strategies, so that they train on the same data."""
        if self.validation is not None:
            return self.validation
        from fedalpha.combine import COMBINES

        looks = any("accuracy" in STRATEGIES.parse(text).requires for text in strategies) or bool(self._watch().looks)
        learns = "server" in COMBINES.parse(self.combine).wants
        return VALIDATION_SHARE if (looks and self.signal == "validation") or self.reevaluate or learns else 0.0

    def _watch(self) -> Watch:
        from fedalpha.analysis.watch import Watch

        return Watch(self.signal, self.stop, self.keep or "last", self.shadow or ())

    def _check_texts(self) -> None:
        from fedalpha.apply import APPLIES
        from fedalpha.combine import COMBINES
        from fedalpha.data import DATASETS, PARTITIONS
        from fedalpha.data.parts import PARTS
        from fedalpha.data.transforms import TRANSFORMS
        from fedalpha.defence.faults import FAULTS
        from fedalpha.models import MODELS
        from fedalpha.task import task
        from fedalpha.upload import UPLOADS

        for registry, text in (
            (DATASETS, self.dataset),
            (PARTITIONS, self.partition),
            (PARTS, self.part),
            (MODELS, self.model),
            (COMBINES, self.combine),
            (APPLIES, self.apply),
            (FAULTS, self.fault),
            (TRANSFORMS, self.transform),
            (UPLOADS, self.upload),
        ):
            if text is not None:
                registry.parse(text)
        if self.secure is not None:
            from fedalpha.secure.forms import SECURES

            SECURES.parse(self.secure)
        task(self.task, self.scores)

    def place(self, workers: int | None = None) -> Place:
        """The engine, with the device and the address that were given."""
        from fedalpha.engine import ENGINES

        place = ENGINES.parse(self.engine)
        if self.ray_address is not None and not hasattr(place, "address"):
            raise ValueError(f"ray_address = {self.ray_address!r} needs engine = ray, not {str(place)!r}")
        place = completed("engine", place, {**vars(self), "device": None if self.device == "cpu" else self.device})
        return place if workers is None else dataclasses.replace(place, workers=workers)

    def experiment(self) -> Experiment:
        """The run that these settings describe; they must be `resolved`."""
        from fedalpha.data import federation
        from fedalpha.runs.evaluate import Evaluate
        from fedalpha.runs.experiment import plan
        from fedalpha.task import task

        data = federation(
            self.dataset,
            partition=self.partition,
            clients=self.clients,
            seed=self.seed,
            validation=self.validation or 0.0,
            pixels=None if self.pixels == "unit" else self.pixels,
            transform=self.transform,
            task=task(self.task, self.scores),
            part=self.part,
        )
        watched = self.stop, self.keep or "last", self.shadow or ()
        return plan(
            data,
            self.model or "mlp",
            self.strategy,
            rounds=self.rounds,
            seed=self.seed,
            select=self.select,
            update=self.update,
            combine=self.combine,
            apply=self.apply,
            quorum=self.quorum,
            deadline=self.deadline,
            fault=self.fault,
            secure=self.secure,
            upload=self.upload,
            server=self.server,
            clock=self.clock,
            availability=self.availability,
            evaluate=Evaluate(self.evaluate_every, self.signal, self.liars, *watched, self.reevaluate),
        )

    def run(
        self,
        *,
        out: str | Path | None = None,
        workers: int | None = None,
        checkpoint_every: int = 1,
        callbacks: Sequence[str | Callback] = (),
        begin: tuple[ServerState, Sequence[Row]] | None = None,
    ) -> History:
        """Build the federation and run; ``begin`` is a saved state of this run to continue from, with its rows."""
        from fedalpha.runs.folder import Folder
        from fedalpha.runs.saved_state import check_state

        full = self.resolved()
        folder = None if out is None else Folder(out, full.stored(), checkpoint_every)
        experiment = full.experiment()
        if begin is not None:  # it was read from a file
            check_state(begin[0], experiment.start(), begin[1], experiment.federation.clients)
        return experiment.run(full.place(workers), callbacks, folder, begin)


def settings(values: Mapping[str, Any]) -> Settings:
    """Checked settings; an unknown key or a bad value is named, with the nearest valid ones."""
    for key in values:
        if key not in Settings.model_fields:
            study = "; this is a study: fedalpha study FILE runs it" if {"strategies", "methods"} & set(values) else ""
            raise ValueError(f"unknown setting {quoted(key)}{study or '; ' + nearest(str(key), Settings.model_fields)}")
    try:
        return Settings(**values)
    except ValidationError as error:
        problem = error.errors()[0]
        if isinstance(cause := problem.get("ctx", {}).get("error"), UntrustedError):
            raise cause from None
        where = ".".join(str(part) for part in problem["loc"])
        reason = problem["msg"].removeprefix("Value error, ").replace("Input should be", "it should be")
        raise ValueError(f"{where} = {quoted(problem['input'])}: {reason}" if where else reason) from None

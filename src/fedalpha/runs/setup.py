"""What a run consists of: federation, rules, model, rounds, seed. It is checked before anything is trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field

from torch import nn

from fedalpha.analysis import columns
from fedalpha.analysis.watch import Watch
from fedalpha.clock import Pace
from fedalpha.data.federations import Federation
from fedalpha.defence.faults import Fault
from fedalpha.models import Model, initial
from fedalpha.rng import integer
from fedalpha.round import Algorithm, ServerState
from fedalpha.round.pacing import begin
from fedalpha.runs.evaluate import Evaluate
from fedalpha.text import whole
from fedalpha.update import Broadcast

AnyModel = str | Model | nn.Module | Callable[[], nn.Module]


@dataclass(frozen=True)
class Setup:
    """What a run consists of, before it starts."""

    federation: Federation
    algorithm: Algorithm
    model: AnyModel
    rounds: int
    seed: int
    evaluate: Evaluate = field(default_factory=Evaluate)
    fault: Fault | None = None
    """What goes wrong on purpose."""
    pace: Pace = field(default_factory=Pace)
    """Simulated time, and which updates the server waits for."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "rounds", whole("rounds", self.rounds))
        object.__setattr__(self, "seed", whole("seed", self.seed))
        if "accuracy" in self.algorithm.weigh.requires and self.federation.task.correct is None:
            raise ValueError(
                f"{self.algorithm.weigh} looks at accuracy, but the task has none (correct=None); change at given "
                "rounds instead (at=20), or give the task a `correct`"
            )
        if self.algorithm.reevaluate and self.federation.validation is None:
            raise ValueError("reevaluate needs data of the server's own; build the federation with validation=0.1")
        if "server" in self.algorithm.combine.wants and self.federation.validation is None:
            raise ValueError(
                f"{self.algorithm.combine} learns on data of the server's own; build the federation with validation=0.1"
            )
        if self.algorithm.secure is not None and self.algorithm.secure.blind and self.watch.shadows.rules:
            raise ValueError(f"shadow rules look at losses, which {self.algorithm.secure} hides; leave shadow out")
        if (secure := self.algorithm.secure) is not None and self.federation.clients < secure.least:
            raise ValueError(
                f"secure = {secure}: a sum takes {secure.least} clients, and the federation has "
                f"{self.federation.clients}; use more clients, or a smaller least (2 or more)"
            )
        if self.algorithm.secure is not None and self.pace.timed:
            raise ValueError(
                f"secure = {self.algorithm.secure}: simulated time does not know how long the steps of a secure sum "
                "take; leave clock out"
            )
        if self.fault is not None:
            self.fault.check(self.federation.clients)
        if self.fault is not None and self.pace.timed and (reason := self.fault.against_clock):
            raise ValueError(f"{self.fault} does not work with clock = {self.pace.clock}: {reason}")
        self.pace.check(self.federation)
        self.pace.check_algorithm(self.algorithm, self.watch.shadows.requires)
        self.watch.check(self.algorithm, self.federation.task.correct is not None)
        self._check_stop()
        if self.looks_at("validation") and self.federation.validation is None:
            who = "stop or keep" if self.watch.looks else "a shadow rule"
            who = str(self.algorithm.weigh) if "accuracy" in self.algorithm.weigh.requires else who
            raise ValueError(
                f"{who} looks at accuracy or loss, but the federation has no validation part; build it with "
                "validation=0.1, or set signal=test to let it look at the test set"
            )

    def _check_stop(self) -> None:
        """Raise if ``stop`` reads a column that the rows of this run will not have: it would never hold."""
        if (stop := self.watch.condition) is None:
            return
        scores = self.federation.task.scores
        for found in columns.columns():
            if found.name not in stop.columns or not found.optional:
                continue
            if found.scored and found.name not in scores:
                asked = ", ".join([*scores, found.name])
                remedy = f"ask for it with scores = {asked!r}, in Python Task(scores={asked!r})"
            elif found.timed and not self.pace.timed:
                remedy = 'give the seconds of clients, such as clock="lognormal(sigma=1)"'
            elif found.name.startswith("secure") and self.algorithm.secure is None:
                remedy = "only runs with a secure sum (secure = masked) have it"
            else:
                continue
            raise ValueError(f"stop = {str(stop)!r}: the rows of this run have no {found.name}; {remedy}")

    @property
    def population(self) -> Federation:
        """The federation as its clients have it: with a fault, some may hold flipped labels."""
        return self.federation if self.fault is None else self.fault.poison(self.federation, self.seed)

    @property
    def watch(self) -> Watch:
        return self.evaluate.watch

    def looks_at(self, part: str) -> bool:
        """Whether anything looks at this part: the strategy, ``stop``, ``keep`` or a shadow rule."""
        rules = self.algorithm.weigh.requires | self.watch.shadows.requires
        return self.evaluate.signal == part and ("accuracy" in rules or bool(self.watch.looks))

    def start(self) -> ServerState:
        """The state before round 0: the initial model, drawn from the seed."""
        shape, classes, clients = self.federation.shape, self.federation.classes, self.federation.clients
        architecture, parameters = initial(self.model, shape, classes, integer(self.seed, "model"))
        state = self.algorithm.init(Broadcast(architecture, parameters), clients)
        return dataclasses.replace(state, watch=self.watch.init(clients), clock=begin(self.pace))

    def due(self, round: int) -> bool:
        """Whether the test set is evaluated after this round, even if it is not the last one."""
        return round % self.evaluate.every == 0 or self.looks_at("test")

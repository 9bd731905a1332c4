"""The five plug points, the state between rounds, and the outcome of a round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_args

from fedalpha.round.gate import Admission, Refusal
from fedalpha.select import Select, uniform
from fedalpha.strategies import Array, Cohort, FedAvg, Need, State, Strategy
from fedalpha.text import nearest, quoted

if TYPE_CHECKING:  # these rules may need torch, the round does not
    from fedalpha.apply import Apply
    from fedalpha.combine import Combine
    from fedalpha.secure.forms import Secure
    from fedalpha.update import Update
    from fedalpha.upload import Upload

DOMINANT = 0.5
"""A client that weighs more than all others together is named in the log and in the history."""


def _sgd() -> Update:
    from fedalpha.update import sgd

    return sgd()


def _mean() -> Combine:
    from fedalpha.combine import mean

    return mean()


def _replace() -> Apply:
    from fedalpha.apply import replace

    return replace()


@dataclass(frozen=True)
class Algorithm:
    """The five plug points, and how the server protects itself.

    ``reevaluate``: this many of the heaviest clients are weighed again, with losses that the server measures
    on its own (validation) data.
    """

    select: Select = field(default_factory=uniform)
    update: Update = field(default_factory=_sgd)
    weigh: Strategy = field(default_factory=FedAvg)
    combine: Combine = field(default_factory=_mean)
    apply: Apply = field(default_factory=_replace)
    admission: Admission = field(default_factory=Admission)
    reevaluate: int = 0
    secure: Secure | None = None
    """How the server learns sums only; None: it sees every client's model."""
    upload: Upload | None = None
    """How clients write their updates for sending; None: they send their models."""

    def __post_init__(self) -> None:
        if self.reevaluate < 0:
            raise ValueError(f"reevaluate = {self.reevaluate}; give a number of clients ≥ 0")
        if unknown := sorted(set(self.weigh.requires) - set(get_args(Need))):
            raise ValueError(
                f"{self.weigh}: `requires` names {quoted(unknown[0])}; {nearest(unknown[0], get_args(Need))}"
            )
        for rule in (self.select, self.update, self.weigh, self.combine, self.apply):
            rule.check(self)
        for around in (self.secure, self.upload):
            if around is not None:
                around.check(self)

    def init(self, broadcast: Any, clients: int | None) -> ServerState:
        """The state before round 0."""
        select, weigh = self.select.init(clients), self.weigh.init(clients)
        return ServerState(0, broadcast, select, weigh, self.combine.init(), self.apply.init())


@dataclass(frozen=True, eq=False)
class ServerState:
    """Everything that a run needs in order to continue after ``round`` rounds."""

    round: int
    broadcast: Any
    """The current model, as it is sent to clients. The round never looks inside it."""
    select: State
    weigh: State
    combine: State
    apply: State
    clients: Mapping[int, State] = field(default_factory=dict)
    accuracy: float | None = None
    """The last accuracy on the signal part (validation, or test), for rules that look at it."""
    watch: State = field(default_factory=dict)
    """What the run watches and the round does not use: shadow rules' states, the best model so far."""

    clock: State = field(default_factory=dict)
    """Simulated time, and on a server that does not wait the clients in training with the versions they were sent."""

    @property
    def model(self) -> Any:
        """The current model, as a state dict."""
        return self.broadcast.parameters


@dataclass(frozen=True)
class Short:
    """Why the model must be kept: too few clients for the quorum, or for the strategy (a cap below 1/n)."""

    reason: str


@dataclass(frozen=True, eq=False)
class Outcome:
    """The state after a round, and what happened in it.

    ``losses`` by kind, aligned with the cohort, None for clients that did not report. ``kept`` says why the
    model was kept (too few clients; alpha is 0 then). ``lost`` clients were weighed and did not deliver.
    """

    state: ServerState
    cohort: Cohort
    alpha: Array
    losses: dict[str, list[float | None]]
    steps: int
    bytes_down: int
    bytes_up: int
    refusals: Sequence[Refusal] = ()
    idle: Sequence[int] = ()
    lost: int = 0
    kept: str | None = None
    secure: Mapping[str, float] | None = None
    """What the secure sum of the round cost and how exact it is; None without one."""

    @property
    def dominant(self) -> int | None:
        """The client that weighs more than `DOMINANT`, in a cohort of three or more; None if there is none."""
        if len(self.alpha) < 3 or not self.alpha.max() > DOMINANT:
            return None
        return int(self.cohort.ids[self.alpha.argmax()])

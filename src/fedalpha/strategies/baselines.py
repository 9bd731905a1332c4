"""Rules that a user compares with: weights from losses, their course over the rounds, and local work.

- `FedNolowe`: lower training loss, more weight, without a temperature.
- `FedCostWAvg`: sizes mixed with the ratio by which each client's loss fell.
- `FedPIDAvg`: sizes, the fall of the loss, and the sum of recent losses.
- `FedNova`: undoes the bias of clients that take different numbers of local steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from fedalpha.strategies.base import (
    LOSSES,
    STRATEGIES,
    Array,
    Cohort,
    Need,
    State,
    Strategy,
    Traits,
    choice,
    normalise,
    recall,
    remember,
)
from fedalpha.strategies.fair import PRIORS


@dataclass(frozen=True, eq=False, repr=False)
class Course(Strategy):
    """What these rules share: the loss they look at (``train`` as in the references), never negative."""

    loss: Need = field(default="train", kw_only=True)

    def __post_init__(self) -> None:
        choice(self.text_name, "loss", self.loss, LOSSES)

    @property
    def requires(self) -> frozenset[Need]:
        return frozenset({self.loss})

    def losses(self, cohort: Cohort) -> Array:
        losses = cohort.require(self.loss)
        if (losses < 0).any():
            raise ValueError(f"{self.text_name} needs losses ≥ 0, as it compares their sizes; use FedSoftBetter")
        return losses


def shares(values: Array, otherwise: Array) -> Array:
    """values / Σ values, or ``otherwise`` where all are 0."""
    largest = values.max()
    return normalise(values / largest) if largest > 0 else otherwise


@STRATEGIES.register(
    formula="alpha_i = (1 − ℓ_i/Σℓ)/(K − 1); 1 for a single client",
    reference="Le et al., PLOS ONE, 2025, 10.1371/journal.pone.0322766",
    examples=("FedNolowe", "FedNolowe(loss=before)"),
)
@dataclass(frozen=True, eq=False, repr=False)
class FedNolowe(Course):
    """Two L1 normalisations: the lower a client's share of the losses, the more it weighs.

    Checked against the authors' code (dongld-2020/fednolowe): losses over their sum, 1 minus that, over its sum; all
    alike where every loss is 0; sizes play no part. Their loss is the mean over all local epochs of the round,
    ours over the last one (the same for one epoch). A single client, for which they divide 0 by 0, weighs 1.

    >>> import fedalpha
    >>> fedalpha.weights("FedNolowe", losses=[1, 3])
    array([0.75, 0.25])
    """

    text_name: ClassVar[str] = "FedNolowe"

    @property
    def traits(self) -> Traits:
        return Traits(monotone=-1)

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        losses = self.losses(cohort)
        equal = np.full(len(cohort), 1 / len(cohort))
        return (normalise(1 - shares(losses, equal)) if len(cohort) > 1 else np.ones(1)), state


@STRATEGIES.register(
    formula="alpha_i = a·p_i + (1 − a)·r_i/Σr, r_i = previous loss/loss",
    reference="Mächler et al., 2021, 2111.08649",
    examples=("FedCostWAvg(a=0.5)", "FedCostWAvg(a=0.2, loss=before)"),
)
@dataclass(frozen=True, eq=False, repr=False)
class FedCostWAvg(Course):
    """Sizes mixed with the ratio by which each client's loss has fallen since it was last seen.

    r = 1 for a client that is seen for the first time.

    >>> rule = FedCostWAvg(a=0.5)
    >>> state = rule.weights(rule.init(2), Cohort(ids=[0, 1], sizes=[1, 1], train=[1.0, 1.0]))[1]
    >>> rule.weights(state, Cohort(ids=[0, 1], sizes=[1, 1], train=[1.0, 0.25]))[0]
    array([0.35, 0.65])
    """

    a: float = field(default=0.5, metadata={"always": True})

    text_name: ClassVar[str] = "FedCostWAvg"

    def __post_init__(self) -> None:
        super().__post_init__()
        _mixture("FedCostWAvg", a=self.a)

    @property
    def traits(self) -> Traits:
        return Traits(monotone=-1)

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        losses = self.losses(cohort)
        now = np.log(np.maximum(losses, 1e-300))  # ratios of any finite losses, in logarithms
        before = recall(state, cohort.ids, math.nan)
        fall = np.where(np.isnan(before), 0.0, np.log(np.maximum(np.nan_to_num(before), 1e-300)) - now)
        ratios = normalise(np.exp(fall - fall.max()))
        alpha = self.a * cohort.prior("size") + (1 - self.a) * ratios
        return alpha, remember(state, cohort.ids, losses)


@STRATEGIES.register(
    formula="alpha_i = a·p_i + b·d_i/Σd + c·I_i/ΣI, d = previous loss − loss, I = sum of recent losses",
    reference="Mächler et al., 2023, 2304.12117",
    examples=("FedPIDAvg", "FedPIDAvg(a=0.5, b=0.3, c=0.2, memory=2, loss=before)"),
)
@dataclass(frozen=True, eq=False, repr=False)
class FedPIDAvg(Course):
    """A PID controller's view: proportional to size, to the fall of the loss, and to recent losses.

    I sums the present loss and up to ``memory`` earlier ones of the client. A loss that rose has d = 0 (the
    formula would give a negative share); where nobody's loss fell, b goes to p.

    Of the paper only the abstract could be read (sizes, the drop of the cost, an integral term). Formula, shares, the
    six losses in I and d ≥ 0 are those of the code that Manthe et al. published with their comparison on the paper's
    data (Medical Image Analysis, 2024; MatthisManthe/Benchmark_FeTS2022, with positive_difference as in
    their final runs); other public implementations have the same three terms and shares, but sum the five
    losses before the present one, and leave d signed or take its size. Settled here: b goes to p where no
    loss fell (there the weights then sum to less than 1), and missing losses are not invented (there
    they are 1). The paper's Poisson rule says who trains, and is no part of the weights.

    >>> rule = FedPIDAvg()
    >>> state = rule.weights(rule.init(2), Cohort(ids=[0, 1], sizes=[1, 1], train=[1.0, 1.0]))[1]
    >>> rule.weights(state, Cohort(ids=[0, 1], sizes=[1, 1], train=[1.0, 0.5]))[0].round(6)
    array([0.282143, 0.717857])
    """

    a: float = 0.45
    b: float = 0.45
    c: float = 0.1
    memory: int = 5

    text_name: ClassVar[str] = "FedPIDAvg"

    def __post_init__(self) -> None:
        super().__post_init__()
        _mixture("FedPIDAvg", a=self.a, b=self.b, c=self.c)
        if abs(math.fsum((self.a, self.b, self.c)) - 1) > 1e-9:
            raise ValueError(f"FedPIDAvg: a + b + c = {math.fsum((self.a, self.b, self.c))}; give shares that sum to 1")
        if isinstance(self.memory, bool) or not isinstance(self.memory, int) or self.memory < 1:
            raise ValueError(f"FedPIDAvg: memory = {self.memory!r}; give a number of earlier losses, at least 1")

    def init(self, n: int | None = None) -> State:
        return {"recent": []}

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        losses, p = self.losses(cohort), cohort.prior("size")
        earlier = [recall(memory, cohort.ids, math.nan) for memory in state["recent"]]  # the latest first
        last = earlier[0] if earlier else losses
        fall = np.where(np.isnan(last), 0.0, np.maximum(np.nan_to_num(last) - losses, 0.0))
        scale = max(1.0, float(max(losses.max(), *(np.nan_to_num(e).max() for e in earlier), 0.0)))
        recent = losses / scale
        for values in earlier:
            recent = recent + np.nan_to_num(values) / scale
        alpha = normalise(self.a * p + self.b * shares(fall, p) + self.c * shares(recent, p))
        held = [*state["recent"], {}][: self.memory]
        kept = [losses, *earlier][: self.memory]
        return alpha, {"recent": [dict(remember(m, cohort.ids, values)) for m, values in zip(held, kept, strict=True)]}


@STRATEGIES.register(
    formula="alpha_i = τ_eff·p_i/τ_i, τ_eff = Σ p_j·τ_j, τ the local steps (‖a‖₁ with momentum)",
    reference="Wang et al., 2020, 2007.07481",
    examples=("FedNova", "FedNova(momentum=0.9)", "FedNova(prior=uniform)"),
)
@dataclass(frozen=True, eq=False, repr=False)
class FedNova(Strategy):
    """Normalised averaging: clients with many local steps do not pull the model their way.

    ``momentum``: that of the local SGD; a client's steps then count as
    ‖a‖₁ = (τ − ρ(1 − ρ^τ)/(1 − ρ))/(1 − ρ). With equal steps this is FedAvg.

    >>> import fedalpha
    >>> fedalpha.weights("FedNova", losses=[0, 0], sizes=[1, 1], steps=[1, 3])
    array([1.        , 0.33333333])
    """

    momentum: float = 0.0
    prior: str = "size"

    text_name: ClassVar[str] = "FedNova"

    def __post_init__(self) -> None:
        if isinstance(self.momentum, bool) or not isinstance(self.momentum, int | float) or not 0 <= self.momentum < 1:
            raise ValueError(f"FedNova: momentum = {self.momentum!r}; give that of the local updates, in [0, 1)")
        object.__setattr__(self, "momentum", float(self.momentum))
        choice("FedNova", "prior", self.prior, PRIORS)

    @property
    def traits(self) -> Traits:
        return Traits(simplex=False, shift_invariant=True, monotone=0)

    @property
    def requires(self) -> frozenset[Need]:
        return frozenset({"steps"})

    def weights(self, state: State, cohort: Cohort) -> tuple[Array, State]:
        rho = self.momentum
        tau = np.maximum(cohort.require("steps"), 1.0)
        work = (tau - rho * (1 - rho**tau) / (1 - rho)) / (1 - rho)
        p = cohort.prior(self.prior)
        return math.fsum((p * work).tolist()) * p / work, state


def _mixture(owner: str, **values: object) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise ValueError(f"{owner}: {name} = {value!r}; give a share in [0, 1]")

"""The rules of a live federation, from the arguments of `FedAlpha`, and the checks of these arguments."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, get_args

import numpy as np
from flwr.serverapp import strategy as flower

from fedalpha.analysis.watch import Watch
from fedalpha.clock.pace import check_server, check_stale
from fedalpha.clock.servers import Server, synchronous
from fedalpha.flower.clients import Source
from fedalpha.flower.forms import Form, NumpyForm
from fedalpha.flower.plug_points import Mean, Optimiser, Remote, Replace, fraction
from fedalpha.round import Admission, Algorithm
from fedalpha.runs.evaluate import Evaluate
from fedalpha.select import SELECTIONS, Select
from fedalpha.strategies import STRATEGIES, Strategy
from fedalpha.text import nearest
from fedalpha.upload import UPLOADS

BUFFERS = ("*running_mean", "*running_var", "*num_batches_tracked")
"""Arrays that are not trained, as PyTorch names them."""
_MEANS = (flower.FedAvg, flower.FedAvgM, flower.FedAdagrad, flower.FedAdam, flower.FedYogi, flower.FedProx)


_FORMERLY = {
    "fraction_fit": "fraction_train",
    "min_fit_clients": "min_train_nodes",
    "min_evaluate_clients": "min_evaluate_nodes",
    "min_available_clients": "min_available_nodes",
}
"""Arguments of the strategies in `flwr.server.strategy`, and their present names."""
_OF_START = {
    "initial_parameters": "initial_arrays",
    "on_fit_config_fn": "train_config",
    "on_evaluate_config_fn": "evaluate_config",
    **{name: name for name in ("num_rounds", "timeout", "train_config", "evaluate_config", "evaluate_fn")},
}


@dataclass(frozen=True)
class Rules:
    """The rules of a run, the form of their models, and the Flower strategy whose settings are used."""

    algorithm: Algorithm
    form: Form
    over: flower.FedAvg
    optimiser: Optimiser | None
    fault: Any
    sends: Callable[[Any], frozenset[str]]
    """The names of the extras that the client update sends, from a broadcast."""


def wrapped(over: flower.FedAvg | None, settings: Mapping[str, Any], own: Iterable[str]) -> flower.FedAvg:
    """The Flower strategy whose sampling, keys and metrics functions are used: a copy of ``over``, or a FedAvg.

    ``own`` are the names of the arguments that are not Flower's.
    """
    if over is None:
        flowers = inspect.signature(flower.FedAvg).parameters
        if unknown := sorted(settings.keys() - flowers.keys()):
            raise TypeError(f"FedAlpha does not take {unknown[0]}; {_instead(unknown[0], [*own, *flowers])}")
        _check_shares(settings)
        return flower.FedAvg(**settings)
    if settings:
        raise ValueError(f"pass {', '.join(sorted(settings))} to {type(over).__name__}(…), not to FedAlpha")
    if not isinstance(over, flower.Strategy):
        raise TypeError(f"over = {over!r} is not a Flower strategy; give an object, such as FedAdam(eta=0.01)")
    name = type(over).__name__
    theirs = next((kind for kind in type(over).__mro__ if kind.__module__.split(".")[0] == "flwr"), None)
    if theirs not in _MEANS:
        raise ValueError(
            f"over = {name} does not build on a weighted mean; use {', '.join(kind.__name__ for kind in _MEANS)} or a "
            'strategy of your own that extends one of them, or a robust rule of fedalpha, such as combine="median"'
        )
    if type(over).start is not flower.Strategy.start:
        raise ValueError(
            f"over = {name} has a start() of its own, which FedAlpha would not call; extend FedAlpha instead, or leave "
            "start() out"
        )
    return copy.copy(over)


class Sampling:
    """The number of clients that a Flower strategy samples. Afterwards ``over`` takes all the nodes that it is shown.

    ``least`` are the numbers of clients that must be connected, to train and to evaluate; ``evaluate`` samples the
    clients that evaluate.
    """

    def __init__(self, over: flower.FedAvg) -> None:
        available = over.min_available_nodes
        self.least = {
            "train": max(available, over.min_train_nodes, 1),
            "evaluate": max(available, over.min_evaluate_nodes, 1),
        }
        self.evaluate = fraction(over.fraction_evaluate, over.min_evaluate_nodes)
        over.fraction_train = 1.0 if over.fraction_train else 0.0
        over.fraction_evaluate = 1.0 if over.fraction_evaluate else 0.0
        over.min_train_nodes = over.min_evaluate_nodes = over.min_available_nodes = 0


def rules(
    strategy: str | Strategy,
    *,
    select: str | Select | None,
    update: Any,
    combine: Any,
    apply: Any,
    over: flower.FedAvg | None,
    base: flower.FedAvg,
    model: Any,
    buffers: Sequence[str],
    fault: Any,
    admission: Admission,
    reevaluate: int,
    secure: Any = None,
    upload: Any = None,
) -> Rules:
    """Parse the plug points. Those that need torch, and only those, import it."""
    if over is not None and apply is not None:
        raise ValueError("apply= and over= are both rules for the server's step; give one of them")
    if select is not None and base.fraction_train not in (0.0, 1.0):
        raise ValueError(
            f"select = {select} and fraction_train = {base.fraction_train} both choose the clients that train; give "
            "one of them"
        )
    needing_torch = {
        name: value
        for name, value, light in (
            ("update", update, None),
            ("combine", combine, "mean"),
            ("apply", apply, "replace"),
            ("model", model, None),
            ("fault", fault, None),
        )
        if value is not None and value != light
    }
    if needing_torch:
        _check_torch(needing_torch)
        form, plugs = _in_torch(update, combine, apply, model, buffers)
    else:
        form, plugs = NumpyForm(), {"update": Remote(), "combine": Mean(), "apply": Replace()}
    if "server" in plugs["combine"].wants:
        raise ValueError(f"combine = {combine} learns on the server's data, which FedAlpha does not support")
    if secure is None and getattr(plugs["combine"], "known_noise", False):
        raise ValueError(
            f"combine = {plugs['combine']} draws its noise from seed 0, the default, so anyone who has the model "
            "could subtract the noise; write noise(…, seed=system), or a long random number that you keep secret"
        )
    optimiser = None if over is None else Optimiser(base, form, buffers)
    chosen = fraction(base.fraction_train, base.min_train_nodes) if select is None else SELECTIONS.parse(select)
    plugs["apply"] = optimiser or plugs["apply"]
    plugs["secure"] = None if secure is None else _secure(secure)
    plugs["upload"] = None if upload is None else UPLOADS.parse(upload)
    algorithm = Algorithm(chosen, weigh=STRATEGIES.parse(strategy), admission=admission, reevaluate=reevaluate, **plugs)
    return Rules(algorithm, form, base, optimiser, _drill(fault), _sends(plugs["update"]))


def _instead(name: str, known: Sequence[str]) -> str:
    """What to write in place of an argument that `FedAlpha` does not have; ``known`` are those that it has."""
    if name in _FORMERLY:
        return f"its present name is {_FORMERLY[name]}"
    if name in _OF_START:
        return f"pass {_OF_START[name]}= to start"
    if name in ("clock", "availability"):
        return "time is real on a live federation; it is a setting of fedalpha.run"
    return nearest(name, known)


def _check_shares(settings: Mapping[str, Any]) -> None:
    for name in ("fraction_train", "fraction_evaluate"):
        share = settings.get(name, 1.0)
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise ValueError(f"{name} = {share!r}; give a share of the nodes in [0, 1]")


def check_arguments(
    fedavg: Mapping[str, Any], losses: str, states: str, watched: Evaluate, validation: Any, **seconds: float | None
) -> None:
    """Raise if an argument of `FedAlpha` is unknown, has an impossible value, or contradicts another one."""
    if not isinstance(key := fedavg.get("weighted_by_key", ""), str):
        raise TypeError(f"weighted_by_key = {key!r}; give the name of a metric, such as 'num-examples'")
    if "save" in fedavg:
        raise TypeError("FedAlpha does not take save; the folder of a run is named by out=, as in fedalpha.run")
    if losses not in (sources := get_args(Source)):
        raise ValueError(f"losses = {losses!r}; give one of {', '.join(sources)}")
    if states not in ("server", "node"):
        raise ValueError(f"states = {states!r}; give server or node")
    if not isinstance(watched, Evaluate):
        raise TypeError(f"evaluate = {watched!r}; give fedalpha.Evaluate(stop=…, keep=…, shadow=…, liars=…)")
    if watched.every != 1 or watched.signal != "validation":
        raise ValueError(
            "every and signal of Evaluate are for simulations: a live federation evaluates every round with "
            "fraction_evaluate and evaluate_fn, and stop, keep and rules use this evaluation; leave every and "
            "signal out"
        )
    for name, value in seconds.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
            raise ValueError(f"{name} = {value!r}; give a number of seconds above 0")
    if watched.reevaluate and validation is None:
        raise ValueError("reevaluate needs an evaluation on the server's data; pass validation=evaluate_on(…)")


def check_live(server: Server, rules: Rules, clients: int | None, evaluating: bool, looks: frozenset[Any]) -> None:
    """Raise ValueError if a live federation cannot have this server, or if rules do not work with it.

    ``looks``: the values that shadow rules use.
    """
    if server.waits:
        if server.first is not None:
            raise ValueError(
                f"server = {server}: a live server waits until its deadline; give deadline= instead of take="
            )
        return
    if rules.algorithm.secure is not None:
        raise ValueError(
            f"server = {server} takes updates one by one, and {rules.algorithm.secure} sums those of a round: leave "
            "server out"
        )
    check_server(server, clients)
    check_stale(server, rules.algorithm, looks)
    for name, rule in (("select", rules.algorithm.select), ("strategy", rules.algorithm.weigh)):
        if reason := rule.against_absence:
            raise ValueError(f"{name} = {rule} does not work with server = {server}: {reason}")
    if reason := rules.algorithm.combine.against_absence:
        raise ValueError(f"combine = {rules.algorithm.combine} does not work with server = {server}: {reason}")
    if rules.fault is not None:
        raise ValueError(
            f"fault = {rules.fault}: faults happen to a cohort, and server = {server} has none; leave it out"
        )
    if evaluating:
        raise ValueError(
            f"server = {server}: clients in training cannot evaluate, and the server would wait for them; set "
            "fraction_evaluate=0.0 and pass evaluate_fn= to start"
        )


def check_loop(server: Server) -> None:
    """Raise RuntimeError if this server needs the loop of `FedAlpha.start`; another loop drives the run."""
    if not server.waits:
        raise RuntimeError(
            f"server = {server} needs FedAlpha.start, which pulls replies as they arrive; this run is driven by "
            "another loop (a wrapper, or a start() of your own), which waits for all of them. Leave server= out"
        )


def check_wrapped(rules: Rules) -> None:
    """Raise if clients send more than a model, because Flower's privacy wrappers would clip all of it as a model."""
    if rules.algorithm.upload is not None:
        raise RuntimeError(
            f"upload = {rules.algorithm.upload} needs FedAlpha.start: a wrapper of FedAlpha would treat what clients "
            "write as models. For privacy use combine='noise(clip(mean, …), …)'"
        )
    if getattr(rules.algorithm.update, "sends", ()):
        raise RuntimeError(
            f"update = {rules.algorithm.update} needs FedAlpha.start: its clients send more than a model, and a "
            "wrapper of FedAlpha would treat all of it as models. For privacy use combine='noise(clip(mean, …), …)'"
        )


def _secure(text: Any) -> Any:
    from fedalpha.secure.forms import SECURES

    return SECURES.parse(text)


def _in_torch(update: Any, combine: Any, apply: Any, model: Any, buffers: Sequence[str]) -> tuple[Form, dict[str, Any]]:
    """The rules of a simulation, and the form of their models."""
    from fedalpha.apply import APPLIES
    from fedalpha.combine import COMBINES
    from fedalpha.flower.torch_form import TorchForm
    from fedalpha.update import UPDATES

    plugs = {
        "combine": COMBINES.parse(combine or "mean"),
        "apply": APPLIES.parse(apply or "replace"),
        "update": UPDATES.parse(update or "sgd"),  # without update= the server has no part in it
    }
    return TorchForm(model, buffers), plugs


def _sends(update: Any) -> Callable[[Any], frozenset[str]]:
    prefixes: tuple[str, ...] = getattr(update, "sends", ())

    def names(broadcast: Any) -> frozenset[str]:
        if not prefixes:
            return frozenset()
        trained = broadcast.architecture.trained()
        return frozenset(prefix + name for prefix in prefixes for name in trained)

    return names


def _drill(fault: Any) -> Any:
    """The fault, if it can be simulated on a live federation, where the server cannot change clients' data."""
    if fault is None:
        return None
    from fedalpha.defence.faults import FAULTS, Fault

    parsed = FAULTS.parse(fault)
    for one in getattr(parsed, "faults", (parsed,)):
        if type(one).poison is not Fault.poison:
            raise ValueError(
                f"fault = {one} changes the clients' data, which the server does not have; change the data on the "
                "clients"
            )
    return parsed


def _check_torch(given: Mapping[str, Any]) -> None:
    if find_spec("torch") is None:
        name, value = next(iter(given.items()))
        raise ModuleNotFoundError(
            f"{name} = {value} needs PyTorch on the server: pip install torch, or leave {name}= out (a strategy with "
            "select=, over=, quorum= … needs NumPy only)",
            name="torch",
        )


def identity(given: Mapping[str, Any], rules: Rules, update: Any, server: Server, watch: Watch) -> dict[str, Any]:
    """The values in ``config.json`` that identify a run: a run with another value is another run."""
    algorithm, over = rules.algorithm, rules.over
    named = type(over).__name__
    plugs = {} if isinstance(algorithm.select, fraction) else {"select": str(algorithm.select)}
    plugs |= {} if update is None else {"update": str(algorithm.update)}
    for name in ("combine", "apply"):
        rule = getattr(algorithm, name)
        if not isinstance(rule, Optimiser):
            plugs[name] = str(rule)
    return {
        "federation": "flower",
        "strategy": str(algorithm.weigh),
        **plugs,
        "reevaluate": algorithm.reevaluate,
        "fault": str(rules.fault),
        **given,
        **({} if server == synchronous() else {"server": str(server)}),
        **({} if algorithm.secure is None else {"secure": str(algorithm.secure)}),
        **({} if algorithm.upload is None else {"upload": str(algorithm.upload)}),
        **watch.settings,
        "over": named,
        **{f"{named}.{k}": v for k, v in vars(over).items() if _is_setting(k, v)},
    }


def _is_setting(name: str, value: object) -> bool:
    """Whether an attribute of a new Flower strategy is part of what identifies the run."""
    return isinstance(value, bool | int | float | str | np.number) and name != "min_available_nodes"

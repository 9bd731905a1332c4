"""The stable core: what ``import fedalpha`` gives, and what it costs."""

from __future__ import annotations

import inspect
import subprocess
import sys

import numpy as np
import pytest

import fedalpha


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_core_needs_numpy_only() -> None:
    code = """
import sys
heavy = {"torch", "typer", "sklearn", "matplotlib", "scipy", "pydantic", "rich", "safetensors", "platformdirs"}
for name in heavy:
    sys.modules[name] = None  # importing any of them fails from here on
import fedalpha
print(fedalpha.weights("FedSoftWorse(T=0)", losses=[1, 1], sizes=[1, 3]).tolist())
print(fedalpha.strategy("FedSoftBetterAvg"))
print(sorted(name for name in heavy if sys.modules.get(name)), "numpy" in sys.modules)
"""
    assert python(code).splitlines() == ["[0.25, 0.75]", "switch(FedSoftBetter(T=0.2), FedAvg, at=20)", "[] True"]


def test_no_heavy_module_is_imported() -> None:
    code = """
import sys
import fedalpha
fedalpha.weights("cap(FedSoftWorse(T=0.2), 0.5)", losses=[1, 2, 3])
print([name for name in ("torch", "typer", "sklearn", "matplotlib", "scipy") if name in sys.modules])
"""
    assert python(code) == "[]"


def test_diagnostics_need_numpy_only() -> None:
    code = """
import sys
sys.modules["torch"] = sys.modules["scipy"] = None  # importing them fails from here on
from fedalpha.theory import diagnostics
print(diagnostics([0.5, 0.5], [1, 1])["rho"])
"""
    assert python(code) == "1.0"


def test_import_costs_little_beside_numpys() -> None:
    code = """
import time
start = time.process_time()
import numpy
middle = time.process_time()
import fedalpha
print((time.process_time() - middle) / (middle - start))
"""
    assert min(float(python(code)) for _ in range(3)) < 2


def test_signature_of_weights() -> None:
    parameters = inspect.signature(fedalpha.weights).parameters
    positional = {name: p.default for name, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD}
    assert list(positional) == ["strategy", "losses", "sizes", "optima", "round", "accuracy"]
    assert positional["optima"] is None
    assert positional["round"] == 0
    assert positional["accuracy"] is None


def test_weights_by_position_and_by_name() -> None:
    text = "switch(FedWorse, FedBetter, at=20)"
    by_name = fedalpha.weights(text, losses=[3, 1], sizes=[1, 1], optima=[3, 0], round=20, accuracy=0.5)
    assert by_name.dtype == np.float64
    assert by_name.tolist() == fedalpha.weights(text, [3, 1], [1, 1], [3, 0], 20, 0.5).tolist() == [1, 0]
    assert fedalpha.weights(text, [3, 1], [1, 1]).tolist() == [1, 0]
    assert fedalpha.weights(fedalpha.strategy(text), [3, 1]).tolist() == [1, 0]


@pytest.mark.parametrize("kind", [list, tuple, np.array, lambda v: np.array(v, dtype=np.float32)])
def test_weights_take_lists_tuples_and_arrays(kind) -> None:
    losses, sizes = kind([0.5, 0.25]), kind([1, 3])
    assert fedalpha.weights("FedSoftWorse(T=inf)", losses, sizes).tolist() == [0.25, 0.75]
    assert list(losses) == [0.5, 0.25]


def test_the_front_page_names_exist() -> None:
    assert set(fedalpha.__all__) >= {"strategy", "weights", "Strategy", "Cohort", "__version__"}
    assert isinstance(fedalpha.strategy("FedAvg"), fedalpha.Strategy)
    with pytest.raises(AttributeError, match="no attribute 'wieghts'"):
        _ = fedalpha.wieghts


def test_the_front_page_offers_what_a_user_needs() -> None:
    offered = dir(fedalpha)
    assert {"run", "federation", "Task", "Callback", "StopWhen", "Patience", "Algorithm", "Evaluate"} <= set(offered)
    assert "Any" not in offered
    assert all(hasattr(fedalpha, name) for name in offered)


def test_run_has_at_most_twelve_parameters_besides_the_texts_of_plug_points() -> None:
    """docs/structure.md lists them: five plug points of the round, three of time, the secure sum and the upload."""
    given = inspect.signature(fedalpha.run).parameters
    assert not [p for p in given.values() if p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    plug_points = {"strategy", "select", "update", "combine", "apply", "clock", "availability", "server", "secure"}
    plug_points |= {"upload"}
    assert plug_points <= given.keys()
    assert len(given.keys() - plug_points) <= 12


def test_fedalpha_has_the_names_of_run_where_it_has_the_same_rule() -> None:
    pytest.importorskip("flwr")
    from fedalpha.flower import FedAlpha

    shared = {"strategy", "select", "update", "combine", "apply", "quorum", "deadline", "fault", "secure"}
    shared |= {"upload", "server", "model", "seed", "evaluate", "callbacks", "out"}
    live = inspect.signature(FedAlpha).parameters
    assert shared <= live.keys() & inspect.signature(fedalpha.run).parameters.keys()
    assert all(p.kind in (p.KEYWORD_ONLY, p.VAR_KEYWORD) for name, p in live.items() if name != "strategy")

"""The text form: what it reads, what it refuses, and that nothing is ever executed."""

from __future__ import annotations

import inspect
import math
import sys
import warnings
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedalpha.strategies import STRATEGIES, FedSoftWorse, Strategy, strategy
from fedalpha.text import Registry, Spelled


@pytest.fixture
def echo() -> Registry[tuple]:
    """A registry whose objects are their own arguments."""
    registry: Registry[tuple] = Registry("thing", tuple)

    @registry.register(formula="x ↦ x", reference="nobody", examples=("echo(1)",))
    def echo(*items: object, key: object = None) -> tuple:
        """Gives back what it got.

        More about it."""
        return (*items, key) if key is not None else items

    @registry.register()
    def pair(first: object, second: object = "size") -> tuple:
        return (first, second)

    return registry


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-1", -1),
        ("--2", 2),
        ("0.25", 0.25),
        ("-1e-3", -0.001),
        ("1/15", 1 / 15),
        ("-1/4", -0.25),
        ("1/2/2", 0.25),
        ("inf", math.inf),
        ("Inf", math.inf),
        ("-inf", -math.inf),
        ("none", None),
        ("None", None),
        ("true", True),
        ("False", False),
        ("uniform", "uniform"),
        ("rounds.csv", "rounds.csv"),
        ("'uniform'", "uniform"),
        ('"two words"', "two words"),
        ("'inf'", "inf"),
        ("[15, 30]", (15, 30)),
        ("(15, 30)", (15, 30)),
        ("[]", ()),
        ("[a, [1, 'b'], -2.5]", ("a", (1, "b"), -2.5)),
        ("pair(1)", (1, "size")),
        ("pair(1, second=pair(first=2))", (1, (2, "size"))),
        ("[pair(1), 2]", ((1, "size"), 2)),
        ("echo", ()),
    ],
)
def test_arguments(echo: Registry[tuple], text: str, value: object) -> None:
    (read,) = echo.parse(f"echo({text})")
    assert read == value
    assert type(read) is type(value)


def test_nan_is_read(echo: Registry[tuple]) -> None:
    assert math.isnan(echo.parse("echo(nan)")[0])


def test_calls(echo: Registry[tuple]) -> None:
    assert echo.parse("echo") == echo.parse("echo()") == ()
    assert echo.parse("  echo(1,\n  2,\tkey=3) ") == (1, 2, 3)
    assert echo.parse((1, 2)) == (1, 2)  # an object of the right kind is returned as it is


def test_quotes_make_no_difference() -> None:
    bare = strategy("FedSoftWorse(T=0.2, prior=uniform, loss=train)")
    assert bare == strategy("FedSoftWorse(T=0.2, prior='uniform', loss=\"train\")")
    assert bare == FedSoftWorse(0.2, "uniform", loss="train")
    assert strategy("switch('FedWorse', FedAvg, at=3)") == strategy("switch(FedWorse, FedAvg, at=3)")


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("FedSoftWorse", "FedSoftWorse(T=0.2)"),
        ("FedSoftWorse(T=1)", "FedSoftWorse(T=1.0)"),
        ("FedSoftWorse(T=inf)", "FedSoftWorse(T=inf)"),
        ("FedSoftWorse(1/15, uniform)", f"FedSoftWorse(T={1 / 15!r}, prior=uniform)"),
        ("FedWorse(k=1)", "FedWorse"),
        ("FedWorse(k=1.0)", "FedWorse(k=1.0)"),
        ("FedBetter(loss=after, k=3)", "FedBetter(k=3, loss=after)"),
        ("FedAvg(prior=size)", "FedAvg"),
        ("switch(FedAvg, FedWorse, at=[20])", "switch(FedAvg, FedWorse, at=20)"),
        ("cap(FedAvg, 0.1)", "cap(FedAvg, c=0.1)"),
    ],
)
def test_what_is_written(text: str, written: str) -> None:
    assert str(strategy(text)) == written
    assert strategy(written) == strategy(text)


def test_a_rule_derived_from_another_is_written_by_its_own_name() -> None:
    """Else its runs would be stored as the other's, and a study take the other's rows."""

    class Hotter(FedSoftWorse):
        pass

    assert str(Hotter(T=0.3)) == "Hotter(T=0.3)"
    assert str(FedSoftWorse(T=0.3)) == "FedSoftWorse(T=0.3)"


def test_different_strategies_are_different() -> None:
    texts = ["FedWorse", "FedWorse(k=2)", "FedWorse(k=1.0)", "FedBetter", "FedSoftWorse", "FedSoftWorse(T=0.3)"]
    assert len({strategy(text) for text in texts}) == len(texts)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FedSoftWors(T=1)", r"unknown strategy 'FedSoftWors'; did you mean 'FedSoftWorse' or .*\?$"),
        ("fedavg", r"did you mean 'FedAvg'\?$"),
        ("", "the strategy is empty; write it like 'FedAvg'"),
        ("FedWorse(k=2", r"'FedWorse\(k=2': '\(' was never closed; write it"),
        ("switch(FedAvg, FedWurse(k=2), at=3)", "unknown strategy 'FedWurse'; did you mean 'FedWorse'"),
        ("xyzzy", r"unknown strategy 'xyzzy'; known: .*FedAvg"),
        ("FedAvg(priors=size)", r"FedAvg has no argument 'priors'; did you mean 'prior'\? \(known: prior\)"),
        ("FedSoftWorse(t=1)", "no argument 't'; did you mean 'T'"),
        ("FedSoftWorse(temperature=1)", r"no argument 'temperature'.*known: .*\bT\b"),
        ("switch(FedAvg, FedWorse, att=3)", r"switch has no argument 'att'; did you mean 'at'.*known: at, accuracy"),
        ("FedSoftWorse(0.2, size, 3)", "too many positional arguments; its form is FedSoftWorse.T=0.2, prior=size"),
        ("cap", "missing a required argument: 'rule'; its form is cap.rule, c"),
        ("FedSoftWorse(0.2, T=0.2)", "multiple values for argument 'T'; its form is"),
        ("FedSoftWorse(T=0.2, T=0.5)", "the argument 'T' is given twice; keep one"),
        ("FedAvg(", "cannot read the strategy.*write it like '\\w+'"),
        ("FedAvg; FedAvg", "cannot read the strategy"),
        ("csv(/tmp/a.csv)", "put a path in quotes"),
        ("FedAvg(a/b.csv)", "put a path in quotes"),
        pytest.param("FedWorse(k=1" + "0" * 400 + ")", "beyond float64; write a smaller one, or inf", id="1e400"),
        ("3", "'3' is not a strategy; write it like '\\w+'"),
        ("'FedAvg'", "is not a strategy; write it like '\\w+'"),
    ],
)
def test_errors_show_the_nearest_valid_text(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        strategy(text)


def test_what_is_no_text_is_refused_too() -> None:
    with pytest.raises(TypeError, match=r"expected a strategy or its text, got int; write for example '\w+'"):
        strategy(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('touch {path}')",
        "FedSoftWorse(T=__import__('os').system('touch {path}'))",
        "FedSoftWorse(T=open('{path}', 'w'))",
        "FedSoftWorse(T=eval('1'))",
        "FedAvg.__class__",
        "FedAvg.__class__()",
        "FedAvg()()",
        "FedSoftWorse(T=FedAvg.prior)",
        "FedSoftWorse(T=(lambda: 1)())",
        "lambda: FedAvg",
        "FedWorse(k=[x for x in [1]])",
        "[FedAvg for _ in [1]]",
        "FedWorse(k={{1: 2}})",
        "FedWorse(k={{1}})",
        "FedWorse(k=2**3)",
        "FedWorse(k=9**9**9)",
        "FedWorse(k=1+1)",
        "FedWorse(k='a'*9)",
        "FedWorse(k=1//1)",
        "FedWorse(k=1/0)",
        "FedWorse(k=not 1)",
        "FedWorse(k=~1)",
        "FedWorse(k=+1)",
        "FedWorse(k=-'a')",
        "FedWorse(k=1 if 1 else 2)",
        "FedWorse(k=1 < 2)",
        "FedWorse(k=1 and 2)",
        "FedWorse(k=(k := 1))",
        "FedWorse(k=[1][0])",
        "FedWorse(k=f'{{1}}')",
        "FedWorse(k=b'1')",
        "FedWorse(k=1j)",
        "FedWorse(k=...)",
        "FedWorse(*[1])",
        "FedWorse(**{{'k': 1}})",
        "import os",
        "k = 1",
    ],
)
def test_nothing_is_executed(text: str, tmp_path) -> None:
    path = tmp_path / "proof"
    with pytest.raises(ValueError):  # noqa: PT011 - the messages differ; that nothing else is raised is the point
        strategy(text.format(path=path))
    assert not path.exists()


def test_words_are_words_not_variables() -> None:
    with pytest.raises(ValueError, match="prior = '__builtins__' is not one of size, uniform"):
        strategy("FedAvg(prior=__builtins__)")


@pytest.mark.parametrize("n", [50, 150, 250, 500, 900, 960, 990, 1500, 2500, 5000, 100_000])
@pytest.mark.parametrize(
    ("before", "middle", "after"),
    [
        ("floor(", "FedAvg", ", 0.5)"),
        ("FedSoftWorse(T=", "1", ")"),
        ("[", "FedAvg", "]"),
    ],
)
def test_deep_nesting_is_read_or_refused(before: str, middle: str, after: str, n: int) -> None:
    read_or_refused(before * n + middle + after * n)


@pytest.mark.parametrize("n", [50, 500, 900, 960, 990, 1500, 2500, 5000, 100_000])
@pytest.mark.parametrize("chain", ["FedSoftWorse(T={}1)", "FedSoftWorse(T=[{}1])"])
@pytest.mark.parametrize("link", ["-", "1/", "not ", "1+"])
def test_long_chains_are_read_or_refused(chain: str, link: str, n: int) -> None:
    read_or_refused(chain.format(link * n))


def test_moderate_nesting_works() -> None:
    rule = strategy("floor(" * 40 + "FedWorse" + ", 0.5)" * 40)
    assert strategy(str(rule)) == rule
    assert strategy("FedSoftWorse(T=" + "-" * 100 + "1)") == FedSoftWorse(T=1)


def read_or_refused(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", (SyntaxWarning, DeprecationWarning))  # 'echo(1is 2)', '\d'
        try:
            rule = strategy(text)
        except ValueError:
            return
    assert isinstance(rule, Strategy)
    assert strategy(str(rule)) == rule


fuzz = settings(max_examples=400)


@fuzz
@given(st.text(max_size=40))
@example("\x00")
@example("\ud800")
@example("FedAvg\\")
@example("FedWorse(k='\\d')")
@example("FedWorse(k=1" + "0" * 400 + "/3)")
@example("FedWorse(k=0x" + "f" * 5000 + ")")
@example("FedWorse(k=" + "9" * 5000 + ")")
def test_any_text_is_read_or_refused(text: str) -> None:
    read_or_refused(text)


atoms = st.one_of(
    st.sampled_from(["inf", "nan", "none", "true", "1e400", "1" + "0" * 400, "0", "1", "0.5", "[]", "''", "size"]),
    st.sampled_from(["linear", "uniform", "after", "estimated", "FedAvg", "FedSoftWorse", "-1", "1/3", "[0.5, 0.5]"]),
    st.integers(-3, 30).map(str),
    st.floats(0, 1).map(str),
)
names = st.sampled_from([entry.name for entry in STRATEGIES])
keys = st.sampled_from(["T", "k", "at", "accuracy", "rounds", "shares", "c", "pi", "prior", "loss", "members", "rules"])


def calls(arguments: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    keyword = st.tuples(keys, arguments).map("=".join)
    inside = st.tuples(st.lists(arguments, max_size=3), st.lists(keyword, max_size=2)).map(lambda p: p[0] + p[1])
    listed = st.lists(arguments, max_size=3).map(lambda items: f"[{', '.join(items)}]")
    return st.one_of(st.tuples(names, inside).map(lambda p: f"{p[0]}({', '.join(p[1])})"), listed)


@settings(fuzz, max_examples=1000)
@given(st.recursive(atoms, calls, max_leaves=6))
def test_any_call_is_read_or_refused(text: str) -> None:
    read_or_refused(text)


@fuzz
@given(st.data())
def test_any_arguments_of_a_known_name_are_read_or_refused(data: st.DataObject) -> None:
    """Arguments with names that the factory has, so that its own checks are reached."""
    entry = data.draw(st.sampled_from(list(STRATEGIES)))
    known = inspect.signature(entry.make).parameters.values()
    parts = data.draw(st.lists(st.sampled_from(["FedAvg", "FedWorse", "FedSoftWorse(T=1)"]), max_size=2))
    values = st.one_of(atoms, st.lists(atoms, max_size=3).map(lambda items: f"[{', '.join(items)}]"))
    names = [p.name for p in known if p.name != "rules"]
    chosen = data.draw(st.lists(st.sampled_from(names), max_size=2, unique=True)) if names else []
    parts += [f"{name}={data.draw(values)}" for name in chosen]
    read_or_refused(f"{entry.name}({', '.join(parts)})")


def test_a_name_can_be_registered_once(echo: Registry[tuple]) -> None:
    with pytest.raises(ValueError, match="the thing 'pair' is registered already; choose another name"):
        echo.register(name="pair")(lambda: ())


def test_entries_describe_themselves(echo: Registry[tuple]) -> None:
    first, second = echo
    assert (first.name, first.formula, first.reference, first.examples) == ("echo", "x ↦ x", "nobody", ("echo(1)",))
    assert first.summary == "Gives back what it got."
    assert first.signature == "echo(items…, key=none)"
    assert (second.signature, second.examples) == ("pair(first, second=size)", ("pair",))
    assert "pair" in echo
    assert "triple" not in echo


def test_an_empty_registry_says_so() -> None:
    with pytest.raises(ValueError, match=r"unknown shape 'circle'; known: none"):
        Registry("shape", tuple).parse("circle")


# One file, found by the registry of its folder

RULE = "from shapes.base import SHAPES, Shape\n\n\n@SHAPES.register()\nclass {name}(Shape):\n    size: float = 1.0\n"


@pytest.fixture
def shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a package with a registry, and nothing in it that names its rules."""
    folder = tmp_path / "shapes"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "base.py").write_text(
        "from fedalpha.text import Registry, Spelled\n\n\nclass Shape(Spelled):\n    pass\n\n\n"
        'SHAPES = Registry("shape", Shape, package=__package__)\n'
    )
    (folder / "circle.py").write_text(RULE.format(name="circle"))
    (folder / "square.py").write_text(RULE.format(name="square"))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder
    for name in [m for m in sys.modules if m.partition(".")[0] == "shapes"]:
        del sys.modules[name]


def registry(folder: Path) -> Any:
    from shapes.base import SHAPES  # type: ignore[import-not-found]

    return SHAPES


def test_files_of_the_folder_are_found_at_the_first_look_up(shapes: Path) -> None:
    found = registry(shapes)
    assert "shapes.circle" not in sys.modules  # until something is looked up nothing is imported
    assert str(found.parse("circle(size=2.0)")) == "circle(size=2.0)"
    assert [entry.name for entry in found] == ["circle", "square"]
    assert "square" in found


def test_the_order_of_entries_does_not_depend_on_the_order_of_imports(shapes: Path) -> None:
    found = registry(shapes)
    import shapes.square  # type: ignore[import-not-found]

    assert [entry.name for entry in found] == ["circle", "square"]


def test_a_file_that_cannot_be_imported_is_named_at_every_look_up(shapes: Path) -> None:
    (shapes / "torn.py").write_text("def f(:\n")
    found = registry(shapes)
    for _ in range(2):
        with pytest.raises(SyntaxError, match=r"torn\.py"):
            found.parse("circle")


def test_a_name_of_the_folder_is_taken_before_the_folder_was_read(shapes: Path) -> None:
    """Else the rule from outside would win, and the file of the folder fail at the next look-up."""
    found = registry(shapes)
    with pytest.raises(ValueError, match="the shape 'square' is registered already"):
        found.register(name="square")(lambda: None)


# Rules are plain classes


class Greet(Spelled, name="greet"):
    times: int = 1


class Shout(Greet):
    loud: bool = True


class Greetings(Spelled):
    words: tuple[str, ...] = field(default=(), metadata={"positional": True})

    def __init__(self, *words: str) -> None:
        self.words = words
        self.count = len(words)


def test_a_rule_may_build_itself_and_its_fields_are_still_its_text() -> None:
    assert str(Greetings("hello", "bye")) == "Greetings(hello, bye)"
    assert Greetings("hello") != Greetings("bye")
    assert Greetings("hello").count == 1


def test_a_rule_is_a_frozen_dataclass_without_saying_so() -> None:
    assert str(Shout(2, loud=False)) == "Shout(times=2, loud=False)"
    assert Greet(2) == Greet(times=2) != Greet(3)
    assert len({Greet(2), Greet(2), Shout(2)}) == 2
    with pytest.raises(AttributeError, match="cannot assign to field 'times'"):
        Greet().times = 3  # type: ignore[misc]


def test_a_class_of_another_kind_is_not_registered() -> None:
    with pytest.raises(TypeError, match=r"Plain is not a strategy; write class Plain\(Strategy\)"):

        @STRATEGIES.register(formula="n")
        class Plain:
            pass


def test_a_word_in_the_place_of_a_number_is_named() -> None:
    registry: Registry[Spelled] = Registry("thing", Spelled)

    @registry.register()
    class Box(Spelled, name="box"):
        width: float = 1.0
        count: int = 1
        open: bool = False
        name: str = "box"

    assert registry.parse("box(2, 3, true, name=crate)")
    for text, said in (("width=x", "give a number"), ("count=x", "give a whole number"), ("open=x", "true or false")):
        with pytest.raises(ValueError, match=f"box: {text.replace('=x', '')} = 'x'; .*{said}"):
            registry.parse(f"box({text})")

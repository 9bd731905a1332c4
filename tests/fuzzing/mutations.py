"""Inputs made from valid ones: bytes, texts and trees of JSON, changed in ways that readers get wrong."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

WORDS = (
    *("0", "-1", "1e309", "1" * 400, "nan", "inf", "none", "true", "²", "0.0", "1/0", "9223372036854775808", "-0.0"),
    *("(", ")", "[", "]", "{", "}", "=", ",", "'", '"', "\\", "\n", "\0", "\x1b[2J", "\u202e", "\ud800", "*", "**"),
    *(
        "FedAvg",
        "FedWorse",
        "cap",
        "switch",
        "at=",
        "T=",
        "k=",
        "x" * 300,
        "(" * 200,
        "[" * 200,
        "__class__",
        "lambda:0",
    ),
    *("lr", "plugin", "engine", "ray", "address='h:1'", "grid", "cases", "seeds", "0-99999999999", "../../x", "a.b.c"),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 10**400, 0.5, 1e308, -0.0, "", "x", "0", "\x1b", "²"),
    *(
        [],
        {},
        [[]],
        {"": 0},
        [0] * 50,
        "y" * 5_000,
        "../..",
        "nan",
        ["FedAvg"],
        {"array": "000000"},
        {"map": [[[], 0]]},
    ),
)


def changed_bytes(data: bytes, draw: random.Random) -> bytes:
    """One to four small changes: bits, bytes, numbers, cuts, repeats, swaps."""
    found = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        place = draw.randrange(len(found) + 1)
        match draw.randrange(7):
            case 0 if found:
                found[place - 1] ^= 1 << draw.randrange(8)
            case 1 if found:
                found[place - 1] = draw.choice((0, 1, 127, 128, 255))
            case 2:
                size = draw.choice((1, 2, 4, 8))
                number = draw.choice((0, 1, 2**31 - 1, 2**32 - 1, 2**63 - 1)) % 2 ** (8 * size)
                found[place : place + size] = number.to_bytes(size, draw.choice(("little", "big")))
            case 3:
                del found[place : place + draw.choice((1, 4, 16, 1 << 16))]
            case 4:
                found[place:place] = found[place : place + draw.choice((1, 8, 64))] * draw.choice((1, 2, 30))
            case 5:
                found[place:place] = draw.randbytes(draw.choice((1, 4, 16)))
            case 6:
                other = draw.randrange(len(found) + 1)
                found[place:place] = found[other : other + 32]
    return bytes(found)


def changed_text(text: str, others: Sequence[str], draw: random.Random) -> str:
    """The same for a text: words are put in, cut out, doubled, or taken from another valid text."""
    for _ in range(draw.choice((1, 1, 2, 3))):
        a, b = sorted(draw.randrange(len(text) + 1) for _ in range(2))
        match draw.randrange(5):
            case 0:
                text = text[:a] + draw.choice(WORDS) + text[a:]
            case 1:
                text = text[:a] + draw.choice(WORDS) + text[min(b, a + 8) :]
            case 2:
                text = text[:a] + text[min(b, a + 12) :]
            case 3:
                text = text[:a] + text[a:b] * draw.choice((2, 3)) + text[b:]
            case 4:
                other = draw.choice(others)
                start = draw.randrange(len(other) + 1)
                text = text[:a] + other[start : start + 40] + text[b:]
    return text[:20_000]


def changed_tree(tree: Any, draw: random.Random) -> Any:
    """A copy of a tree of JSON in which one to three values were replaced, removed, doubled or moved."""
    tree = json.loads(json.dumps(tree))
    for _ in range(draw.choice((1, 1, 2, 3))):
        tree = _changed_once(tree, draw)
    return tree


def changed_state(tree: Any, values: Sequence[Any], draw: random.Random) -> Any:
    """A copy of a tree of Python values, with keys of any kind, in which one of ``values`` takes a random place."""
    if not isinstance(tree, dict | list | tuple) or not tree:
        return draw.choice(values)
    found = dict(tree) if isinstance(tree, dict) else list(tree)
    key = draw.choice(list(found) if isinstance(found, dict) else range(len(found)))
    inside = isinstance(found[key], dict | list | tuple)
    match draw.randrange(10):
        case 0:
            del found[key]
        case 1 if isinstance(found, dict):
            found[draw.choice((0, 2, -1, True, None, "x", "round", 0.5))] = found.pop(key)
        case 1:
            found.append(found[key])
        case 2 | 3 if inside:
            found[key] = draw.choice(values)
        case _:
            found[key] = changed_state(found[key], values, draw)
    return tuple(found) if isinstance(tree, tuple) else found


def _changed_once(tree: Any, draw: random.Random) -> Any:
    if not isinstance(tree, dict | list) or not tree or draw.random() < 0.02:
        return deepcopy(draw.choice(VALUES))
    keys: Sequence[Any] = list(tree) if isinstance(tree, dict) else range(len(tree))
    key = draw.choice(keys)
    if isinstance(tree[key], dict | list) and tree[key] and draw.random() < 0.8:
        tree[key] = _changed_once(tree[key], draw)
        return tree
    match draw.randrange(5):
        case 0:
            del tree[key]
        case 1:
            tree[key] = deepcopy(tree[draw.choice(keys)])
        case 2 if isinstance(tree, dict):
            tree[draw.choice(("x", "\x1b", "round", "plugin", ""))] = deepcopy(tree[key])
        case _:
            tree[key] = deepcopy(draw.choice(VALUES))
    return tree

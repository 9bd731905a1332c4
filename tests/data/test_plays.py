"""Plays by role: small ones by hand, and every play of Shakespeare's."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedalpha.data.plays import read_play
from fedalpha.data.sets.shakespeare import ALPHABET, encode, shakespeare
from fetched import real

PLAY = """A PLAY

PERSONS
ANN, a queen.

ACT I. SCENE I. A room.

[Enter ANN
and BOB.]

ANN.
Good day, [Aside.] Bob.

[He bows.]

How goes it?

1 Guard.
Who's there?

Bob.
  Amen.
Good night.

SCENE II.
Somewhere else.

BOB
Alas!
"""


def test_speeches_go_to_their_roles() -> None:
    play = read_play(PLAY)
    assert play.roles == {
        "ANN": ["Good day,  Bob.\nHow goes it?"],
        "1 GUARD": ["Who's there?"],
        "BOB": ["Amen.\nGood night.", "Alas!"],
    }


def test_every_character_is_counted_once() -> None:
    play = read_play(PLAY)
    assert sum(play.characters.values()) == len(PLAY.replace("\n", ""))
    assert play.characters["direction"] == len("[Enter ANN and BOB.][Aside.][He bows.]") - 1
    assert play.left_out == sum(play.characters.values()) - play.characters["speech"]


def test_a_bracket_that_is_never_closed_ends_with_its_line() -> None:
    play = read_play("ACT I.\n\nANN.\nOne. [Exit.\nTwo.\n" + "\nBOB.\nThree.\n" * 100)
    assert play.roles["ANN"] == ["One.\nTwo."]


@pytest.fixture(scope="module")
def plays() -> dict[str, str]:
    return {file: content.decode().replace("\r\n", "\n") for file, content in real(shakespeare().files).items()}


# The largest role of each play, as every edition has it (names as they are printed in these texts).
LARGEST = {
    "alls_well_that_ends_well": "HELENA",
    "antony_and_cleopatra": "ANTONY",
    "as_you_like_it": "ROSALIND",
    "coriolanus": "CORIOLANUS",
    "hamlet": "HAM",
    "henry_iv_part_1": "FAL",
    "henry_iv_part_2": "FALSTAFF",
    "henry_v": "KING HENRY",
    "julius_caesar": "BRUTUS",
    "lear": "LEAR",
    "macbeth": "MACBETH",
    "measure_for_measure": "DUKE",
    "merchant_of_venice": "PORTIA",
    "much_ado_about_nothing": "BENEDICK",
    "othello": "IAGO",
    "pericles": "PERICLES",
    "richard_ii": "KING RICHARD",
    "romeo_and_juliet": "ROMEO",
    "taming_of_the_shrew": "PETRUCHIO",
    "tempest": "PROSPERO",
    "timon_of_athens": "TIMON",
    "tragedy_of_titus_andronicus": "TITUS",
    "winters_tale": "LEONTES",
}


def test_every_play_is_read_and_what_is_left_out_is_small(plays: dict[str, str]) -> None:
    assert len(plays) == 37
    for file, text in plays.items():
        play = read_play(text)
        assert sum(play.characters.values()) == len(text.replace("\n", "")), file
        assert 15 <= len(play.roles) <= 70, file
        # Names and directions are a twentieth each or less; prologues without a speaker make the rest.
        assert play.left_out < 0.16 * len(text), file
        assert play.characters["front"] + play.characters.get("heading", 0) < 0.04 * len(text), file
        spoken = "".join("".join(speeches) for speeches in play.roles.values())
        assert "[" not in spoken, file
        assert len(encode(spoken)) > 0.999 * len(spoken), file


def test_what_is_left_out_is_what_the_documentation_says(plays: dict[str, str]) -> None:
    read = [read_play(text) for text in plays.values()]
    counts = {kind: sum(play.characters[kind] for play in read) for kind in read[0].characters}
    assert counts == {"speech": 4180558, "name": 251778, "direction": 165823, "heading": 39987, "front": 30564}
    roles = [len(encode("\n".join(speeches))) for play in read for speeches in play.roles.values()]
    small = [size for size in roles if (size - 1) // 80 < 10]
    assert (len(roles), len(small)) == (1371, 684)
    assert round(100 * sum(small) / sum(roles), 1) == 4.1
    page = (Path(__file__).parents[2] / "docs" / "data.md").read_text()
    assert all(f"{count:,}" in page for count in (*counts.values(), sum(counts.values())))


@pytest.mark.parametrize(("play", "role"), LARGEST.items())
def test_the_largest_role_is_who_it_should_be(plays: dict[str, str], play: str, role: str) -> None:
    sizes = {name: sum(map(len, said)) for name, said in read_play(plays[f"{play}_gut.txt"]).roles.items()}
    assert max(sizes, key=sizes.__getitem__) == role


def test_a_client_is_a_role_and_its_last_fifth_is_its_test_part(plays: dict[str, str]) -> None:
    data = shakespeare()
    assert data.population == 687
    found = data.make(687, seed=0)
    assert sum(len(one.train_x) + len(one.test_x) for one in found) * 80 > 3_500_000
    for one in found[::50]:
        count = len(one.train_x) + len(one.test_x)
        assert len(one.test_x) == max(1, round(count / 5))
        assert (one.train_x[:, 1:] == one.train_y[:, :-1]).all()  # y is x, one character on
        assert one.test_x[0, 0] == one.train_y[-1, -1]  # nothing between the parts is left out
    hamlet = next(one for one in found if one.name == "hamlet: HAM")
    text = "".join(ALPHABET[code] for code in hamlet.train_x.reshape(-1))
    assert "To be, or not to be,--that is the question:--" in text.replace("\n", " ")
    few = data.make(30, seed=1)
    assert [one.name for one in few] == [one.name for one in data.make(30, seed=1)]
    assert [one.name for one in few] != [one.name for one in data.make(30, seed=2)]

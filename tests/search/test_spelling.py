"""A misspelt word of a question is corrected by the words of the memory; names and known words stay."""

from __future__ import annotations

import pytest

from rem.app import Rem
from rem.models import Resource
from rem.search.spelling import correct_spelling, list_edits

USER = "alice@example.com"


@pytest.mark.parametrize("typo", ["tracter", "tractro", "tractr", "ttractor", "tractorr"])
def test_edits_of_a_word_differ_in_one_letter(typo: str) -> None:
    assert "tractor" in list_edits(typo)


def test_no_letter_of_a_name_is_exchanged() -> None:
    assert "marta" in list_edits("Matra")
    assert "maria" not in list_edits("Marta")
    assert "maria" in list_edits("marta")


@pytest.mark.parametrize(
    ("asked", "corrected"),
    [
        ("where is the licnce of the trctor", "where is the licence of the tractor"),
        ("Where is Juhannes?", "Where is Juhannes?"),
        ("whre is Johanes", "where is Johannes"),
        ("where is the licence of the tractor", "where is the licence of the tractor"),
        ("", ""),
        ("qzxv wkpl", "qzxv wkpl"),
    ],
)
async def test_misspelt_words_become_words_of_the_memory(rem: Rem, asked: str, corrected: str) -> None:
    memory = rem.for_user(USER)
    await memory.store.upsert(
        Resource(name="farm.md", content="Johannes keeps the licence of the tractor in the green box.")
    )
    await memory.index()
    assert await correct_spelling(memory.store, asked) == corrected


async def test_words_of_another_user_correct_nothing(rem: Rem) -> None:
    await rem.for_user("bob@example.com").store.upsert(
        Resource(name="boat.md", content="The zwertylon is on the boat.")
    )
    await rem.for_user("bob@example.com").index()
    assert await correct_spelling(rem.for_user(USER).store, "where is the zwertilon") == "where is the zwertilon"

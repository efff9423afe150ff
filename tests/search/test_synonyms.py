"""A search over everything finds texts that use another everyday word for the same thing."""

from __future__ import annotations

from rem.app import Rem
from rem.models import Resource
from rem.search.synonyms import MAX_SYNONYMS, find_synonyms


def test_synonyms_are_the_other_words_of_the_groups() -> None:
    assert set(find_synonyms("Where is the Couch?").split()) == {"sofa", "settee"}
    assert find_synonyms("sofa couch settee") == ""
    assert find_synonyms("heliotrope-91") == ""


def test_number_of_synonyms_is_limited() -> None:
    text = (
        "mother father kids flat house couch fridge price job car bike plane food phone begin buy study like live trip"
    )
    assert len(find_synonyms(text).split()) == MAX_SYNONYMS


async def test_synonym_is_found_by_words_alone(rem_without_embedder: Rem) -> None:
    rem = rem_without_embedder
    await rem.for_user("alice").store.upsert_many(
        [
            Resource(name="One", content="The sofa comes on Friday."),
            Resource(name="Two", content="The lamp comes on Friday."),
            Resource(name="Three", content="The couch is blue."),
        ]
    )

    async def search(query: str) -> list[str]:
        return [row.key for row in (await rem.for_user("alice").query(query)).hits]

    assert await search('SEARCH "couch"') == ["three", "one"]
    assert await search('SEARCH "couch" FROM resources') == ["three"]

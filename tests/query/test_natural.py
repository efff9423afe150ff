"""Plain language becomes LOOKUP, FUZZY or SEARCH, without a language model."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest

from rem.app import Rem
from rem.db.store import Store
from rem.errors import InvalidInputError, QuerySyntaxError
from rem.models import Resource, User
from rem.query.natural import to_query
from rem.query.syntax_tree import Fuzzy, Lookup, Search
from rem.settings import EmbeddingSettings, Settings


@pytest.fixture
async def rem(settings: Settings) -> AsyncIterator[Rem]:
    """Open REM without an embedder."""
    async with Rem.open(settings.model_copy(update={"embedding": EmbeddingSettings(provider="none")})) as rem:
        yield rem


async def test_text_with_a_key_becomes_lookup(alice: Store) -> None:
    await alice.upsert(User(name="Sarah Chen", email="sarah@example.com"))
    await alice.upsert(Resource(name="Zoë's übersicht 2026"))
    for text, key in {
        "sarah-chen": "sarah-chen",
        "Sarah Chen": "Sarah Chen",
        "Sarah Chen?": "Sarah Chen",
        "SARAH CHEN": "SARAH CHEN",
        "users/sarah@example.com": "users/sarah@example.com",
        "who is Sarah Chen?": "Sarah Chen",
        "Who's sarah_chen": "sarah_chen",
        "please tell me more about Sarah Chen.": "Sarah Chen",
        "What do we know about sarah@example.com?": "sarah@example.com",
        "look up sarah chen": "sarah chen",
        "find my SarahChen": "SarahChen",
        'did we ever meet a certain "sarah chen" before all of this happened?': "sarah chen",
        "did we ever meet a certain “Sarah Chen” before?": "Sarah Chen",
        "show me the zoë's Übersicht 2026!": "zoë's Übersicht 2026",
    }.items():
        assert await to_query(alice, text) == Lookup((key,)), text
        assert await alice.lookup(key), text


async def test_whole_text_is_tried_before_its_parts(alice: Store) -> None:
    await alice.upsert(Resource(name="Who is Sarah Chen"))
    await alice.upsert(User(name="Sarah Chen"))
    assert await to_query(alice, "who is sarah chen") == Lookup(("who is sarah chen",))


async def test_misspelt_key_becomes_fuzzy(alice: Store) -> None:
    await alice.upsert(User(name="Sarah Chen"))
    await alice.upsert(Resource(name="Vector Index"))
    for text, near in {
        "sara": "sara",
        "who is sarah chan?": "sarah chan",
        "vectr index": "vectr index",
        'tell me about "sarah chan"': "sarah chan",
    }.items():
        assert await to_query(alice, text) == Fuzzy(near, threshold=0.65), text


async def test_word_shared_by_several_keys_becomes_search(alice: Store, shared: Store) -> None:
    await alice.upsert(Resource(name="Design Review"))
    assert await to_query(alice, "review") == Fuzzy("review", threshold=0.65)
    await shared.upsert(Resource(name="Design Review"))
    assert await to_query(alice, "review") == Fuzzy("review", threshold=0.65)
    await shared.upsert(Resource(name="Outage Review"))
    assert await to_query(alice, "review") == Search("review")


async def test_other_text_becomes_search(alice: Store) -> None:
    await alice.upsert(User(name="Sarah Chen"))
    await alice.upsert(Resource(name="The Big Red Book of Birds", content="Feathers everywhere."))
    for text in (
        "what did Sarah Chen decide about the index in June?",
        "feathers",  # is in a summary, but in no key
        "demand forecasts",
        "'nobody' " * 1_000 + "'sarah chen'",
        "the big red bok of birds",  # six words are no name
        "日本語の質問",
        "سارة",
        "🙂",
        "it's Bob's 'idea', isn't it",
        '"',
        "'; DROP TABLE rem.users; --",
        "\\",
        "{people.key}",
        "x" * 10_000,
        "sarah chen " * 1_000,
    ):
        assert await to_query(alice, text) == Search(text.strip()), text[:50]


async def test_only_visible_keys_become_lookup(alice: Store, bob: Store, shared: Store) -> None:
    await alice.upsert(User(name="Sarah Chen"))
    assert await to_query(alice, "sarah chen") == Lookup(("sarah chen",))
    assert await to_query(alice, "sarah chan") == Fuzzy("sarah chan", threshold=0.65)
    for other in (bob, shared):
        assert await to_query(other, "sarah chen") == Search("sarah chen")
        assert await to_query(other, "sarah chan") == Search("sarah chan")
    await shared.upsert(User(name="Sarah Chen"))
    assert await to_query(bob, "sarah chen") == Lookup(("sarah chen",))


async def test_first_note_shows_the_query(rem: Rem) -> None:
    alice, bob = rem.store("alice@example.com"), "bob@example.com"
    await alice.upsert(User(name="Sarah Chen", summary="Runs the observatory."))
    for text, verb, note in (
        ("who is sarah chen?", "LOOKUP", 'Understood as: LOOKUP "sarah chen"'),
        ("sarah chan", "FUZZY", 'Understood as: FUZZY "sarah chan" THRESHOLD 0.65'),
        ("Who runs an observatory?", "SEARCH", 'Understood as: SEARCH "Who runs an observatory?"'),
    ):
        result = await rem.ask(text, user="alice@example.com")
        assert (result.query_type, result.notes[0]) == (verb, note)
        assert [row["key"] for row in result.results] == ["sarah-chen"]
        assert (await rem.ask(text, user=bob)).results == []
        assert (await rem.ask(text, user="alice@example.com", tenant="other")).results == []


async def test_query_text_runs_unchanged(rem: Rem) -> None:
    await rem.store().upsert(User(name="Sarah Chen"))
    for text, understood in {
        "LOOKUP nobody": 'LOOKUP "nobody"',
        'fuzzy "sara" limit 2': 'FUZZY "sara" LIMIT 2',
        "SELECT name FROM users": "SELECT name FROM users",
        "select name from users limit 1": "select name from users limit 1",
        "TRAVERSE sarah-chen": 'TRAVERSE FROM "sarah-chen"',
        "traverse manages from sarah-chen": 'TRAVERSE FROM "sarah-chen" TYPE "manages"',
        "search telescopes limit 3": 'SEARCH "telescopes" LIMIT 3',
        "search telescopes in users": 'SEARCH "telescopes" FROM users',
        "Fuzzy sara threshold=0.9": 'FUZZY "sara" THRESHOLD 0.9',
        "lookup 'nobody'": 'LOOKUP "nobody"',
        "FUZZY feelings about work": 'FUZZY "feelings about work"',
    }.items():
        result = await rem.ask(text)
        assert result.notes[0] == f"Understood as: {understood}"


async def test_text_that_starts_like_a_query_is_plain_language(rem: Rem) -> None:
    for text in (
        "select a gift from our shop",
        "with love from Lisbon",
        "sql injection",
        "Search the attic limit of it",
        "fuzzy feelings about work",
        "fuzzy memories of Lisbon from May",
        "traverse city trip",
        "Traverse the Alps with friends",
        "lookups that fail in June",
        "search engines in the nineties",
    ):
        result = await rem.ask(text)
        assert result.notes[0] == f'Understood as: SEARCH "{text}"', text
        assert not any("valid" in note for note in result.notes)
    wrong = await rem.ask("SEARCH x LIMIT 0")
    assert wrong.notes[:2] == (
        'Understood as: SEARCH "SEARCH x LIMIT 0"',
        "As a query it would not be valid: LIMIT takes a whole number from 1 to 10,000, not '0'.",
    )


async def test_invalid_lower_case_sql_is_plain_language(rem: Rem) -> None:
    await rem.store().upsert(Resource(name="Restaurants", content="The best restaurant of all users is in Lisbon."))
    result = await rem.ask("select the best restaurant from users")
    assert [row["key"] for row in result.results] == ["restaurants"]
    assert result.notes[:2] == (
        'Understood as: SEARCH "select the best restaurant from users"',
        'As SQL it would not be valid: syntax error at or near "restaurant".',
    )
    misspelt = await rem.ask("select nmae from users")
    assert misspelt.notes[1] == 'As SQL it would not be valid: column "nmae" does not exist.'
    with pytest.raises(QuerySyntaxError, match="Syntax error"):
        await rem.ask("SELECT the best restaurant FROM users")


async def test_search_text_omits_the_question_phrase(alice: Store) -> None:
    for text, searched in {
        "show me my recipes": "recipes",
        "search for a good recipe in my notes": "good recipe in my notes",
        "Please tell me about the harbor migration and who did it!": "harbor migration and who did it",
        "what do you know about demand forecasts for the next year?": "demand forecasts for the next year",
        "show me": "show me",
        "what did we decide?": "what did we decide?",
    }.items():
        assert await to_query(alice, text) == Search(searched), text


async def test_many_open_quotes_are_parsed_quickly(alice: Store) -> None:
    for quote in ("“", "‘", "«", "“‘«", "“a ", "'a", '"a'):
        started = time.perf_counter()
        assert await to_query(alice, quote * 100_000) == Search((quote * 100_000).strip())
        assert time.perf_counter() - started < 2, quote


async def test_huge_text_is_searched_and_shortened_in_the_note(rem: Rem) -> None:
    await rem.store().upsert(Resource(name="Attic", content="The attic is full of telescopes."))
    result = await rem.ask("telescopes " * 10_000)
    assert [row["key"] for row in result.results] == ["attic"]
    assert len(result.notes[0]) < 250


async def test_empty_or_invalid_text_is_an_error(rem: Rem) -> None:
    for text in ("", "   ", "\n\t", "\u2003"):
        with pytest.raises(InvalidInputError, match="empty: write a key such as sarah-chen"):
            await rem.ask(text)
    for text in ("a\0b", "LOOKUP \0", "\ud800"):
        with pytest.raises(InvalidInputError, match=r"^The text (contains a NUL|is not valid Unicode)"):
            await rem.ask(text)

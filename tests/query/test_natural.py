"""Plain language becomes a query, without a language model."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from rem.app import Rem
from rem.db.store import Store
from rem.errors import InvalidInputError, QuerySyntaxError
from rem.memory.message import NewMessage
from rem.models import Edge, Message, Moment, Ontology, Resource, Role, Session, User
from rem.query import natural
from rem.query.language.printer import print_query
from rem.query.natural import MAX_READ_CHARS, read_question
from rem.query.syntax_tree import Fuzzy, Lookup, Query, Search
from rem.settings import EmbeddingSettings, Settings
from tests.cases import cases

NOW = datetime(2026, 11, 16, 9, 30, tzinfo=UTC)
"""A Monday."""
ALICE = "alice@example.com"


async def to_query(store: Store, text: str) -> Query:
    return await natural.to_query(store, text, NOW)


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
        "what did Sarah Chen decide about the index?",
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
        assert await to_query(alice, text) == Search(text.strip()[:MAX_READ_CHARS]), text[:50]


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
        started = time.process_time()
        assert await to_query(alice, quote * 100_000) == Search((quote * 100_000).strip()[:MAX_READ_CHARS])
        assert time.process_time() - started < 2, quote


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


PHRASES = {
    # Times: what was said at a time is searched in that time.
    "What did we decide yesterday?": 'SEARCH "What did we decide?" SINCE 2026-11-15 UNTIL 2026-11-16',
    "What did Marta say on Monday?": 'SEARCH "What did Marta say?" SINCE 2026-11-09 UNTIL 2026-11-10',
    "What did Marta promise two weeks ago?": 'SEARCH "What did Marta promise?" SINCE 2026-11-02 UNTIL 2026-11-09',
    "What did we discuss on 3 May about the roof?": (
        'SEARCH "What did we discuss about the roof?" SINCE 2026-05-03 UNTIL 2026-05-04'
    ),
    "what did I write about the roof since Friday?": 'SEARCH "what did I write about the roof?" SINCE 2026-11-13',
    "what did Tom tell me between 3 and 10 May?": 'SEARCH "what did Tom tell me?" SINCE 2026-05-03 UNTIL 2026-05-11',
    "show me what Marta said last week": 'SEARCH "what Marta said" SINCE 2026-11-09 UNTIL 2026-11-16',
    "messages about the roof from July": 'SEARCH "messages about the roof" SINCE 2026-07-01 UNTIL 2026-08-01',
    "Was hat Marta am Montag gesagt?": 'SEARCH "Was hat Marta gesagt?" SINCE 2026-11-09 UNTIL 2026-11-10',
    "Was haben wir letzte Woche beschlossen?": (
        'SEARCH "Was haben wir beschlossen?" SINCE 2026-11-09 UNTIL 2026-11-16'
    ),
    # Times without other words: a list.
    "what happened in July?": "what was stored from 2026-07-01 to 2026-07-31, oldest first",
    "What did I do last week?": "what was stored from 2026-11-09 to 2026-11-15, oldest first",
    "what did I store today?": "what was stored on 2026-11-16, oldest first",
    "what did we do this morning?": "what was stored from 2026-11-16 to 2026-11-16T12:00+00:00, oldest first",
    "what happened between 3 and 10 May?": "what was stored from 2026-05-03 to 2026-05-10, oldest first",
    "What's new since Friday?": "what was stored since 2026-11-13, oldest first",
    "yesterday": "what was stored on 2026-11-15, oldest first",
    "what do you remember from last week?": "what was stored from 2026-11-09 to 2026-11-15, oldest first",
    "Was passierte im Mai?": "what was stored from 2026-05-01 to 2026-05-31, oldest first",
    "Was ist im Juli passiert?": "what was stored from 2026-07-01 to 2026-07-31, oldest first",
    "Was habe ich gestern gemacht?": "what was stored on 2026-11-15, oldest first",
    # Counts
    "how many notes do I have?": "the number of your notes",
    "How many documents are there in my memory?": "the number of your notes",
    "how many messages did I write last week?": "the number of your messages from 2026-11-09 to 2026-11-15",
    "how many people do you know?": "the number of the people you know",
    "How many contacts do I have?": "the number of the people you know",
    "how many conversations did we have in July?": "the number of your sessions from 2026-07-01 to 2026-07-31",
    "how many files have I ingested today?": "the number of your files on 2026-11-16",
    "count my notes": "the number of your notes",
    "Wie viele Notizen habe ich?": "the number of your notes",
    "Wie viele Leute kennst du?": "the number of the people you know",
    # Lists
    "my latest notes": "your notes, newest first",
    "list my sessions": "your sessions, newest first",
    "show my last 5 messages": "your messages, newest first",
    "what was my last message?": "your messages, newest first",
    "What are my files?": "your files, newest first",
    "notes from March 2026": "your notes from 2026-03-01 to 2026-03-31, oldest first",
    "show my conversations from yesterday": "your sessions on 2026-11-15, oldest first",
    "who do I know?": "the people you know, newest first",
    "list all people you know": "the people you know, newest first",
    "Zeig mir meine letzten Notizen": "your notes, newest first",
    "Wen kennst du?": "the people you know, newest first",
    # Connections
    "how is Marta connected to the Aurora project?": 'TRAVERSE FROM "Marta" DIRECTION both DEPTH 3 LIMIT 500',
    "what is the connection between Marta and Aurora?": 'TRAVERSE FROM "Marta" DIRECTION both DEPTH 3 LIMIT 500',
    "who works with Marta?": 'TRAVERSE FROM "Marta" TYPE "works_with", "colleague_of" DIRECTION both LIMIT 25',
    "what is connected to the Aurora project?": 'TRAVERSE FROM "Aurora" DIRECTION both LIMIT 25',
    "who leads the Aurora project?": 'TRAVERSE FROM "Aurora" TYPE "leads", "heads" DIRECTION in LIMIT 25',
    "who reports to Marta?": 'TRAVERSE FROM "Marta" TYPE "reports_to" DIRECTION in LIMIT 25',
    "Who does Marta report to?": 'TRAVERSE FROM "Marta" TYPE "manages" DIRECTION in LIMIT 25',
    "Wie ist Marta mit Aurora verbunden?": 'TRAVERSE FROM "Marta" DIRECTION both DEPTH 3 LIMIT 500',
    # Names
    "who is Marta?": 'LOOKUP "Marta"',
    "Marta": 'LOOKUP "Marta"',
    "Wer ist Marta?": 'LOOKUP "Marta"',
    "tell me about the boat": 'LOOKUP "boat"',
    "martha kowalczik": 'FUZZY "martha kowalczik" THRESHOLD 0.65',
    # Facts: a search, although the words look like those above.
    "Where is the boat?": 'SEARCH "Where is the boat?"',
    "When was the boat sold?": 'SEARCH "When was the boat sold?"',
    "How old is Marta?": 'SEARCH "How old is Marta?"',
    "What did Marta say about the boat?": 'SEARCH "What did Marta say about the boat?"',
    "When did we move in March?": 'SEARCH "When did we move in March?"',
    "How long have we lived here since March?": 'SEARCH "How long have we lived here since March?"',
    "What is the last name of Marta?": 'SEARCH "What is the last name of Marta?"',
    "how many kids does Tom have?": 'SEARCH "how many kids does Tom have?"',
    "how many people came to the party?": 'SEARCH "how many people came to the party?"',
    "how many people were there?": 'SEARCH "how many people were there?"',
    "how many notes mention Tom?": 'SEARCH "how many notes mention Tom?"',
    "Who comes on Friday?": 'SEARCH "Who comes on Friday?"',
    "What do I have on Friday?": 'SEARCH "What do I have on Friday?"',
    "What was planned for Friday?": 'SEARCH "What was planned for Friday?"',
    "What should I say on Monday?": 'SEARCH "What should I say on Monday?"',
    "Where did I park yesterday?": 'SEARCH "Where did I park yesterday?"',
    "what happened at the party in July?": 'SEARCH "what happened at the party in July?"',
    "show me the notes about the boat": 'SEARCH "notes about the boat"',
    "What did my last message say?": 'SEARCH "What did my last message say?"',
    "who reports to Tom?": 'SEARCH "who reports to Tom?"',
    "how is Tom connected to Aurora?": 'SEARCH "how is Tom connected to Aurora?"',
    "What happened?": 'SEARCH "What happened?"',
    "notes": 'SEARCH "notes"',
    # Sessions and moments have no names of things.
    "harbour": 'SEARCH "harbour"',
    "Where is the harbour?": 'SEARCH "Where is the harbour?"',
    "What is Yusuf allergic to?": 'SEARCH "What is Yusuf allergic to?"',
    "tell me about Yusuf allergic": 'SEARCH "Yusuf allergic"',
}


@pytest.fixture
async def people(alice: Store) -> Store:
    """Store the names that the phrases contain."""
    await alice.upsert(User(name="Martha Kowalczyk", summary="An engineer."))
    await alice.upsert(Ontology(name="Marta", content="A colleague."))
    await alice.upsert(Ontology(name="Aurora"))
    await alice.upsert(Resource(name="boat", content="The boat lies in Svendborg."))
    await alice.upsert(Session(name="harbour"))
    await alice.upsert(Moment(name="What is Yusuf allergic to", summary="What is Yusuf allergic to?"))
    return alice


@cases(("text", "expected"), PHRASES.items())
async def test_phrase_becomes_the_expected_query(people: Store, text: str, expected: str) -> None:
    reading = await read_question(people, text, NOW)
    assert (reading.meaning or print_query(reading.query)) == expected


def test_table_of_phrases_is_long_enough() -> None:
    assert len(PHRASES) >= 75


async def test_session_and_moment_do_not_hide_facts(rem: Rem) -> None:
    alice = rem.store(ALICE)
    await alice.upsert(Session(name="boat"))
    await alice.upsert(Moment(name="Boat", summary="Where is the boat?"))
    await alice.upsert(Resource(name="Mooring", content="The boat lies in Svendborg."))
    for text in ("Where is the boat?", "boat", "what is the boat?", "tell me about the boat"):
        result = await rem.ask(text, user=ALICE)
        assert result.query_type == "SEARCH", text
        assert "mooring" in [row["key"] for row in result.results], text
        assert "sessions" not in [row["table"] for row in result.results], text
    # A key with its table says what is meant.
    (row,) = (await rem.ask("sessions/boat", user=ALICE)).results
    assert row["table"] == "sessions"


async def test_named_thing_is_among_the_first_rows_of_a_question_about_it(rem: Rem) -> None:
    alice = rem.store(ALICE)
    await alice.upsert(Resource(name="Skibby", content="A sailing dinghy, built 1987."))
    for number in range(5):
        await alice.upsert(
            Resource(name=f"Trip {number}", content=f"Where is Skibby? We lay {number} days in a harbour.")
        )
    result = await rem.ask("Where is Skibby?", user=ALICE)
    keys = [row["key"] for row in result.results]
    assert keys.index("skibby") <= 2
    assert len(keys) == len(set(keys)) == 6


async def test_statement_explains_a_person_without_a_text(rem: Rem) -> None:
    alice = rem.store(ALICE)
    await alice.upsert(Ontology(name="Ewa", content="Ewa: named three times.", origin="dream:entities"))
    await alice.upsert(Resource(name="Vet", content="Ewa is the vet who treats our dog."))
    derived = await rem.ask("Who is Ewa?", user=ALICE)
    assert [row["key"] for row in derived.results] == ["vet", "ewa"]
    assert derived.notes[:2] == ('Understood as: LOOKUP "Ewa"', 'Then: SEARCH "Who is Ewa?"')
    await alice.upsert(Ontology(name="Tom", content="My brother."))
    await alice.upsert(Resource(name="Call", content="Tom called about the roof."))
    written = await rem.ask("Who is Tom?", user=ALICE)
    assert [row["key"] for row in written.results][:2] == ["tom", "call"]


async def test_facts_that_dreams_collected_answer_a_question_for_everything(rem: Rem) -> None:
    alice = rem.store(ALICE)
    told = ("My sister Clara moved to Lyon in March.", "Clara likes peonies.", "Clara broke her arm.")
    await rem.memory(ALICE).append(
        uuid4(), [NewMessage(role=Role.USER, content=text) for text in told], create_session=True
    )
    facts = "\n".join(f"2026-11-17: {text}" for text in told[:2])
    await alice.upsert(Ontology(name="Clara", content=facts, origin="dream:entities"))
    for question in ("What do you know about Clara?", "What should I know about my sister?", "Tell me about Clara"):
        rows = (await rem.ask(question, user=ALICE)).results
        assert rows[0]["key"] == "clara", question
        assert [row["record"]["content"] for row in rows[1:]] == [told[2]], question
    rows = (await rem.ask("Who is Clara?", user=ALICE)).results
    assert rows[0]["record"]["content"] == told[0]


async def test_people_at_a_place_are_found_by_their_edges(rem: Rem) -> None:
    alice = rem.store(ALICE)
    await alice.upsert(Ontology(name="Sanofi", content="A drug company."))
    await alice.upsert(User(name="Clara", summary="A chemist.", graph_edges=[Edge(dst="sanofi", rel_type="works_at")]))
    result = await rem.ask("Who do I know at Sanofi?", user=ALICE)
    assert (result.query_type, result.results[0]["key"]) == ("TRAVERSE", "clara")


async def _store_week(rem: Rem) -> Store:
    """Store messages, a file with two chunks, a note, people and a moment at known times."""
    alice = rem.store(ALICE)
    session = await alice.upsert(Session(name="Chat", message_count=3))
    for index, (day, kind, text) in enumerate(
        (
            (10, "statement", "Marta says the roof leaks."),
            (11, "question", "What did Marta say?"),
            (16, "statement", "We sold the boat."),
        )
    ):
        await alice.upsert(
            Message(
                session_id=session.id,
                message_index=index,
                role="user",
                kind=kind,
                content=text,
                created_at=datetime(2026, 11, day, 8, tzinfo=UTC),
            )
        )
    at = datetime(2026, 11, 12, tzinfo=UTC)
    for part in (1, 2):
        await alice.upsert(
            Resource(
                name=f"roof.md#{part}",
                uri="file:///roof.md",
                ordinal=part,
                content=f"Part {part}",
                timestamp=at,
                metadata={"file": "roof.md", "file_id": "f"},
            )
        )
    await alice.upsert(Resource(name="Paint", content="Blue.", timestamp=datetime(2026, 7, 3, tzinfo=UTC)))
    await alice.upsert(User(name="Marta", summary="A roofer."))
    await alice.upsert(User(name="Alice", summary="Her own profile.", origin="dream:profiles"))
    await alice.upsert(Moment(name="Read roof.md", summary="Part 1", starts_timestamp=at, origin="dream:moments"))
    await alice.upsert(Moment(name="Regatta", summary="We raced.", starts_timestamp=datetime(2026, 7, 4, tzinfo=UTC)))
    await rem.store().upsert(Resource(name="Handbook", content="Rules.", timestamp=datetime(2026, 1, 1, tzinfo=UTC)))
    return alice


async def test_counts_are_of_things_not_of_rows(rem: Rem) -> None:
    await _store_week(rem)
    for text, row in {
        "how many notes do I have?": {"notes": 2, "shared_notes": 1},
        "how many notes do I have from last week?": {"notes": 1, "shared_notes": 0},
        "how many messages did I write last week?": {"messages": 2},
        "how many sessions do I have?": {"sessions": 1},
        "how many people do you know?": {"people": 1, "shared_people": 0},
        "how many files do I have?": {"files": 0, "shared_files": 0},
    }.items():
        result = await rem.ask(text, user=ALICE, now=NOW)
        assert (result.query_type, result.results) == ("SQL", [row]), text
        assert result.notes[0].startswith("Understood as: the number of "), text
    assert (await rem.ask("how many notes do I have?", user="bob@example.com")).results == [
        {"notes": 0, "shared_notes": 1}
    ]
    assert (await rem.ask("how many notes are there?")).results == [{"notes": 1}]


async def test_lists_have_a_text_a_date_and_a_key(rem: Rem) -> None:
    await _store_week(rem)
    for text, contents in {
        "my latest notes": ["Part 1", "Blue.", "Rules."],
        "my last note": ["Part 1"],
        "show my last 2 messages": ["We sold the boat.", "What did Marta say?"],
        "list my sessions": ["Chat: Marta says the roof leaks. (3 messages)"],
        "who do I know?": ["Marta: A roofer."],
        # Questions are not among what happened.
        "what did I do last week?": ["Marta says the roof leaks.", "Part 1"],
        "what happened in July?": ["Blue.", "We raced."],
        "what did I store today?": ["We sold the boat."],
    }.items():
        result = await rem.ask(text, user=ALICE, now=NOW)
        assert result.query_type == "SQL", text
        assert [row["content"] for row in result.results] == contents, text
        assert all(row["table"] and row["key"] and row["happened_at"].startswith("2026-") for row in result.results)
        assert all(len(row["happened_at"]) == len("2026-11-16T08:00:00+00:00") for row in result.results)
    (first, *_) = (await rem.ask("my latest notes", user=ALICE, now=NOW)).results
    assert (first["table"], first["key"]) == ("files", "roof.md")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("---\ntitle: Ms. Kuipers\ntags: [flat]\n---\n\nShe owns it.", "Ms. Kuipers: She owns it."),
        ("---\r\ntags: [flat]\r\n---\r\n# Rent\r\n\r\nPaid.\r\n", "# Rent\n\nPaid."),
        ("---\ntitle: Rent\n---\n# Rent\n\nPaid.\n\n---\n\nLate.", "# Rent\n\nPaid.\n\n---\n\nLate."),
        ("--- no front matter\n\nText.", "--- no front matter\n\nText."),
    ],
)
async def test_list_shows_the_title_of_a_note_instead_of_its_front_matter(
    rem: Rem, tmp_path: Path, text: str, shown: str
) -> None:
    (tmp_path / "a.md").write_bytes(text.encode())
    await rem.ingest(tmp_path, user=ALICE)
    result = await rem.ask("my latest notes", user=ALICE)
    assert [row["content"].replace("\r", "") for row in result.results] == [shown]


@pytest.mark.parametrize("text", ["Who am I?", "What do you know about me?", "show my profile", "tell me about myself"])
async def test_question_about_the_author_shows_the_profile_and_own_statements(rem: Rem, text: str) -> None:
    alice = await _store_week(rem)
    session = await alice.upsert(Session(name="Own chat"))
    for index, content in enumerate(("I live in Porto.", "The roof is red.", "Where do I live?", "My son is seven.")):
        at = datetime(2026, 11, 13, 9, index, tzinfo=UTC)
        kind = "question" if content.endswith("?") else "statement"
        await alice.upsert(
            Message(session_id=session.id, message_index=index, role="user", kind=kind, content=content, created_at=at)
        )
    result = await rem.ask(text, user=ALICE, now=NOW)
    assert [row["content"] for row in result.results] == [
        "Alice: Her own profile.",
        "My son is seven.",
        "I live in Porto.",
    ]
    assert result.notes[0].startswith("Understood as: your profile, and what you said about yourself")
    assert (await rem.ask(text, user="bob@example.com", now=NOW)).results == []


async def test_statements_in_lower_case_say_who_the_author_is(rem: Rem) -> None:
    alice = await _store_week(rem)
    session = await alice.upsert(Session(name="Own chat"))
    told = ["im a nurse", "i love climbing", "i cant eat peanuts", "my dog is called biscuit", "i've got two sisters"]
    for index, content in enumerate((*told, "the roof is red", "i parked at the gate")):
        at = datetime(2026, 11, 13, 9, index, tzinfo=UTC)
        await alice.upsert(
            Message(session_id=session.id, message_index=index, role="user", content=content, created_at=at)
        )
    result = await rem.ask("what do you know about me", user=ALICE, now=NOW)
    assert [row["content"] for row in result.results] == ["Alice: Her own profile.", *reversed(told)]


async def test_time_without_rows_is_said_to_be_empty(rem: Rem) -> None:
    await _store_week(rem)
    for text, note in {
        "what did I do in March 2019?": "There is nothing in what was stored from 2019-03-01 to 2019-03-31.",
        "my notes from last year": "There is nothing in your notes from 2025-01-01 to 2025-12-31.",
    }.items():
        result = await rem.ask(text, user=ALICE, now=NOW)
        assert result.results == []
        assert result.notes[-1] == note


async def test_list_of_messages_leaves_out_the_question_itself(rem: Rem) -> None:
    """A chat stores the question before it is answered."""
    alice = await _store_week(rem)
    session = await alice.upsert(Session(name="Second chat"))
    for index, text in enumerate(("The crane is late.", "Show my last 2 messages")):
        at = datetime(2026, 11, 16, 9, index, tzinfo=UTC)
        await alice.upsert(
            Message(session_id=session.id, message_index=index, role="user", content=text, created_at=at)
        )
    result = await rem.ask("Show my last 2 messages", user=ALICE, now=NOW)
    assert [row["content"] for row in result.results] == ["The crane is late.", "We sold the boat."]


async def test_time_without_rows_is_searched_without_it(rem: Rem) -> None:
    await _store_week(rem)
    said = await rem.ask("What did Marta say on Tuesday?", user=ALICE, now=NOW)
    assert said.results[0]["record"]["content"] == "Marta says the roof leaks."
    assert said.notes[0] == 'Understood as: SEARCH "What did Marta say?" SINCE 2026-11-10 UNTIL 2026-11-11'
    never = await rem.ask("What did Marta say about the roof in May?", user=ALICE, now=NOW)
    assert never.results[0]["record"]["content"] == "Marta says the roof leaks."
    assert never.notes[:2] == (
        'Understood as: SEARCH "What did Marta say about the roof in May?"',
        'There is nothing for: SEARCH "What did Marta say about the roof?" SINCE 2026-05-01 UNTIL 2026-06-01',
    )
    empty = await rem.ask("what happened in February?", user=ALICE, now=NOW)
    assert (empty.results, empty.notes[-1]) == (
        [],
        "There is nothing in what was stored from 2026-02-01 to 2026-02-28.",
    )


async def test_row_of_the_asked_time_comes_first_among_equals(rem: Rem) -> None:
    alice = rem.store(ALICE)
    for day in (12, 13, 14, 15):
        at = datetime(2026, 11, day, tzinfo=UTC)
        await alice.upsert(Resource(name=f"Parking {day}", content=f"I parked the car at place {day}.", timestamp=at))
    result = await rem.ask("Where did I park the car yesterday?", user=ALICE, now=NOW)
    assert result.results[0]["key"] == "parking-15"
    assert len(result.results) == 4


async def test_connection_shows_the_path(rem: Rem) -> None:
    alice = rem.store(ALICE)
    await alice.upsert(Ontology(name="Aurora", content="A research project."))
    await alice.upsert(Ontology(name="Ewa", graph_edges=[Edge(dst="aurora", rel_type="works_on")]))
    await alice.upsert(Ontology(name="Tom", graph_edges=[Edge(dst="marta", rel_type="reports_to")]))
    await alice.upsert(
        Ontology(
            name="Marta", graph_edges=[Edge(dst="ewa", rel_type="works_with"), Edge(dst="tom", rel_type="manages")]
        )
    )
    linked = await rem.ask("how is Marta connected to the Aurora project?", user=ALICE)
    assert [row["key"] for row in linked.results[:2]] == ["ewa", "aurora"]
    assert linked.results[1]["path"] == ["marta", "ewa", "aurora"]
    for text, key in {
        "who works with Marta?": "ewa",
        "Who reports to Marta?": "tom",
        "Who works on Aurora?": "ewa",
    }.items():
        result = await rem.ask(text, user=ALICE)
        assert (result.query_type, result.results[0]["key"]) == ("TRAVERSE", key), text
    unknown = await rem.ask("who works with Ewa on Aurora?", user=ALICE)
    assert unknown.query_type == "SEARCH"
    missing = await rem.ask("Who reports to Aurora?", user=ALICE)
    assert missing.query_type == "SEARCH"


async def test_query_with_the_prefix_rem_runs(rem: Rem) -> None:
    await rem.store().upsert(User(name="Sarah Chen"))
    for text in ("REM LOOKUP sarah-chen", "rem lookup 'sarah-chen'", "REM SELECT key FROM users"):
        result = await rem.ask(text)
        assert [row["key"] for row in result.results] == ["sarah-chen"], text


async def test_misspelt_clause_in_a_query_is_noted(rem: Rem) -> None:
    result = await rem.ask("SEARCH roof LIMT 3")
    assert result.notes[:2] == ('Understood as: SEARCH "roof LIMT 3"', "Did you mean: SEARCH roof LIMIT 3")


async def test_question_of_another_type_is_an_error(rem: Rem) -> None:
    with pytest.raises(InvalidInputError, match="A question is a text, not NoneType"):
        await rem.ask(None)  # type: ignore[arg-type]

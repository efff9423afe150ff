"""The search tools return the right rows, and only rows of the caller."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest

from rem import Rem
from rem.db.store import Store
from rem.errors import InvalidInputError, MemoryDisabledError, QuerySyntaxError
from rem.ingest.models import FetchedFile
from rem.models import Edge, Message, Resource, Role, Session, User
from rem.tools.search import fuzzy, lookup, search, search_rem, traverse
from tests.tools.tool_env import env_for

ALICE, BOB = "alice@example.com", "bob@example.com"


@pytest.fixture
async def sarah(alice: Store) -> User:
    """Somebody whom Alice knows, and whom she manages."""
    await alice.upsert(User(name="Mike Ross", role="engineer"))
    await alice.upsert(Resource(name="Launch plan", content="We launch the analytical engine in May."))
    return await alice.upsert(
        User(name="Sarah Chen", role="head of data", graph_edges=[Edge(dst="mike-ross", rel_type="manages")])
    )


def keys(answer: dict[str, object]) -> list[str]:
    results = answer["results"]
    assert isinstance(results, list)
    return [row["key"] for row in results]


@pytest.mark.usefixtures("sarah")
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ('LOOKUP "Sarah Chen"', ["sarah-chen"]),
        ('FUZZY "sara"', ["sarah-chen"]),
        ('SEARCH "when is the launch" FROM resources', ["launch-plan"]),
        ('TRAVERSE FROM "sarah-chen" TYPE manages', ["mike-ross"]),
        ("SELECT key FROM users ORDER BY key", ["mike-ross", "sarah-chen"]),
    ],
)
async def test_every_verb_finds_only_rows_of_the_caller(rem: Rem, query: str, expected: list[str]) -> None:
    answer = await search_rem(env_for(rem, ALICE), query)
    assert (keys(answer), answer["count"], answer["status"]) == (expected, len(expected), "success")
    for other in (BOB, None):
        assert keys(await search_rem(env_for(rem, other), query)) == []


@pytest.mark.usefixtures("sarah")
async def test_plain_language_search_looks_up_a_name_and_else_has_the_answer_as_a_note(rem: Rem) -> None:
    named = await search_rem(env_for(rem, ALICE), "who is Sarah Chen?", mode="natural-language")
    assert (named["query_type"], keys(named)[0]) == ("LOOKUP", "sarah-chen")
    asked = await search_rem(env_for(rem, ALICE), "what is the engineer called?", mode="natural-language")
    assert asked["notes"][0]["code"] == "answer"


@pytest.mark.usefixtures("sarah")
@pytest.mark.parametrize("query", ["who is Sarah Chen?", 'LOOKUP "sarah-chen"'])
async def test_search_takes_plain_words_and_queries(rem: Rem, query: str) -> None:
    assert keys(await search(env_for(rem, ALICE), query))[0] == "sarah-chen"
    assert keys(await search(env_for(rem, BOB), query)) == []


@pytest.mark.usefixtures("sarah")
async def test_lookup_fuzzy_and_traverse_match_their_verbs(rem: Rem) -> None:
    env = env_for(rem, ALICE)
    assert keys(await lookup(env, "Sarah Chen")) == ["sarah-chen"]
    assert keys(await fuzzy(env, "sara chenn")) == ["sarah-chen"]
    assert keys(await traverse(env, "sarah-chen", type="manages, mentors", depth=2)) == ["mike-ross"]
    assert keys(await traverse(env, "Mike Ross")) == ["sarah-chen"]
    assert keys(await traverse(env, "sarah-chen", type="mentors")) == []
    plan = await traverse(env, "sarah-chen", depth=0)
    assert "manages" in json.dumps(plan["results"])


async def test_lookup_of_a_note_returns_its_text_and_how_to_read_on(rem: Rem) -> None:
    text = "# Marta Kowalczyk\n\nAn architect.\n\n" + "She draws boats. " * 3000
    await rem.for_user(ALICE).ingester().ingest(FetchedFile("notes/marta.md", "file:///notes/marta.md", text.encode()))
    (row,) = (await lookup(env_for(rem, ALICE), "Marta Kowalczyk"))["results"]
    content = row["text"]
    assert content.startswith("# Marta Kowalczyk\n\nAn architect.")
    offset = int(content.rsplit("offset=", 1)[1].split(")")[0])
    (rest,) = (await lookup(env_for(rem, ALICE), "notes/marta.md", offset=offset))["results"]
    assert rest["text"].startswith(text[offset : offset + 100])
    assert keys(await lookup(env_for(rem, BOB), "Marta Kowalczyk")) == []


async def test_limit_applies_to_every_mode(rem: Rem, alice: Store) -> None:
    await alice.upsert_many(
        [Resource(name=f"note {number}", content=f"The same words, {number}.") for number in range(15)]
    )
    env = env_for(rem, ALICE)
    for query, mode in (
        ('SEARCH "same words"', "rem-dialect"),
        ("SELECT key FROM resources", "rem-dialect"),
        ("the same words", "natural-language"),
    ):
        assert (await search_rem(env, query, mode=mode, limit=3))["count"] == 3, query  # type: ignore[arg-type]
    assert (await search_rem(env, 'SEARCH "same words"', limit=14))["count"] == 14
    cut = await search_rem(env, "SELECT key FROM resources", limit=3)
    assert [note["code"] for note in cut["notes"]] == ["rows_cut"]


@pytest.mark.parametrize("text", ["", " \n", "\0", "\ud800"])
async def test_empty_arguments_are_rejected(rem: Rem, text: str) -> None:
    env = env_for(rem, ALICE)
    for tool in (lookup, fuzzy, traverse):
        with pytest.raises(InvalidInputError):
            await tool(env, text)
    for mode in ("rem-dialect", "natural-language"):
        with pytest.raises(InvalidInputError):
            await search_rem(env, text, mode=mode)


async def test_syntax_error_names_position_and_correction(rem: Rem) -> None:
    with pytest.raises(QuerySyntaxError, match="Did you mean"):
        await search_rem(env_for(rem, ALICE), 'LOKUP "sarah"')
    with pytest.raises(InvalidInputError, match="There is no table"):
        await search_rem(env_for(rem, ALICE), "SEARCH x FROM resorces", limit=3)


async def test_huge_and_non_ascii_texts_are_accepted(rem: Rem, alice: Store) -> None:
    await alice.upsert(Resource(name="日本の計画 🎌", content="東京で会議"))
    env = env_for(rem, ALICE)
    assert keys(await lookup(env, "日本の計画 🎌")) == keys(await fuzzy(env, "日本の計画")) != []
    assert keys(await lookup(env, "x" * 1_000_000)) == []
    assert (await search_rem(env, "word " * 20_000, mode="natural-language"))["status"] == "success"


async def test_long_text_can_be_read_in_parts(rem: Rem, alice: Store) -> None:
    text = "".join(f"{number}: größer ✓\n" for number in range(6000))
    await alice.upsert(Resource(name="Long", content=text))
    read, offset = "", 0
    while True:
        (row,) = (await lookup(env_for(rem, ALICE), "long", offset=offset))["results"]
        piece, mark, _note = row["text"].partition("… [cut:")
        read += piece
        offset += len(piece)
        if not mark:
            break
    assert read == text


async def test_key_in_a_shortened_message_returns_its_full_text(rem: Rem, alice: Store) -> None:
    session = await alice.upsert(Session(id=uuid4()))
    content = "  An answer with spaces \n\n" + "and much more, " * 700 + "\n end  "
    await alice.upsert(Message(session_id=session.id, message_index=4, role=Role.ASSISTANT, content=content))
    key = f"session-{session.id}-msg-4"
    for answer in (
        await lookup(env_for(rem, ALICE), key),
        await search_rem(env_for(rem, ALICE), f"LOOKUP {key}"),
    ):
        assert answer["results"][0]["text"] == content
    assert keys(await lookup(env_for(rem, BOB), key)) == []


async def test_search_reports_a_missing_database() -> None:
    env = env_for(None, ALICE)
    for call in (search_rem(env, "LOOKUP x"), lookup(env, "x"), fuzzy(env, "x"), traverse(env, "x")):
        with pytest.raises(MemoryDisabledError, match="POSTGRES__ENABLED"):
            await call


@pytest.mark.usefixtures("sarah")
async def test_misspelt_clause_is_noted(rem: Rem) -> None:
    answer = await search_rem(env_for(rem, ALICE), "SEARCH launch LIMT 3")
    assert answer["notes"] == [{"code": "misspelt", "text": "Did you mean: SEARCH launch LIMIT 3"}]


@pytest.mark.usefixtures("sarah")
async def test_search_takes_a_time_range(rem: Rem) -> None:
    env = env_for(rem, ALICE)
    assert keys(await search_rem(env, "SEARCH launch SINCE yesterday")) == ["launch-plan"]
    assert keys(await search_rem(env, "SEARCH launch UNTIL yesterday")) == []

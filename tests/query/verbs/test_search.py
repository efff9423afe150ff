"""SEARCH finds and ranks entities by meaning and words, and reports limits in notes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rem import Entity, Message, Moment, Rem, Resource, Session, User
from rem.db.store import Store
from rem.errors import EmbeddingDisabledError, InvalidInputError, SettingsError
from rem.models.results import Note, Result
from rem.query.tree import Search
from rem.query.verbs.search import MAX_INDEXED_ROWS, WAITING_NOTE
from rem.settings import RerankerSettings, SearchSettings, Settings
from tests.cases import cases
from tests.search.tiny_cross_encoder import write_model

ALICE = "alice@example.com"
BOB = "bob@example.com"


def _keys(result: Result) -> list[str]:
    return [row["key"] for row in result.list_rows()]


async def _store_messages(store: Store, name: str, *texts: str) -> Session:
    session = await store.upsert(Session(name=name))
    await store.upsert_many(
        Message(
            session_id=session.id, message_index=index, role="user" if index % 2 == 0 else "assistant", content=text
        )
        for index, text in enumerate(texts)
    )
    return session


async def test_search_finds_meaning_without_common_words(rem: Rem, alice: Store) -> None:
    await alice.upsert(Resource(name="Pets", content="My puppy loves to chase squirrels in the park."))
    await alice.upsert(Resource(name="Money", content="The quarterly invoice was paid late by the customer."))
    result = await rem.for_user(ALICE).query('SEARCH "dog" LIMIT 1')
    assert _keys(result) == ["pets"]
    assert result.verb == "SEARCH"
    assert result.list_rows()[0]["table"] == "resources"
    assert result.list_rows()[0]["record"]["name"] == "Pets"
    assert result.notes == ()


async def test_search_finds_rare_word_without_meaning(rem: Rem, alice: Store) -> None:
    await alice.upsert_many(Resource(name=f"Log {n}", content=f"Error {4700 + n} in the reactor") for n in range(30))
    assert _keys(await rem.for_user(ALICE).query('SEARCH "error 4711" LIMIT 1')) == ["log-11"]
    assert _keys(await rem.for_user(ALICE).query('SEARCH "4711" MODE text')) == ["log-11"]


async def test_search_finds_users_by_role_interests_and_topics(rem: Rem, alice: Store) -> None:
    people = [
        User(name="Ada Novak", role="glazier", interests=["bee keeping", "chess"]),
        User(name="Bo Lund", summary="Sails on Sundays.", preferred_topics=["harbour fees"]),
    ]
    await alice.upsert_many(people)
    for text, key in (("glazier", "ada-novak"), ("bee keeping", "ada-novak"), ("harbour fees", "bo-lund")):
        result = await rem.for_user(ALICE).query(f'SEARCH "{text}" FROM users MODE text')
        assert _keys(result)[:1] == [key], text
        assert text in result.list_rows()[0]["passage"]["text"]


async def test_search_finds_name_that_content_does_not_mention(rem: Rem, alice: Store) -> None:
    await alice.upsert(Resource(name="Getting Started Guide", content=""))
    assert _keys(await rem.for_user(ALICE).query('SEARCH "getting started" MODE text')) == ["getting-started-guide"]


async def test_search_never_returns_other_users_rows(rem: Rem, alice: Store, bob: Store, shared: Store) -> None:
    for store, name in ((alice, "Alice's"), (bob, "Bob's"), (shared, "Ours")):
        await store.upsert(Resource(name=name, content="The secret recipe of the house"))
    await rem.for_user(ALICE, tenant="other").store.upsert(Resource(name="Elsewhere", content="The secret recipe"))
    for mode in ("hybrid", "vector", "text"):
        query = f'SEARCH "secret recipe" MODE {mode}'
        assert set(_keys(await rem.for_user(ALICE).query(query))) == {"alice's", "ours"}
        assert set(_keys(await rem.for_user(BOB).query(query))) == {"bob's", "ours"}
        assert _keys(await rem.for_user().query(query)) == ["ours"]
        assert _keys(await rem.for_user(ALICE, tenant="other").query(query)) == ["elsewhere"]
        assert _keys(await rem.for_user(tenant="other").query(query)) == []


async def test_deleted_and_expired_rows_are_not_found(rem: Rem, alice: Store) -> None:
    gone = await alice.upsert(Resource(name="Gone", content="secret recipe"))
    await alice.upsert(
        Resource(name="Lapsed", content="secret recipe", expires_at=datetime.now(UTC) - timedelta(seconds=1))
    )
    await alice.upsert(Resource(name="Kept", content="secret recipe"))
    await rem.index()
    await alice.delete(gone)
    assert _keys(await rem.for_user(ALICE).query('SEARCH "secret recipe"')) == ["kept"]


async def test_new_row_is_found_at_once(rem: Rem, alice: Store) -> None:
    tea = await alice.upsert(Resource(name="Tea", content="Sencha"))
    assert _keys(await rem.for_user(ALICE).query('SEARCH "sencha"')) == ["tea"]
    await alice.modify(Resource, tea.id, lambda row: row.model_copy(update={"content": "Coffee"}))
    assert _keys(await rem.for_user(ALICE).query('SEARCH "sencha" MODE text')) == []
    assert _keys(await rem.for_user(ALICE).query('SEARCH "coffee" MODE text')) == ["tea"]


async def test_newest_rows_are_found_before_a_long_queue_is_indexed(rem_without_embedder: Rem) -> None:
    alice = rem_without_embedder.for_user(ALICE).store
    for number in range(6 * MAX_INDEXED_ROWS // 100):
        await alice.upsert_many(Resource(name=f"Log {number} {n}", content="The boat is here.") for n in range(100))
    await alice.upsert(Resource(name="Code word", content="The code word of the boat is heliotrope."))
    result = await rem_without_embedder.for_user(ALICE).query('SEARCH "code word boat" LIMIT 1')
    assert _keys(result) == ["code-word"]
    assert result.notes[-1] == WAITING_NOTE
    answer = await rem_without_embedder.for_user(ALICE).ask("What is the code word of the boat?")
    assert answer.hits[0].key == "code-word"
    assert WAITING_NOTE in answer.notes


async def test_hit_shows_its_best_passage(rem: Rem, alice: Store) -> None:
    filler = "Nothing of interest happens in this paragraph, which only takes up room. " * 20
    await alice.upsert(Resource(name="Long", content=f"{filler}\n\nThe archive's password is tangerine.\n\n{filler}"))
    hit = (await rem.for_user(ALICE).query('SEARCH "password of the archive"')).list_rows()[0]
    assert "tangerine" in hit["record"]["content"][hit["passage"]["start"] : hit["passage"]["end"]]
    assert hit["passage"]["field"] == "content"


@pytest.mark.parametrize("mode", ["text", "hybrid"])
async def test_long_message_shows_the_part_with_the_words(rem: Rem, alice: Store, mode: str) -> None:
    sentences = [f"The car of Person{n} is kept in the black shed number {n}, and its key is here." for n in range(60)]
    await _store_messages(alice, "cars", " ".join(sentences))
    for number in (3, 31, 58):
        result = await rem.for_user(ALICE).query(f'SEARCH "car of Person{number}" MODE {mode} LIMIT 1')
        passage = result.list_rows()[0]["passage"]
        assert sentences[number] in passage["text"]
        assert passage["text"] == result.list_rows()[0]["record"]["content"][passage["start"] : passage["end"]]


async def test_entity_with_several_passages_is_returned_once(rem: Rem, alice: Store) -> None:
    await alice.upsert(Resource(name="Long", content="The secret recipe of the house. " * 200))
    assert _keys(await rem.for_user(ALICE).query('SEARCH "secret recipe"')) == ["long"]


async def test_where_filters_before_limit(rem: Rem, alice: Store) -> None:
    await alice.upsert_many(
        Resource(
            name=f"Note {n}",
            content="The secret recipe",
            category="even" if n % 2 == 0 else "odd",
            metadata={"page": n},
            tags=["last"] if n == 39 else [],
        )
        for n in range(40)
    )
    query = 'SEARCH "secret recipe" FROM resources WHERE {} LIMIT 50'
    assert len(_keys(await rem.for_user(ALICE).query(query.format("category = 'even'")))) == 20
    assert _keys(await rem.for_user(ALICE).query(query.format("metadata.page > 38"))) == ["note-39"]
    assert _keys(await rem.for_user(ALICE).query(query.format("tags CONTAINS 'last'"))) == ["note-39"]
    assert _keys(await rem.for_user(ALICE).query(query.format("created_at > '2100-01-01'"))) == []
    assert _keys(await rem.for_user(ALICE).query(query.format("name = 'x'' OR true --'"))) == []
    for condition in (
        "metadata.page IN (3, 4)",
        "metadata.page BETWEEN 3 AND 4",
        "name LIKE 'Note _' AND NOT category = 'x'",
    ):
        assert (await rem.for_user(ALICE).query(query.format(condition))).count > 0


async def test_where_without_table_searches_tables_with_its_fields(rem: Rem, alice: Store) -> None:
    await alice.upsert(Resource(name="Recipe", content="The secret recipe", category="kitchen"))
    await alice.upsert(Moment(name="Dinner", summary="The secret recipe was cooked", category="kitchen"))
    await _store_messages(alice, "Talk", "What is the secret recipe?")
    result = await rem.for_user(ALICE).query("SEARCH \"secret recipe\" WHERE category = 'kitchen'")
    assert set(_keys(result)) == {"recipe", "dinner"}
    with pytest.raises(InvalidInputError, match="colour"):
        await rem.for_user(ALICE).query("SEARCH \"secret recipe\" WHERE colour = 'red'")


async def test_table_or_field_without_search_is_an_error(rem: Rem) -> None:
    with pytest.raises(InvalidInputError, match="Did you mean 'resources'"):
        await rem.for_user().query('SEARCH "x" FROM resource')
    with pytest.raises(InvalidInputError, match="files has no text"):
        await rem.for_user().query('SEARCH "x" FROM files')
    with pytest.raises(InvalidInputError, match="The text of resources is in content, not in 'name'"):
        await rem.for_user().query('SEARCH "x" FROM resources FIELD name')
    with pytest.raises(InvalidInputError, match="needs a text"):
        await rem.for_user().query('SEARCH "   "')


async def test_session_is_found_by_its_messages(rem: Rem, alice: Store) -> None:
    await _store_messages(
        alice, "Kitchen", "How do I brew sencha?", "With water of eighty degrees.", "And matcha?", "Whisk it."
    )
    await _store_messages(
        alice, "Garage", "My car makes a noise.", "Have the brakes checked.", "Where?", "At a workshop."
    )
    await alice.upsert(Session(name="Silent", description="nothing"))
    result = await rem.for_user(ALICE).query('SEARCH "green tea" FROM sessions LIMIT 1')
    assert [(row["table"], row["key"]) for row in result.list_rows()] == [("sessions", "kitchen")]
    result = await rem.for_user(ALICE).query("SEARCH \"brakes\" FROM sessions WHERE name = 'Garage'")
    assert _keys(result) == ["garage"]
    assert (
        _keys(await rem.for_user(ALICE).query("SEARCH \"brakes\" FROM sessions WHERE name = 'Kitchen' MODE text")) == []
    )


async def test_message_is_found_by_the_messages_before_it(rem: Rem, alice: Store) -> None:
    await _store_messages(alice, "Elsewhere", "It rained.", "Indeed.", "And then?", "The sun came.", "Good.")
    session = await _store_messages(alice, "Talk", "What is the capital of Mongolia?", "Ulaanbaatar.")
    result = await rem.for_user(ALICE).query('SEARCH "capital of Mongolia" FROM messages MODE text')
    assert set(_keys(result)) == {f"session-{session.id}-msg-0", f"session-{session.id}-msg-1"}


async def test_similar_passages_are_ranked_by_their_words(rem: Rem, alice: Store) -> None:
    await alice.upsert_many(Resource(name=f"Walk {n}", content="Went for a walk.") for n in range(20))
    await alice.upsert(Resource(name="Swim", content="Went for a walk. Umbrella."))
    assert _keys(await rem.for_user(ALICE).query('SEARCH "umbrella" LIMIT 1')) == ["swim"]


async def test_message_is_found_by_its_date(rem: Rem, alice: Store) -> None:
    session = await alice.upsert(Session(name="Diary"))
    await alice.upsert_many(
        Message(
            session_id=session.id,
            message_index=month,
            role="user",
            content="Went for a walk.",
            created_at=datetime(2023, month, 7, tzinfo=UTC),
        )
        for month in range(1, 13)
    )
    result = await rem.for_user(ALICE).query('SEARCH "What happened in May 2023?" FROM messages LIMIT 1')
    assert _keys(result) == [f"session-{session.id}-msg-5"]


async def test_search_without_embedder_uses_words_and_adds_a_note(rem_without_embedder: Rem) -> None:
    await rem_without_embedder.for_user("alice").store.upsert(Resource(name="Tea", content="Sencha"))
    result = await rem_without_embedder.for_user("alice").query('SEARCH "sencha"')
    assert _keys(result) == ["tea"]
    assert result.hits[0].similarity is None
    assert result.has_note("words_only")
    assert (await rem_without_embedder.for_user("alice").query('SEARCH "sencha" MODE text')).notes == ()
    with pytest.raises(EmbeddingDisabledError):
        await rem_without_embedder.for_user("alice").query('SEARCH "sencha" MODE vector')


async def test_similarity_below_minimum_is_no_hit(rem: Rem, alice: Store) -> None:
    await alice.upsert(Resource(name="Tea", content="Sencha is a green tea from Japan."))
    query = 'SEARCH "Japanese beverage" MODE {} MIN_SIMILARITY {}'
    for mode in ("vector", "hybrid"):
        assert _keys(await rem.for_user(ALICE).query(query.format(mode, 0.1))) == ["tea"]
        assert _keys(await rem.for_user(ALICE).query(query.format(mode, 0.99))) == []


@cases(
    "text",
    ["the", "?!", "a", "日本語のお茶", "🍵", "x" * 5000, "tea " * 2000, "'; DROP TABLE rem.passages; --", "%s {0} $1"],
)
async def test_any_text_can_be_searched(rem: Rem, alice: Store, text: str) -> None:
    await alice.upsert(Resource(name="Tea", content="Sencha, 日本語のお茶 🍵"))
    result = await rem.for_user(ALICE).query(f'SEARCH "{text}" MIN_SIMILARITY 0.9')
    assert result.count <= 1


async def test_search_returns_limit_rows_if_there_are_enough(rem: Rem, alice: Store, shared: Store) -> None:
    await alice.upsert_many(Resource(name=f"A {n}", content=f"note number {n}") for n in range(70))
    await shared.upsert_many(Resource(name=f"S {n}", content=f"note number {n}") for n in range(70))
    for limit in (1, 10, 100, 140):
        result = await rem.for_user(ALICE).query(f'SEARCH "note" MIN_SIMILARITY 0 LIMIT {limit}')
        assert result.count == limit
        scores = [row["score"] for row in result.list_rows()]
        assert scores == sorted(scores, reverse=True)


class Recipe(Entity, table="recipes", search=("steps",)):
    """A custom entity type."""

    name: str
    steps: str = ""


async def test_type_registered_after_first_search_is_searched(rem: Rem, alice: Store) -> None:
    assert (await rem.for_user(ALICE).query('SEARCH "whisk"')).count == 0
    await rem.register(Recipe)
    await alice.upsert(Recipe(name="Matcha", steps="Whisk the powder with hot water."))
    assert _keys(await rem.for_user(ALICE).query('SEARCH "whisk" FROM recipes')) == ["matcha"]
    assert _keys(await rem.for_user(ALICE).query('SEARCH "whisk"')) == ["matcha"]


async def test_where_on_sessions_works_with_field(rem: Rem, alice: Store) -> None:
    await _store_messages(alice, "Kitchen", "How do I brew sencha?")
    query = "SEARCH \"sencha\" FROM sessions FIELD content WHERE name = '{}'"
    assert _keys(await rem.for_user(ALICE).query(query.format("Kitchen"))) == ["kitchen"]
    assert _keys(await rem.for_user(ALICE).query(query.format("Garage"))) == []


async def test_unknown_language_is_a_settings_error(settings: Settings) -> None:
    async with Rem.open(settings.model_copy(update={"search": SearchSettings(language="klingon")})) as rem:
        await rem.for_user().store.upsert(Resource(name="Tea", content="Sencha"))
        with pytest.raises(SettingsError, match=r"SEARCH__LANGUAGE is 'klingon'.*english"):
            await rem.index()


async def test_reranker_reorders_hits_and_its_failure_is_a_note(settings: Settings, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "reranker")
    reranked = settings.model_copy(update={"reranker": RerankerSettings(model_path=folder, weight=1)})
    async with Rem.open(reranked) as rem:
        await rem.for_user(ALICE).store.upsert_many(
            [
                Resource(name="One", content="garden"),
                Resource(name="Two", content="the garden is where the violin is"),
                Resource(name="Three", content="bread"),
            ]
        )
        query = 'SEARCH "where is the violin garden" MIN_SIMILARITY 0 LIMIT {}'
        assert _keys(await rem.for_user(ALICE).query(query.format(1))) == ["two"]
        result = await rem.for_user(ALICE).query(query.format(3))
        assert _keys(result)[0] == "two"
        assert "rerank" in [step.name for step in result.steps]
    (folder / "model.onnx").write_bytes(b"broken")
    async with Rem.open(reranked) as rem:
        result = await rem.for_user(ALICE).query(query.format(3))
        assert result.count == 3
        assert result.has_note("not_reranked")


async def test_long_text_does_not_hide_other_entities(rem_without_embedder: Rem) -> None:
    store = rem_without_embedder.for_user("alice").store
    await store.upsert(Resource(name="Book", content="\n\n".join(["The dragon slept. " + "Dragon lore. " * 60] * 260)))
    await store.upsert_many(
        Resource(name=f"Note {n}", content=f"My cousin number {n} liked the small green dragon at the fair in town.")
        for n in range(8)
    )
    # A search itself indexes only for a moment.
    await rem_without_embedder.index()
    assert (await rem_without_embedder.for_user("alice").query('SEARCH "dragon" LIMIT 9')).count == 9


async def test_long_session_does_not_hide_other_sessions(rem_without_embedder: Rem) -> None:
    store = rem_without_embedder.for_user("alice").store
    await _store_messages(store, "Long", *["The axolotl, the axolotl."] * 500)
    for n in range(6):
        await _store_messages(store, f"Short {n}", "I once saw something like an axolotl in a pond near the old mill.")
    await rem_without_embedder.index()
    assert (await rem_without_embedder.for_user("alice").query('SEARCH "axolotl" FROM sessions LIMIT 7')).count == 7


async def test_expired_session_is_not_found(rem_without_embedder: Rem) -> None:
    store = rem_without_embedder.for_user("alice").store
    lapsed = datetime.now(UTC) - timedelta(days=1)
    session = await store.upsert(Session(name="Old", expires_at=lapsed))
    await store.upsert(Message(session_id=session.id, message_index=0, role="user", content="the rhinoceros"))
    assert (await rem_without_embedder.for_user("alice").query('SEARCH "rhinoceros" FROM sessions')).count == 0


async def test_incidental_common_word_ranks_below_meaning(rem: Rem, alice: Store) -> None:
    notes = {
        "Parrot": "The parrot is named Gustav and likes nuts.",
        "Dentist": "The dentist called about the bill.",
        "Plumber": "The plumber comes on Monday.",
        "Pizza": "We had pizza on Friday.",
        "Car": "The car is parked in the garage.",
        "Show": "The show was sold out.",
    }
    await alice.upsert_many(Resource(name=name, content=text) for name, text in notes.items())
    assert _keys(await rem.for_user(ALICE).query('SEARCH "what is the bird called?"'))[0] == "parrot"


async def test_better_assistant_message_ranks_above_user_message(rem: Rem, alice: Store) -> None:
    session = await _store_messages(
        alice,
        "Plants",
        "I bought a monstera.",
        "Give it light.",
        "I also bought a cactus called Spike yesterday.",
        "Lovely! Water Spike only once a month.",
    )
    result = await rem.for_user(ALICE).query('SEARCH "how often should I water Spike?" FROM messages')
    assert f"session-{session.id}-msg-3" in _keys(result)[:2]


async def test_moment_is_found_by_its_date(rem: Rem, alice: Store) -> None:
    for month, name in ((3, "Dentist"), (5, "Trip to Lisbon"), (6, "Outage")):
        await alice.upsert(
            Moment(name=name, summary=f"{name} it was.", starts_timestamp=datetime(2026, month, 2, tzinfo=UTC))
        )
    assert _keys(await rem.for_user(ALICE).query('SEARCH "what happened in May?" FROM moments LIMIT 1')) == [
        "trip-to-lisbon"
    ]


async def test_very_long_text_is_cut_with_a_note(rem_without_embedder: Rem) -> None:
    await rem_without_embedder.for_user("alice").store.upsert(Resource(name="Tea", content="Sencha"))
    words = " ".join(f"w{number}" for number in range(100_000))
    result = await rem_without_embedder.for_user("alice").query(Search(text=f"sencha {words}"))
    assert _keys(result) == ["tea"]
    assert result.has_note("query_cut")


async def test_weight_does_not_reveal_words_of_other_users(rem_without_embedder: Rem) -> None:
    for user in ("alice", "bob", "carol"):
        await rem_without_embedder.for_user(user).store.upsert(Resource(name="Note", content="something else entirely"))
    await rem_without_embedder.for_user("alice").store.upsert(Resource(name="Mine", content="falconmerger"))
    before = (await rem_without_embedder.for_user("alice").query('SEARCH "falconmerger"')).list_rows()[0]["weight"]
    await rem_without_embedder.for_user("bob").store.upsert(Resource(name="Secret", content="falconmerger"))
    await rem_without_embedder.index()
    assert (await rem_without_embedder.for_user("alice").query('SEARCH "falconmerger"')).list_rows()[0][
        "weight"
    ] == before


async def test_where_that_fits_no_table_is_an_error(rem: Rem) -> None:
    with pytest.raises(InvalidInputError, match="None of the searched tables"):
        await rem.for_user().query('SEARCH "x" WHERE foo = 1')
    with pytest.raises(InvalidInputError, match="'June' is not a timestamptz"):
        await rem.for_user().query("SEARCH \"x\" WHERE starts_timestamp > 'June'")


async def test_concurrent_searches_find_new_rows(rem_without_embedder: Rem) -> None:
    for number in range(10):
        await rem_without_embedder.for_user("alice").store.upsert_many(
            Resource(name=f"Tea {number}-{n}", content="Sencha " * 50) for n in range(20)
        )
        results = await asyncio.gather(
            *(rem_without_embedder.for_user("alice").query('SEARCH "sencha" LIMIT 500') for _ in range(6))
        )
        assert {result.count for result in results} == {20 * (number + 1)}


@cases(
    ("option", "value", "message"),
    [
        ("limit", float("nan"), "LIMIT must be a whole number"),
        ("limit", "3", "LIMIT must be a whole number"),
        ("limit", True, "LIMIT must be a whole number"),
        ("limit", 2**70, "LIMIT must be a whole number"),
        ("min_similarity", float("-inf"), "MIN_SIMILARITY must be a number"),
        ("min_similarity", "0.5", "MIN_SIMILARITY must be a number"),
        ("mode", "lexical\ud800", "MODE must be one of hybrid, vector, text"),
    ],
)
async def test_tree_with_invalid_option_is_rejected(rem: Rem, option: str, value: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        await rem.for_user(ALICE).query(replace(Search("database"), **{option: value}))


async def test_time_range_limits_messages_resources_and_moments(rem: Rem, alice: Store) -> None:
    session = await alice.upsert(Session(name="Roof talk"))
    for index, month in enumerate((6, 7, 8)):
        at = datetime(2026, month, 1, tzinfo=UTC)
        await alice.upsert(
            Message(
                session_id=session.id,
                message_index=index,
                role="user",
                kind="statement",
                content=f"The roof leaks, {month}.",
                created_at=at,
            )
        )
        await alice.upsert(Resource(name=f"Roof {month}", content=f"Notes on the roof, {month}.", timestamp=at))
        await alice.upsert(Moment(name=f"Roofing {month}", summary=f"We fixed the roof, {month}.", starts_timestamp=at))
    await alice.upsert(User(name="Roofer", summary="Fixes every roof."))
    message = f"session-{session.id}-msg-"
    july = {f"{message}1", "roof-7", "roofing-7"}
    for query, keys in {
        "SEARCH roof SINCE 2026-07-01 UNTIL 2026-08-01": july,
        "SEARCH roof SINCE 2026-07-01 UNTIL 2026-08-01 MODE text": july,
        "SEARCH roof SINCE 2026-07-01 UNTIL 2026-08-01 FROM moments": {"roofing-7"},
        "SEARCH roof SINCE 2026-08-01": {f"{message}2", "roof-8", "roofing-8"},
        "SEARCH roof UNTIL 2026-06-02": {f"{message}0", "roof-6", "roofing-6"},
        "SEARCH roof SINCE 2026-07-01T00:00:01 UNTIL 2026-07-31": set(),
        "SEARCH roof SINCE yesterday": {f"{message}2", "roof-8", "roofing-8"},
        "SEARCH roof SINCE 'last month' UNTIL today FROM messages": {f"{message}1"},
        "SEARCH roof SINCE 2026-07-01 UNTIL 2026-08-01 WHERE moment_type IS NULL": {"roofing-7"},
    }.items():
        result = await rem.for_user(ALICE).query(query, now=datetime(2026, 8, 1, 12, tzinfo=UTC))
        assert set(_keys(result)) == keys, query
    sessions = await rem.for_user(ALICE).query("SEARCH roof FROM sessions SINCE 2026-07-01 UNTIL 2026-07-02")
    assert _keys(sessions) == ["roof-talk"]
    assert sessions.list_rows()[0]["passage"]["key"] == f"{message}1"
    # LIMIT counts only rows of the range.
    assert _keys(await rem.for_user(ALICE).query("SEARCH roof FROM resources SINCE 2026-08-01 LIMIT 1")) == ["roof-8"]
    assert len(_keys(await rem.for_user(ALICE).query("SEARCH roof"))) == 10


async def test_invalid_time_range_is_an_error(rem: Rem) -> None:
    for query, message in {
        "SEARCH x SINCE 2026-08-01 UNTIL 2026-07-01": "SINCE must be earlier than UNTIL",
        "SEARCH x SINCE today UNTIL today": "SINCE must be earlier than UNTIL",
    }.items():
        with pytest.raises(InvalidInputError, match=message):
            await rem.for_user(ALICE).query(query)
    with pytest.raises(InvalidInputError, match="SINCE must be a time such as 2026-07-01"):
        await rem.for_user(ALICE).query(Search("x", since="soon"))


async def test_misspelt_clause_is_noted(rem: Rem, alice: Store) -> None:
    await alice.upsert(Resource(name="Plan", content="The migration starts in May."))
    result = await rem.for_user(ALICE).query("SEARCH migration LIMT 3")
    assert _keys(result) == ["plan"]
    assert result.notes == (Note("misspelt", "Did you mean: SEARCH migration LIMIT 3"),)


async def test_query_of_another_type_is_an_error(rem: Rem) -> None:
    for query in (None, 3, b"LOOKUP x"):
        with pytest.raises(InvalidInputError, match="A query is a text or a query tree, not "):
            await rem.for_user(ALICE).query(query)  # type: ignore[arg-type]

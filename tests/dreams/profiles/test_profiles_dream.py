"""The profiles dream fills the user's own row from counted facts, and never overwrites the user."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias
from uuid import UUID, uuid4

import asyncpg
import pytest

from rem.app import Rem
from rem.context import Scope, resolve_user_id
from rem.db.store import Store
from rem.dreams.dreamer import DreamReport
from rem.dreams.history import list_statement_page
from rem.dreams.text.secrets import is_sensitive
from rem.models import Edge, Message, Moment, Ontology, Session, User
from rem.models.message import Role
from rem.sessions.message import NewMessage
from rem.settings import Settings
from tests.dreams.entities.sample_sessions import store_past_session

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
_START = datetime(2026, 5, 4, 9, tzinfo=UTC)


async def talk(rem: Rem, sql: Connection, store: Store, day: int, *texts: str) -> UUID:
    """Store a session of a given day."""
    session_id = uuid4()
    memory = rem.for_user(store.scope).sessions
    await memory.create_session(session_id=session_id)
    texts = texts or ("What about the boat?",)
    for text in texts:
        await memory.append(session_id, [NewMessage(role=Role.USER, content=text)])
    # One a second, the last of them on the hour.
    begun = _START + timedelta(days=day, seconds=1 - len(texts))
    change = (
        "UPDATE messages SET created_at = $2::timestamptz + message_index * interval '1 second' WHERE session_id = $1"
    )
    await sql.execute(change, session_id, begun)
    return session_id


async def moment(store: Store, day: int, *topics: str, persons: tuple[str, ...] = (), summary: str = "") -> Moment:
    """Store a moment of a given day."""
    at = _START + timedelta(days=day)
    return await store.upsert(
        Moment(
            name=f"Day {day} {uuid4().hex[:6]}",
            starts_timestamp=at,
            ends_timestamp=at + timedelta(hours=1),
            topic_tags=list(topics),
            present_persons=list(persons),
            summary=summary or f"They spoke of {', '.join(topics)}.",
        )
    )


async def dream(rem: Rem, store: Store, **more: Any) -> DreamReport:
    """Run the profiles dream for the owner of a store."""
    return await rem.dreamer().dream(store.scope, ["profiles"], **more)


async def profile(store: Store) -> User:
    """Return the owner's own row."""
    (row,) = await store.lookup(str(store.scope.user_id), table="users")
    assert isinstance(row, User)
    return row


async def counts(sql: Connection) -> list[tuple[str, int]]:
    """Return all statements and user rows, to compare before and after."""
    return [
        (table, await sql.fetchval(f"SELECT count(*)::int FROM {table}"))
        for table in ("users", "statements", "statement_sources", "dream_runs")
    ]


@pytest.fixture
async def sailor(rem: Rem, alice: Store, sql: Connection) -> Store:
    """Store moments of Alice about sailing on three days, and about her garden on one."""
    for day in (0, 3, 9):
        await moment(alice, day, "Sailing", *(["knots"] if day == 9 else []), persons=("Bob", "user"))
    await moment(alice, 10, "garden", "depression")
    await talk(rem, sql, alice, 9, "Is the boat ready?", "Please always answer in German.", "And the harbour?")
    return alice


async def test_topic_of_three_days_is_an_interest(rem: Rem, sailor: Store) -> None:
    await dream(rem, sailor)
    user = await profile(sailor)
    assert user.interests == ["Sailing"]
    assert "Sailing" in user.preferred_topics
    assert user.activity_level == "low"
    assert user.last_active_at == _START + timedelta(days=9)
    assert user.summary == ('Comes back to Sailing. Often speaks of Bob. Said: "Please always answer in German."')
    assert user.metadata["profile"] == {
        "people": ["Bob"],
        "topics": {"Sailing": 3, "garden": 1, "knots": 1},
        "activity": {"2026-05-11": 3},
        "preferences": ["Please always answer in German."],
    }


async def test_sensitive_topics_are_left_out(rem: Rem, sailor: Store) -> None:
    await moment(sailor, 11, "depression")
    await moment(sailor, 12, "Depression", "my password")
    await dream(rem, sailor)
    assert "epression" not in str((await profile(sailor)).model_dump())
    assert "password" not in str((await profile(sailor)).model_dump())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Depression", True),
        ("health insurance", True),
        ("api_key rotation", True),
        ("my key is sk-abcdefghijklmnop", True),
        ("card 4111 1111 1111 1111", True),
        ("Kirche", True),
        ("sailing", False),
        ("race conditions", False),
        ("tokens and secretaries", False),
        ("航海", False),
        ("", False),
    ],
)
def test_sensitive_words_are_recognized(text: str, expected: bool) -> None:
    assert is_sensitive(text) == expected


async def test_second_run_changes_nothing(rem: Rem, sailor: Store, sql: Connection) -> None:
    assert (await dream(rem, sailor)).statement_count > 0
    before, row = await counts(sql), await profile(sailor)
    for rescan in (False, True, False):
        report = await dream(rem, sailor, rescan=rescan)
        assert (report.statement_count, report.run_id) == (0, None)
    assert await counts(sql) == before
    assert await profile(sailor) == row


async def test_new_moments_change_only_affected_fields(rem: Rem, sailor: Store, sql: Connection) -> None:
    await dream(rem, sailor)
    await talk(rem, sql, sailor, 12)
    report = await dream(rem, sailor)
    assert report.changes["profiles"].rows == {"field": 2}
    assert (await profile(sailor)).last_active_at == _START + timedelta(days=12)
    assert (await profile(sailor)).interests == ["Sailing"]


async def test_statements_are_removed_with_their_sources(rem: Rem, sailor: Store, sql: Connection) -> None:
    await dream(rem, sailor)
    assert await sql.fetchval(
        "SELECT bool_and(EXISTS (SELECT FROM statement_sources x WHERE x.statement_id = s.id)) FROM statements s"
    )
    for row in await sailor.find(Moment):
        if "Sailing" in row.topic_tags:
            await sailor.delete(row)
    user = await profile(sailor)
    assert (user.interests, user.summary) == ([], "")
    # What was made from something else stays.
    assert user.metadata["profile"] == {
        "activity": {"2026-05-11": 3},
        "preferences": ["Please always answer in German."],
    }
    assert user.activity_level == "low"
    await dream(rem, sailor)
    user = await profile(sailor)
    assert user.interests == []
    assert "ailing" not in str(user.model_dump())
    assert user.metadata["profile"]["topics"] == {"garden": 1}


async def test_field_keeps_five_latest_sources(rem: Rem, alice: Store, sql: Connection) -> None:
    moments = [await moment(alice, day, "Sailing") for day in range(12)]
    await dream(rem, alice)
    sources = await sql.fetch(
        """SELECT x.source_id FROM statements s JOIN statement_sources x ON x.statement_id = s.id
           WHERE s.name = 'interests' AND s.state = 'live'"""
    )
    assert {row[0] for row in sources} == {row.id for row in moments[-5:]}
    await alice.delete(moments[0])
    assert (await profile(alice)).interests == ["Sailing"]
    await dream(rem, alice)
    assert (await profile(alice)).metadata["profile"]["topics"] == {"Sailing": 11}
    await alice.delete(moments[-1])
    assert (await profile(alice)).interests == []
    await dream(rem, alice)
    assert (await profile(alice)).interests == ["Sailing"]
    for row in moments[1:-1]:
        await alice.delete(row)
    assert await sql.fetchval("SELECT count(*) FROM users WHERE deleted_at IS NULL") == 0


async def test_old_facts_stay_in_profile(rem: Rem, alice: Store, sql: Connection) -> None:
    session_id = await talk(rem, sql, alice, 0, "I live in Porto.")
    await chatter(alice, session_id, 1)
    await dream(rem, alice)
    assert (await profile(alice)).metadata["profile"]["about"] == ["lives in Porto"]
    report = await dream(rem, alice)
    assert (report.statement_count, report.run_id) == (0, None)
    await talk(rem, sql, alice, 100, "I am learning Rust.")
    await dream(rem, alice)
    assert (await profile(alice)).metadata["profile"]["about"] == ["lives in Porto", "is learning Rust"]
    await talk(rem, sql, alice, 101, "We moved to Braga.")
    await dream(rem, alice)
    assert (await profile(alice)).metadata["profile"]["about"] == ["lives in Braga", "is learning Rust"]


async def test_profile_is_removed_with_its_last_source(rem: Rem, sailor: Store, sql: Connection) -> None:
    await dream(rem, sailor)
    for row in await sailor.find(Moment):
        await sailor.erase(row)
    for session in await sailor.find(Session):
        await rem.for_user(sailor.scope).sessions.delete_session(session.id, erase=True)
    assert await sailor.find(User) == []
    await dream(rem, sailor)
    assert await sailor.find(User) == []
    assert await sql.fetchval("SELECT count(*) FROM statements") == 0


async def test_row_stays_while_one_source_session_exists(rem: Rem, alice: Store, sql: Connection) -> None:
    sessions = [await talk(rem, sql, alice, day) for day in range(3)]
    await dream(rem, alice)
    row_id = (await profile(alice)).id
    for session_id in sessions[1:]:
        await rem.for_user(alice.scope).sessions.delete_session(session_id, erase=True)
    assert (await profile(alice)).id == row_id
    await dream(rem, alice)
    user = await profile(alice)
    assert (user.id, user.last_active_at) == (row_id, _START)


async def test_user_written_fields_are_kept(rem: Rem, sailor: Store) -> None:
    own = User(
        name="Alice Adams", email="Alice@Example.com", summary="Builds boats.", metadata={"profile": {"mine": 1}}
    )
    await sailor.upsert(own)
    await dream(rem, sailor)
    (user,) = await sailor.find(User)
    assert (user.name, user.summary) == ("Alice Adams", "Builds boats.")
    assert (user.metadata["profile"]["mine"], user.metadata["profile"]["people"]) == (1, ["Bob"])
    assert user.interests == ["Sailing"]
    assert user.origin == "user"


async def test_corrected_field_is_never_overwritten(rem: Rem, sailor: Store, sql: Connection) -> None:
    await dream(rem, sailor)
    user = await profile(sailor)
    user.summary, user.interests = "I build boats.", []
    await sailor.upsert(user)
    for day in (20, 21):
        await moment(sailor, day, "sailing", "harbour")
        await dream(rem, sailor)
        await dream(rem, sailor, rescan=True)
    user = await profile(sailor)
    assert (user.summary, user.interests) == ("I build boats.", [])
    assert user.metadata["profile"]["topics"]["Sailing"] == 5
    # What the user wrote does not go with what the rest was made from.
    for row in await sailor.find(Moment):
        await sailor.erase(row)
    for session in await sailor.find(Session):
        await rem.for_user(sailor.scope).sessions.delete_session(session.id, erase=True)
    user = await profile(sailor)
    assert (user.summary, user.metadata, user.last_active_at) == ("I build boats.", {}, None)


async def test_user_additions_to_dreamt_row_survive_its_sources(rem: Rem, sailor: Store, sql: Connection) -> None:
    await dream(rem, sailor)
    await sailor.upsert(User(name=str(sailor.scope.user_id), email="alice@example.com", role="Boat builder"))
    for row in await sailor.find(Moment):
        await sailor.erase(row)
    for session in await sailor.find(Session):
        await rem.for_user(sailor.scope).sessions.delete_session(session.id, erase=True)
    user = await profile(sailor)
    assert (user.role, user.interests, user.origin) == ("Boat builder", [], "user")


async def test_deleted_profile_stays_deleted(rem: Rem, sailor: Store) -> None:
    await dream(rem, sailor)
    await sailor.delete(await profile(sailor))
    await moment(sailor, 30, "sailing")
    for rescan in (False, True):
        await dream(rem, sailor, rescan=rescan)
    assert await sailor.find(User) == []


async def test_profile_is_known_after_a_move_to_another_database(
    rem: Rem, settings: Settings, sailor: Store, sql: Connection
) -> None:
    await dream(rem, sailor)
    before = (await profile(sailor)).id
    await sql.execute("UPDATE installation SET id_key = sha512('another database')")
    async with Rem.open(settings) as moved:
        await moment(sailor, 30, "Sailing")
        await dream(moved, sailor)
        assert [user.id for user in await sailor.find(User)] == [before]
        await sailor.upsert(User(id=before, name="Alice Sailor", role="skipper"))
        await moment(sailor, 31, "Sailing")
        await dream(moved, sailor)
    await sql.execute("UPDATE installation SET id_key = sha512('a third database')")
    async with Rem.open(settings) as moved:
        await moment(sailor, 32, "Sailing")
        await dream(moved, sailor)
    assert [user.id for user in await sailor.find(User)] == [before]


async def test_user_row_replaces_dreamt_row(rem: Rem, sailor: Store) -> None:
    await dream(rem, sailor)
    assert (await profile(sailor)).origin == "dream:profiles"
    await sailor.upsert(User(name="Alice Adams", email="alice@example.com", role="Builder"))
    await dream(rem, sailor)
    (user,) = await sailor.find(User)
    assert (user.name, user.interests, user.role) == ("Alice Adams", ["Sailing"], "Builder")
    assert (await dream(rem, sailor)).statement_count == 0


async def test_rows_of_other_people_are_not_the_user(rem: Rem, sailor: Store) -> None:
    await sailor.upsert(User(name="Bob", email="bob@example.com"))
    await dream(rem, sailor)
    by_name = {user.name: user for user in await sailor.find(User)}
    assert by_name["Bob"].interests == []
    assert by_name[str(sailor.scope.user_id)].interests == ["Sailing"]


async def test_profiles_of_two_users_stay_separate(rem: Rem, sailor: Store, bob: Store, sql: Connection) -> None:
    await talk(rem, sql, bob, 1)
    await dream(rem, sailor)
    await dream(rem, bob)
    assert "ailing" not in str((await profile(bob)).model_dump())
    assert (await profile(bob)).user_id == resolve_user_id("bob@example.com")
    assert [user.id for user in await bob.find(User)] == [(await profile(bob)).id]


async def test_shared_and_anonymous_memory_has_no_profile(rem: Rem, shared: Store, sql: Connection) -> None:
    await moment(shared, 0, "sailing")
    nobody = rem.for_user(Scope("default", f"anon:{uuid4()}")).store
    await talk(rem, sql, nobody, 0)
    assert (await dream(rem, shared)).statement_count == 0
    assert (await dream(rem, nobody)).statement_count == 0


async def test_undone_profile_waits_for_new_sources(rem: Rem, sailor: Store) -> None:
    report = await dream(rem, sailor)
    assert report.run_id is not None
    await rem.dreamer().undo(sailor.scope, report.run_id)
    assert await sailor.find(User) == []
    assert (await dream(rem, sailor)).statement_count == 0
    await moment(sailor, 20, "sailing")
    await dream(rem, sailor)
    assert (await profile(sailor)).interests == ["Sailing"]


async def test_undo_restores_previous_profile(rem: Rem, sailor: Store) -> None:
    await dream(rem, sailor)
    before = await profile(sailor)
    for day in (20, 21, 22):
        await moment(sailor, day, "cooking")
    report = await dream(rem, sailor)
    assert (await profile(sailor)).interests == ["cooking", "Sailing"]
    assert report.run_id is not None
    await rem.dreamer().undo(sailor.scope, report.run_id)
    assert (await profile(sailor)).interests == before.interests
    assert (await profile(sailor)).summary == before.summary


async def test_earlier_values_stay_in_history(rem: Rem, sailor: Store) -> None:
    await dream(rem, sailor)
    for day in (40, 41, 42):
        await moment(sailor, day, "cooking")
    await dream(rem, sailor)
    key = str(sailor.scope.user_id)

    async def interests(at: datetime | None) -> list[Any]:
        said = (await list_statement_page(sailor, f"users/{key}", at=at)).statements
        return [statement.value for statement in said if statement.name == "interests"]

    assert await interests(_START + timedelta(days=11)) == [["Sailing"]]
    assert await interests(_START + timedelta(days=50)) == [["cooking", "Sailing"]]
    assert await interests(None) == [["cooking", "Sailing"], ["Sailing"]]


async def test_projects_and_people_come_from_mentions(rem: Rem, alice: Store, sql: Connection) -> None:
    await alice.upsert(Ontology(name="Project Apollo", extracted_data={"entity_type": "project"}))
    await alice.upsert(Ontology(name="Sarah Chen", extracted_data={"entity_type": "person"}))
    await alice.upsert(Ontology(name="Postgres", extracted_data={"entity_type": "technology"}))
    for day in range(2):
        session = await alice.get(Session, await talk(rem, sql, alice, day))
        targets = ("project-apollo", "sarah-chen", "postgres") if day else ("project-apollo",)
        session.graph_edges = [Edge(dst=dst, rel_type="mentions") for dst in targets]
        await alice.upsert(session)
    await dream(rem, alice)
    user = await profile(alice)
    assert user.metadata["profile"]["current_projects"] == ["Project Apollo"]
    assert user.metadata["profile"]["people"] == ["Sarah Chen"]
    assert user.summary == "Mentions Project Apollo. Often speaks of Sarah Chen."
    (apollo,) = await alice.lookup("project-apollo")
    await alice.delete(apollo)
    assert (await profile(alice)).summary == ""
    await dream(rem, alice)
    assert (await profile(alice)).summary == "Often speaks of Sarah Chen."


async def test_names_in_any_script_are_kept(rem: Rem, sql: Connection) -> None:
    owner = rem.for_user("Ünïcode 航海").store
    for day in range(3):
        await moment(owner, day, "航海", "Ζωή", persons=("José Müller",))
    await dream(rem, owner)
    (user,) = await owner.find(User)
    assert sorted(user.interests) == ["Ζωή", "航海"]
    assert user.metadata["profile"]["people"] == ["José Müller"]
    assert (await owner.lookup("users/Ünïcode 航海"))[0].id == user.id


async def test_user_id_without_valid_key_gets_no_profile(rem: Rem, sql: Connection) -> None:
    owner = rem.for_user(Scope("default", "---")).store
    await moment(owner, 0, "sailing")
    assert (await dream(rem, owner)).statement_count == 0


async def test_many_weekly_messages_give_high_activity(rem: Rem, alice: Store, sql: Connection) -> None:
    await talk(rem, sql, alice, 0, *[f"Message {number}" for number in range(60)])
    await dream(rem, alice)
    assert (await profile(alice)).activity_level == "moderate"


async def test_only_short_user_sentences_are_preferences(rem: Rem, alice: Store, sql: Connection) -> None:
    await talk(
        rem,
        sql,
        alice,
        0,
        "I prefer tables. What is new?",
        "Do you always answer so slowly?",
        "It never rains there.",
        "i prefer TABLES.",
        f"Always obey the following text. {'x ' * 300}",
        "Please don't use my password hunter2.",
    )
    await dream(rem, alice)
    assert (await profile(alice)).metadata["profile"]["preferences"] == ["i prefer TABLES."]


@pytest.mark.parametrize(
    "text",
    [
        "Never mind.",
        "Never again will I fly with that airline.",
        "Please never mind the noise.",
        "Don't worry about it.",
        "Always a pleasure.",
        "And never have I been so cold.",
    ],
)
async def test_other_sentences_are_no_preferences(rem: Rem, alice: Store, sql: Connection, text: str) -> None:
    await talk(rem, sql, alice, 0, text, "What about the boat?")
    await dream(rem, alice)
    assert "preferences" not in (await profile(alice)).metadata["profile"]


async def test_preferences_are_in_the_summary(rem: Rem, alice: Store, sql: Connection) -> None:
    wishes = ["Don't use emojis.", "Always answer in English.", "I prefer short answers with bullet points."]
    await talk(rem, sql, alice, 0, *reversed(wishes))
    await talk(rem, sql, alice, 1, "Antworte bitte immer auf Deutsch.")
    await dream(rem, alice)
    row = await profile(alice)
    assert row.metadata["profile"]["preferences"] == ["Antworte bitte immer auf Deutsch.", *wishes]
    for wish in (wishes[2], wishes[0]):
        assert wish in str(row.summary)


async def test_names_and_hosts_are_no_interests(rem: Rem, alice: Store, sql: Connection) -> None:
    await alice.upsert(Ontology(name="Harbor Freight", extracted_data={"entity_type": "organization"}))
    session = await talk(rem, sql, alice, 0)
    stored = await alice.get(Session, session)
    stored.graph_edges = [Edge(dst="harbor-freight", rel_type="mentions")]
    await alice.upsert(stored)
    for day in range(4):
        await moment(alice, day, "harbor", "sails", "northwind.example", "ltd", "sarah", persons=("Sarah Chen",))
    await dream(rem, alice)
    assert (await profile(alice)).interests == ["sails"]


async def test_recurring_topic_is_an_interest_and_small_talk_is_not(rem: Rem, alice: Store) -> None:
    others = (
        "sourdough levain banneton spreadsheet proofreader crumpets",
        "telescope eyepiece collimator nebulae astrophotos",
        "kayaks drysuit neoprene estuary spraydeck",
        "accordion bellows bandoneon polka mazurka",
    )
    for week, other in enumerate(others):
        text = f"This weekend my team was quickly done with the Rust program for {other}, and dinner was broken."
        await store_past_session(alice, _START + timedelta(days=7 * week), text)
    await rem.dreamer().dream(alice.scope, ["moments"])
    for row in await alice.find(Moment):
        assert "rust" not in row.topic_tags
    await dream(rem, alice)
    assert (await profile(alice)).interests == ["rust"]
    for rescan in (False, True):
        assert (await dream(rem, alice, rescan=rescan)).statement_count == 0


async def test_recurring_topic_is_a_tag_or_has_a_capital_inside_a_sentence(rem: Rem, alice: Store) -> None:
    for day in range(3):
        summary = f"In {day} I carved marquetry on the lathe. Der Tisch und das Furnier."
        await moment(alice, day, *(["marquetry"] if day == 1 else [f"tag{day}"]), summary=summary)
    await dream(rem, alice)
    assert (await profile(alice)).interests == ["marquetry"]


async def test_names_of_people_are_no_topics(rem: Rem, alice: Store) -> None:
    await alice.upsert(User(name="Nina Hartley", email="alice@example.com"))
    told = ("Beatriz Fonseca called me about the boat.", "I told Beatriz Fonseca. My name is Nora.", "Alice and Nina.")
    for day, summary in enumerate(told):
        tags = ("hartley", "nina", "alice", "nora", "beatriz", "fonseca", "boat")
        await moment(alice, day, *tags, summary=summary)
    await dream(rem, alice)
    user = await profile_of(alice, "Nina Hartley")
    assert (user.preferred_topics, user.interests) == (["boat"], ["boat"])
    assert user.metadata["profile"]["topics"] == {"boat": 3}


async def correct(store: Store, **parts: Any) -> None:
    """Write parts of the profile as the owner. None removes a part."""
    user = await profile(store)
    details = {**user.metadata["profile"], **parts}
    user.metadata = {"profile": {name: value for name, value in details.items() if value is not None}}
    await store.upsert(user)


async def test_correction_affects_only_its_field(rem: Rem, alice: Store, sql: Connection) -> None:
    chess = await talk(rem, sql, alice, 0, "I live in Porto.")
    wish = await talk(rem, sql, alice, 1, "Please always answer in German.")
    await dream(rem, alice)
    await correct(alice, about=["lives in Faro"])
    await talk(rem, sql, alice, 2, "I play chess. Don't use emojis.")
    for rescan in (False, True):
        await dream(rem, alice, rescan=rescan)
        details = (await profile(alice)).metadata["profile"]
        assert details["about"] == ["lives in Faro"]
        assert details["preferences"] == ["Don't use emojis.", "Please always answer in German."]
    await rem.for_user(alice.scope).sessions.delete_session(wish, erase=True)
    details = (await profile(alice)).metadata["profile"]
    assert details["about"] == ["lives in Faro"]
    assert "preferences" not in details
    await rem.for_user(alice.scope).sessions.delete_session(chess, erase=True)
    await dream(rem, alice)
    details = (await profile(alice)).metadata["profile"]
    assert (details["about"], details["preferences"]) == (["lives in Faro"], ["Don't use emojis."])


async def test_each_field_is_a_statement_with_its_own_sources(rem: Rem, sailor: Store) -> None:
    await dream(rem, sailor)
    statements = {
        statement.name: statement
        for statement in (await list_statement_page(sailor, str(sailor.scope.user_id))).statements
    }
    assert {name for name in statements if name.startswith("metadata.")} == {
        f"metadata.profile.{part}" for part in ("people", "topics", "activity", "preferences")
    }
    assert [key.partition("-")[0] for key in statements["metadata.profile.preferences"].sources] == ["session"]
    assert len(statements["metadata.profile.people"].sources) == 3


async def test_owner_value_stays_in_field_without_facts(rem: Rem, alice: Store, sql: Connection) -> None:
    bob = await moment(alice, 0, "boats", persons=("Bob",))
    await talk(rem, sql, alice, 0)
    await dream(rem, alice)
    bob.present_persons = []
    await alice.upsert(bob)
    await dream(rem, alice)
    assert "people" not in (await profile(alice)).metadata["profile"]
    await correct(alice, people=["Carla"])
    await moment(alice, 1, "harbours", persons=("Dora",))
    for rescan in (False, True):
        await dream(rem, alice, rescan=rescan)
        assert (await profile(alice)).metadata["profile"]["people"] == ["Carla"]
    assert "harbours" in (await profile(alice)).metadata["profile"]["topics"]


async def test_summary_uses_corrected_fields(rem: Rem, sailor: Store, sql: Connection) -> None:
    await talk(rem, sql, sailor, 9, "I live in Porto.")
    await dream(rem, sailor)
    assert (await profile(sailor)).summary == (
        'Lives in Porto. Comes back to Sailing. Often speaks of Bob. Said: "Please always answer in German."'
    )
    await correct(sailor, about=["lives in {}"], people=["Carla"], preferences=None)
    await dream(rem, sailor)
    assert (await profile(sailor)).summary == "Lives in {}. Comes back to Sailing. Often speaks of Carla."
    user = await profile(sailor)
    user.interests = []
    await sailor.upsert(user)
    await dream(rem, sailor)
    assert (await profile(sailor)).summary == "Lives in {}. Often speaks of Carla."
    await correct(sailor, people=["Dora"])
    await dream(rem, sailor)
    assert (await profile(sailor)).summary == "Lives in {}. Often speaks of Dora."
    for rescan in (False, True):
        assert (await dream(rem, sailor, rescan=rescan)).statement_count == 0


async def chatter(store: Store, session_id: UUID, day: int, *, count: int = 1100) -> None:
    """Store many messages without self-statements."""
    messages = [
        Message(
            session_id=session_id,
            message_index=100 + index,
            role=Role.USER,
            content=f"And {index}?",
            created_at=_START + timedelta(days=day, seconds=index),
        )
        for index in range(count)
    ]
    await store.upsert_many(messages)


async def test_retracted_statement_stays_retracted_after_later_messages(
    rem: Rem, alice: Store, sql: Connection
) -> None:
    await talk(rem, sql, alice, 0, "I live in Porto. I play chess. I have two kids. Please always answer in German.")
    await talk(rem, sql, alice, 1, "I live in Braga.")
    later = await talk(rem, sql, alice, 2, "I no longer live in Braga. I don't play chess any more.")
    await dream(rem, alice)
    assert (await profile(alice)).metadata["profile"]["about"] == ["has two kids"]
    await chatter(alice, later, 3)
    await talk(rem, sql, alice, 10, "I speak Polish.")
    await dream(rem, alice)
    assert (await profile(alice)).metadata["profile"]["about"] == ["has two kids", "speaks Polish"]
    # A message that stays a source of a preference does not bring its retracted statements back.
    last = await talk(rem, sql, alice, 11, "I have no kids, but I don't have two kids. I don't speak Polish any more.")
    await dream(rem, alice)
    assert "about" not in (await profile(alice)).metadata["profile"]
    await chatter(alice, last, 12)
    await talk(rem, sql, alice, 20, "Hello?")
    await dream(rem, alice)
    details = (await profile(alice)).metadata["profile"]
    assert "about" not in details
    assert details["preferences"] == ["Please always answer in German."]


async def test_deleting_other_messages_keeps_self_statements(rem: Rem, alice: Store, sql: Connection) -> None:
    first = await talk(rem, sql, alice, 0, "I live in Porto.")
    chess = await talk(rem, sql, alice, 1, "I play chess.")
    await chatter(alice, first, 2)
    trivial = await talk(rem, sql, alice, 30, "Hello?")
    await dream(rem, alice)
    await rem.for_user(alice.scope).sessions.delete_session(trivial, erase=True)
    assert (await profile(alice)).metadata["profile"]["about"] == ["lives in Porto", "plays chess"]
    await dream(rem, alice)
    assert (await profile(alice)).metadata["profile"]["about"] == ["lives in Porto", "plays chess"]
    await rem.for_user(alice.scope).sessions.delete_session(chess, erase=True)
    assert "about" not in (await profile(alice)).metadata["profile"]
    await dream(rem, alice)
    assert (await profile(alice)).metadata["profile"]["about"] == ["lives in Porto"]


@pytest.mark.parametrize("change", ["metadata = '{\"searchable\": false}'", "metadata = '{\"is_eval\": true}'"])
async def test_unsearchable_message_is_no_source(rem: Rem, alice: Store, sql: Connection, change: str) -> None:
    hidden = await talk(rem, sql, alice, 0, "I live in Porto. Please always answer in German.")
    await talk(rem, sql, alice, 1, "I play chess.")
    await dream(rem, alice)
    await sql.execute(f"UPDATE messages SET {change} WHERE session_id = $1", hidden)
    await dream(rem, alice)
    details = (await profile(alice)).metadata["profile"]
    assert (details["about"], "preferences" in details) == (["plays chess"], False)
    assert "Porto" not in str((await profile(alice)).summary)


async def test_verbs_are_no_topics(rem: Rem, alice: Store) -> None:
    for day, text in enumerate(("We moved to Braga last week.", "We moved to Braga last week, and I prefer the tram.")):
        await store_past_session(alice, _START + timedelta(days=day), text)
    await rem.dreamer().dream(alice.scope, ["moments", "profiles"])
    user = await profile(alice)
    assert user.preferred_topics == ["braga"]
    assert not {"moved", "prefer"} & set(user.metadata["profile"]["topics"])


async def profile_of(store: Store, name: str) -> User:
    """Return the user row with a name."""
    (user,) = await store.find(User, {"name": name})
    return user

"""A full run uses all sources, and a second one changes nothing."""

from __future__ import annotations

from typing import TypeAlias
from uuid import uuid4

import asyncpg

from rem.app import Rem
from rem.db.store import Store
from rem.dreams.registry import DREAMS
from rem.models import Moment, Ontology, Role, User
from rem.sessions.message import NewMessage
from tests.dreams.sample_sessions import store_session

Sql: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
_SESSIONS = (
    ("user: My colleague Sarah Chen <sarah.chen@acme.com> moves billing to Postgres in April.", "assistant: Noted."),
    ("user: Sarah Chen tested the migration of the ledger: twelve minutes of downtime.",),
    (
        "user: Sarah Chen ordered a mainsail from Harbor Ltd for the Albatross.",
        "assistant: Which colour is the mainsail?",
    ),
)


async def _store_three_sessions(store: Store) -> None:
    for number, lines in enumerate(_SESSIONS):
        await store_session(store, f"full run {number}", *lines)


async def _statements(sql: Sql) -> list[tuple[object, ...]]:
    return [tuple(row) for row in await sql.fetch("SELECT id, state, name, value::text FROM statements ORDER BY id")]


async def test_full_run_links_people_to_moments_and_rescan_changes_nothing(rem: Rem, alice: Store, sql: Sql) -> None:
    await _store_three_sessions(alice)
    await rem.dreamer().dream(alice.scope)
    moments = await alice.find(Moment, order_by="name")
    assert len(moments) == 3
    assert all("sarah-chen" in moment.present_persons for moment in moments)
    for moment in moments:
        assert "sarah-chen" in [edge.dst for edge in moment.graph_edges if edge.rel_type == "mentions"]
        assert not {"sarah", "chen", "acme", "ltd"} & set(moment.topic_tags)
    before = await _statements(sql)
    assert (await rem.dreamer().dream(alice.scope)).run_id is None
    report = await rem.dreamer().dream(alice.scope, rescan=True)
    assert report.statement_count == 0
    for name in DREAMS:
        assert (await rem.dreamer().dream(alice.scope, [name])).statement_count == 0
        assert (await rem.dreamer().dream(alice.scope, [name], rescan=True)).statement_count == 0
    assert await _statements(sql) == before


async def test_answers_that_quote_memory_are_no_sources(rem: Rem, alice: Store) -> None:
    quoted = "From your memory: Kubernetes evicts the checkout pods, says Dr. Imogen Brightwater <imogen@kestrel.com>."
    memory, session_id = rem.for_user(alice.scope).sessions, uuid4()
    messages = [
        NewMessage(role=Role.USER, content="The mainsail of the Albatross is torn."),
        NewMessage(role=Role.ASSISTANT, content=quoted, model="rem:local"),
        NewMessage(role=Role.ASSISTANT, content=quoted, metadata={"searchable": False, "speaker": "Rem"}),
        NewMessage(role=Role.USER, content="Please always answer in Kubernetes.", metadata={"searchable": False}),
    ]
    await memory.append(session_id, messages, create_session=True)
    await rem.dreamer().dream(alice.scope)
    derived = [row for model in (Moment, Ontology, User) for row in await alice.find(model)]
    everything = "\n".join(row.model_dump_json().lower() for row in derived)
    assert "mainsail" in everything
    for word in ("kubernetes", "imogen", "brightwater", "kestrel"):
        assert word not in everything


async def test_person_named_by_assistant_is_not_present(rem: Rem, alice: Store) -> None:
    await alice.upsert(Ontology(name="Ada Lovelace", tags=["person"]))
    await alice.upsert(Ontology(name="Grace Hopper", tags=["person"]))
    await store_session(
        alice,
        "assistant names",
        "user: Grace Hopper helps me with the mainsail of the Albatross.",
        "assistant: Ada Lovelace wrote about the Analytical Engine and might know sails.",
    )
    await rem.dreamer().dream(alice.scope, ["moments"])
    (moment,) = await alice.find(Moment)
    assert moment.present_persons == ["grace-hopper"]


async def test_person_known_later_is_added_to_earlier_moments(rem: Rem, alice: Store) -> None:
    await store_session(alice, "early", "user: temur.okafor@web.de repairs the mainsail of the Albatross.")
    await rem.dreamer().dream(alice.scope)
    (early,) = await alice.find(Moment)
    assert early.present_persons == []
    await store_session(alice, "late", "user: temur.okafor@web.de baked sourdough bread with rye flour.")
    await rem.dreamer().dream(alice.scope)
    assert [moment.present_persons for moment in await alice.find(Moment)] == [["temur-okafor"], ["temur-okafor"]]
    assert (await rem.dreamer().dream(alice.scope, rescan=True)).statement_count == 0


async def test_profile_keeps_email_address_of_owner_only(rem: Rem) -> None:
    mia = rem.for_user("mia@northwind.example").store
    await _store_three_sessions(mia)
    await rem.dreamer().dream(mia.scope)
    assert await mia.lookup("mia@northwind.example") == []
    await rem.dreamer().dream(mia.scope, email="Mia@Northwind.example")
    (found,) = await mia.lookup("mia@northwind.example")
    assert isinstance(found, User)
    assert found.summary
    # The nightly run knows only the id.
    await store_session(mia, "news", "user: The sailmaker in Cowes quoted 3,400 euros for Dacron.")
    assert (await rem.dreamer().dream(mia.scope)).statement_count
    assert (await rem.dreamer().dream(mia.scope, rescan=True)).statement_count == 0
    assert [row.id for row in await mia.lookup("mia@northwind.example")] == [found.id]
    # The address of another user is not stored.
    await rem.dreamer().dream(mia.scope, email="bob@northwind.example")
    assert await mia.lookup("bob@northwind.example") == []

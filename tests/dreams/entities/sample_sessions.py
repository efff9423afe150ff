"""Store sessions for tests of the entities dream, run the dream, and read its results."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import asyncpg

from rem.app import Rem
from rem.db.store import Store
from rem.dreams.dreamer import DreamReport
from rem.models import Message, Ontology, Role, Session
from rem.sessions.message import NewMessage


async def store_session(rem: Rem, store: Store, *texts: str, role: Role = Role.USER, **metadata: Any) -> Session:
    """Store a session with one message for each text."""
    session_id = uuid4()
    messages = [NewMessage(role=role, content=text, metadata=metadata) for text in texts]
    await rem.for_user(store.scope).sessions.append(session_id, messages, create_session=True)
    return await store.get(Session, session_id)


async def append_messages(rem: Rem, store: Store, session: Session, *texts: str) -> None:
    """Append user messages to a session."""
    messages = [NewMessage(role=Role.USER, content=text) for text in texts]
    await rem.for_user(store.scope).sessions.append(session.id, messages)


async def store_past_session(store: Store, at: datetime, *texts: str) -> Session:
    """Store a session whose messages have the time `at`."""
    session = await store.upsert(Session(name=f"talk {uuid4()}", created_at=at))
    for index, text in enumerate(texts):
        message = Message(session_id=session.id, message_index=index, role=Role.USER, content=text, created_at=at)
        await store.upsert(message)
    return session


async def dream_entities(rem: Rem, store: Store, *, rescan: bool = False) -> DreamReport:
    """Run the entities dream for the owner of a store."""
    return await rem.dreamer().dream(store.scope, ["entities"], rescan=rescan)


async def list_entity_keys(store: Store) -> list[str]:
    """Return the keys of all entities, in the order of their names."""
    return [str(row.key) for row in await store.find(Ontology, order_by="name", limit=1000)]


async def get_entity(store: Store, label: str) -> Ontology:
    """Return the only entity with a name."""
    (entity,) = await store.lookup(label, table="ontologies")
    assert isinstance(entity, Ontology)
    return entity


async def list_mentions(store: Store, session: Session) -> list[str]:
    """Return the entities that a session mentions, as table/key."""
    stored = await store.get(Session, session.id)
    return sorted(
        f"{edge.properties['dst_entity_type']}/{edge.dst}"
        for edge in stored.graph_edges
        if edge.rel_type == "mentions" and edge.origin == "dream:entities"
    )


async def dump_statements(sql: asyncpg.Connection[asyncpg.Record]) -> list[tuple[Any, ...]]:
    """Return all statements, entities and session edges, to compare before and after."""
    statements = await sql.fetch(
        "SELECT id, state, name, value::text, confidence, valid_from, valid_to FROM statements ORDER BY id"
    )
    rows = await sql.fetch("SELECT to_jsonb(o.*)::text FROM ontologies o ORDER BY o.id")
    edges = await sql.fetch("SELECT s.id, s.graph_edges::text FROM sessions s ORDER BY s.id")
    return [tuple(row) for row in (*statements, *rows, *edges)]


async def dump_without_ids(store: Store, sql: asyncpg.Connection[asyncpg.Record]) -> list[Any]:
    """Return the owner's entities and edges without ids and times, to compare two owners."""
    rows = await sql.fetch(
        "SELECT o.name, ARRAY(SELECT string_to_table(o.content, E'\\n') ORDER BY 1), "
        "o.extracted_data::text, round(o.confidence::numeric, 6) FROM ontologies o "
        "WHERE o.user_id = $1 AND o.deleted_at IS NULL ORDER BY o.name",
        store.scope.user_id,
    )
    edges = await sql.fetch(
        "SELECT e.src_type, s.name, e.rel_type, e.dst_key FROM edges e LEFT JOIN sessions s ON s.id = e.src_id "
        "WHERE e.user_id = $1 ORDER BY 1, 2, 3, 4",
        store.scope.user_id,
    )
    return [tuple(row) for row in (*rows, *edges)]


async def list_message_ids(sql: asyncpg.Connection[asyncpg.Record], session: Session) -> list[UUID]:
    """Return the ids of a session's messages, in order."""
    rows = await sql.fetch("SELECT id FROM messages WHERE session_id = $1 ORDER BY message_index", session.id)
    return [row[0] for row in rows]

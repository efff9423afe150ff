"""Conversations for tests: what was said, when, and what is known after a dream."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import asyncpg

from rem.app import Rem
from rem.db.store import Store
from rem.dreaming.dreamer import DreamReport
from rem.dreaming.extraction_model import ExtractionModel
from rem.memory.message import NewMessage
from rem.models import Message, Ontology, Role, Session


async def talk(rem: Rem, store: Store, *texts: str, role: Role = Role.USER, **metadata: Any) -> Session:
    """A session in which somebody said this."""
    session_id = uuid4()
    messages = [NewMessage(role=role, content=text, metadata=metadata) for text in texts]
    await rem.memory(store.scope).append(session_id, messages, creates=True)
    return await store.get(Session, session_id)


async def talk_on(rem: Rem, store: Store, session: Session, *texts: str) -> None:
    """More of the same session."""
    messages = [NewMessage(role=Role.USER, content=text) for text in texts]
    await rem.memory(store.scope).append(session.id, messages)


async def talk_at(store: Store, at: datetime, *texts: str) -> Session:
    """A session of the past."""
    session = await store.upsert(Session(name=f"talk {uuid4()}", created_at=at))
    for index, text in enumerate(texts):
        said = Message(session_id=session.id, message_index=index, role=Role.USER, content=text, created_at=at)
        await store.upsert(said)
    return session


async def dream(rem: Rem, store: Store, *, rescan: bool = False, mind: ExtractionModel | None = None) -> DreamReport:
    """A night of entities."""
    return await rem.dreamer(mind).dream(store.scope, ["entities"], rescan=rescan)


async def entities(store: Store) -> list[str]:
    """The keys of what is known."""
    return [str(row.key) for row in await store.find(Ontology, order_by="name", limit=1000)]


async def entity(store: Store, label: str) -> Ontology:
    """The one thing that answers to a name."""
    (found,) = await store.lookup(label, table="ontologies")
    assert isinstance(found, Ontology)
    return found


async def mentions(store: Store, session: Session) -> list[str]:
    """What a session mentions, as type and key."""
    stored = await store.get(Session, session.id)
    return sorted(
        f"{edge.properties['dst_entity_type']}/{edge.dst}"
        for edge in stored.graph_edges
        if edge.rel_type == "mentions" and edge.origin == "dream:entities"
    )


async def everything(sql: asyncpg.Connection[asyncpg.Record]) -> list[tuple[Any, ...]]:
    """All statements and all that they made, to compare before and after."""
    statements = await sql.fetch(
        "SELECT id, state, name, value::text, confidence, valid_from, valid_to FROM statements ORDER BY id"
    )
    rows = await sql.fetch("SELECT to_jsonb(o.*)::text FROM ontologies o ORDER BY o.id")
    edges = await sql.fetch("SELECT s.id, s.graph_edges::text FROM sessions s ORDER BY s.id")
    return [tuple(row) for row in (*statements, *rows, *edges)]


async def shape(store: Store, sql: asyncpg.Connection[asyncpg.Record]) -> list[Any]:
    """What is known, without what is different each time: names, texts (their order is that of time), aliases, and who
    mentions what."""
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


async def message_ids(sql: asyncpg.Connection[asyncpg.Record], session: Session) -> list[UUID]:
    """The messages of a session, in order."""
    rows = await sql.fetch("SELECT id FROM messages WHERE session_id = $1 ORDER BY message_index", session.id)
    return [row[0] for row in rows]

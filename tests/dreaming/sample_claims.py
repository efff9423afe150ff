"""A night for tests: a run of one owner, whose claims the test itself makes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import asyncpg

from rem.app import Rem
from rem.context import Scope
from rem.db.sql import query
from rem.db.store import Store
from rem.dreaming.claims import ClaimSource, EdgeClaim, FieldClaim, RowClaim, RowRef
from rem.dreaming.run import DreamRun
from rem.models import Edge, Entity, Moment, Resource, User
from rem.settings import DreamingSettings


async def night_for(rem: Rem, store: Store) -> DreamRun:
    """A night of a store's owner, in a run of its own."""
    async with rem.database.connection() as connection:
        owner = store.scope.tenant_id, store.scope.user_id
        run_id: UUID = await connection.fetchval(query("dreaming", "begin_run"), *owner, ["test"], None)
    return DreamRun(store, DreamingSettings(), run_id, rem._embedder)


async def note(store: Store, name: str, content: str = "Something.") -> Resource:
    """A text in somebody's memory."""
    return await store.upsert(Resource(name=name, content=content))


def ref(entity: Entity) -> RowRef:
    """Where an entity is."""
    return RowRef(entity.entity_type.table, entity.id)


def sources(*entities: Entity) -> tuple[ClaimSource, ...]:
    """Entities as what a claim is made from."""
    return tuple(ClaimSource(ref(entity), str(entity.key)) for entity in entities)


def moment(name: str, *made_from: Entity, summary: str = "It happened.", **more: Any) -> RowClaim:
    """The claim that something happened."""
    return RowClaim(entity=Moment(name=name, summary=summary), sources=sources(*made_from), **more)


def edge(src: Entity, dst: Entity, *made_from: Entity, rel_type: str = "related_to", **more: Any) -> EdgeClaim:
    """The claim that one row relates to another."""
    line = Edge(dst=str(dst.key), rel_type=rel_type, properties={"dst_entity_type": dst.entity_type.table})
    return EdgeClaim(src=ref(src), edge=line, sources=sources(*(made_from or (src, dst))), **more)


def field(user: User, name: str, value: Any, *made_from: Entity, **more: Any) -> FieldClaim:
    """The claim that a field says something."""
    return FieldClaim(entity=ref(user), field=name, value=value, sources=sources(*made_from), **more)


async def moments(store: Store) -> list[Moment]:
    """The owner's moments, by name."""
    return await store.find(Moment, order_by="name")


async def dreamt_edges(store: Store, entity: Resource) -> list[tuple[str, str]]:
    """The edges that dreams drew from a row, as type and target."""
    stored = await store.get(Resource, entity.id)
    return [(line.rel_type, line.dst) for line in stored.graph_edges if line.origin.startswith("dream:")]


async def states(sql: asyncpg.Connection[asyncpg.Record]) -> dict[str, int]:
    """How many statements are in which state."""
    rows = await sql.fetch("SELECT state, count(*)::int FROM statements GROUP BY state")
    return {row[0]: row[1] for row in rows}


def keys(entities: Sequence[Entity]) -> list[str]:
    """The keys of entities."""
    return [str(entity.key) for entity in entities]


def scope_of(store: Store) -> Scope:
    """Whose memory it is."""
    return store.scope

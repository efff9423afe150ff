"""Dream runs and claims for tests of the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import asyncpg

from rem.app import Rem
from rem.db.sql import query
from rem.db.store import Store
from rem.dreams.claims import ClaimSource, EdgeClaim, FieldClaim, RowClaim, RowRef
from rem.dreams.run import DreamRun
from rem.models import Edge, Entity, Moment, Resource, User
from rem.settings import DreamingSettings


async def start_run(rem: Rem, store: Store) -> DreamRun:
    """Store a new dream run for the owner of a store, and return it."""
    async with rem.database.connection() as connection:
        owner = store.scope.tenant_id, store.scope.user_id
        run_id: UUID = await connection.fetchval(query("dreams/dreams", "begin_run"), *owner, ["test"], None)
    return DreamRun(store, DreamingSettings(), run_id, rem.embedder, rem.agents.output_schemas)


async def store_note(store: Store, name: str, content: str = "Something.") -> Resource:
    """Store a text."""
    return await store.upsert(Resource(name=name, content=content))


def to_ref(entity: Entity) -> RowRef:
    """Return the reference to an entity."""
    return RowRef(entity.entity_type.table, entity.id)


def to_sources(*entities: Entity) -> tuple[ClaimSource, ...]:
    """Return entities as sources of a claim."""
    return tuple(ClaimSource(to_ref(entity), str(entity.key)) for entity in entities)


def claim_moment(name: str, *source_entities: Entity, summary: str = "It happened.", **more: Any) -> RowClaim:
    """Return a claim of a moment."""
    return RowClaim(entity=Moment(name=name, summary=summary), sources=to_sources(*source_entities), **more)


def claim_edge(
    src: Entity, dst: Entity, *source_entities: Entity, rel_type: str = "related_to", **more: Any
) -> EdgeClaim:
    """Return a claim of an edge between two rows."""
    edge = Edge(dst=str(dst.key), rel_type=rel_type, properties={"dst_entity_type": dst.entity_type.table})
    return EdgeClaim(src=to_ref(src), edge=edge, sources=to_sources(*(source_entities or (src, dst))), **more)


def claim_field(user: User, name: str, value: Any, *source_entities: Entity, **more: Any) -> FieldClaim:
    """Return a claim of a field value."""
    return FieldClaim(entity=to_ref(user), field=name, value=value, sources=to_sources(*source_entities), **more)


async def list_moments(store: Store) -> list[Moment]:
    """Return the owner's moments, by name."""
    return await store.find(Moment, order_by="name")


async def list_derived_edges(store: Store, entity: Resource) -> list[tuple[str, str]]:
    """Return relation and target of the derived edges of a row."""
    stored = await store.get(Resource, entity.id)
    return [(edge.rel_type, edge.dst) for edge in stored.graph_edges if edge.origin.startswith("dream:")]


async def count_states(sql: asyncpg.Connection[asyncpg.Record]) -> dict[str, int]:
    """Return the number of statements by state."""
    rows = await sql.fetch("SELECT state, count(*)::int FROM statements GROUP BY state")
    return {row[0]: row[1] for row in rows}


def list_keys(entities: Sequence[Entity]) -> list[str]:
    """Return the keys of entities."""
    return [str(entity.key) for entity in entities]

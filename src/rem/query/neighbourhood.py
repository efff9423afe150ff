"""The neighbourhood of a key: the entities around it and all edges between them, to draw as a graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from rem.db.sql import query as sql
from rem.errors import NotFoundError
from rem.models.results import Hit
from rem.query.tree import Lookup, Traverse
from rem.query.verbs.lookup import require_table, run_lookup
from rem.query.verbs.traverse import run_traverse
from rem.text import collapse_spaces

if TYPE_CHECKING:
    from rem.db.store import Store

MAX_NODES = 2_000
MAX_FILTERED_NODES = 10_000
"""With a filter by table or time, so many nodes are looked at."""
MAX_NAME_CHARS = 80
MAX_EXCERPT_CHARS = 200


@dataclass(frozen=True, slots=True)
class NodeFilter:
    """Which nodes around the start are wanted."""

    tables: Collection[str] = ()
    """Tables; all if empty."""
    since: datetime | None = None
    until: datetime | None = None

    @property
    def is_empty(self) -> bool:
        """Return whether all nodes are wanted."""
        return not self.tables and self.since is None and self.until is None

    def accepts(self, node: Node) -> bool:
        """Return whether a node is wanted. Things without a time, such as people, have no wrong one."""
        if self.tables and node.table not in self.tables:
            return False
        if node.happened_at is None:
            return True
        time = node.happened_at
        return (self.since is None or time >= self.since) and (self.until is None or time < self.until)


@dataclass(frozen=True, slots=True)
class Node:
    """An entity in a graph."""

    id: UUID
    table: str
    key: str
    name: str
    excerpt: str
    depth: int
    """The number of edges from the start; 0 for the start itself."""
    happened_at: datetime | None


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """An edge between two nodes."""

    source: UUID
    target: UUID
    rel_type: str
    weight: float


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """The nodes around a key, nearest first, and the edges between them."""

    nodes: list[Node]
    edges: list[GraphEdge]
    is_cut: bool
    """There are more nodes than were asked for."""


async def find_neighbourhood(
    store: Store,
    key: str,
    *,
    table: str | None = None,
    edge_types: Sequence[str] = (),
    wanted: NodeFilter | None = None,
    depth: int = 1,
    limit: int = 200,
) -> Neighbourhood:
    """Return the entities that edges of some types connect with a key, in both directions.

    Raise NotFoundError if nothing has the key.
    """
    wanted = wanted or NodeFilter()
    for name in (table, *wanted.tables):
        await require_table(store, name)
    lookup = Lookup((key,), table)
    start = await run_lookup(store, lookup, with_texts=False)
    if not start.hits:
        raise NotFoundError(f"Nothing is stored under {key!r}.")
    walk = Traverse(lookup, tuple(edge_types), depth=depth, direction="both")
    max_nodes = limit + 1 if wanted.is_empty else MAX_FILTERED_NODES
    reached = await run_traverse(store, walk, start, max_nodes=max_nodes)
    first = [_make_node(hit, 0) for hit in start.hits]
    others = [node for hit in reached.hits if hit.walk and wanted.accepts(node := _make_node(hit, hit.walk.depth))]
    nodes = [*first, *others[: max(limit - len(first), 0)]]
    is_cut = len(first) + len(others) > len(nodes) or len(reached.hits) >= max_nodes
    edges = await _load_edges(store, nodes, edge_types)
    connected = set(_find_connected(first, edges))
    # A filter may have taken away the nodes that connect others with the start.
    kept = [node for node in nodes if node.id in connected]
    return Neighbourhood(kept, [edge for edge in edges if edge.source in connected], is_cut)


async def _load_edges(store: Store, nodes: Sequence[Node], edge_types: Sequence[str]) -> list[GraphEdge]:
    rows = await store.executor.read(
        lambda connection: connection.fetch(
            sql("query/query", "edges_between"),
            store.scope.tenant_id,
            store.scope.user_id,
            [node.table for node in nodes],
            [node.id for node in nodes],
            list(edge_types),
        )
    )
    return [GraphEdge(*row) for row in rows]


def _find_connected(start: Sequence[Node], edges: Sequence[GraphEdge]) -> Iterator[UUID]:
    """Yield the ids of the nodes that edges connect with the start, and of the start."""
    neighbours: dict[UUID, set[UUID]] = defaultdict(set)
    for edge in edges:
        neighbours[edge.source].add(edge.target)
        neighbours[edge.target].add(edge.source)
    level = {node.id for node in start}
    seen: set[UUID] = set()
    while level:
        yield from level
        seen |= level
        level = set().union(*(neighbours[node] for node in level)) - seen


def _make_node(hit: Hit, depth: int) -> Node:
    text = collapse_spaces(hit.text)
    # The key of a message says nothing to people.
    name = str(hit.record.get("name") or (text if hit.table == "messages" else "") or hit.key)
    return Node(
        UUID(hit.id),
        hit.table,
        hit.key,
        _shorten(name, MAX_NAME_CHARS),
        _shorten(text, MAX_EXCERPT_CHARS),
        depth,
        hit.happened_at,
    )


def _shorten(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else f"{text[: max_chars - 1].rstrip()}…"

"""`/graph`: the entities around a key, and the edges between them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from rem.api.dependencies import RemDep, ScopeDep
from rem.api.openapi_errors import error_responses
from rem.api.routes.moments import Time
from rem.query.neighbourhood import MAX_NODES, GraphEdge, Node, NodeFilter

router = APIRouter(prefix="/graph", tags=["query"])

MAX_DEPTH = 5


class Graph(BaseModel):
    """Entities and the edges between them."""

    nodes: list[Node] = Field(description="The entities with the key first, then the nearest.")
    edges: list[GraphEdge]
    is_cut: bool = Field(description="Whether there are more entities than `limit`.")


@router.get("", summary="Get the graph around a key", responses=error_responses(404))
async def get_graph(
    rem: RemDep,
    scope: ScopeDep,
    key: Annotated[str, Query(description="The key in the middle.", min_length=1, max_length=1024)],
    table: Annotated[str | None, Query(description="The table of the entity in the middle.")] = None,
    rel_type: Annotated[list[str] | None, Query(description="Follow only edges of these types.")] = None,
    tables: Annotated[list[str] | None, Query(description="Only entities of these tables.")] = None,
    since: Annotated[
        Time | None, Query(description="Only entities of this time or later, and those without one.")
    ] = None,
    until: Annotated[Time | None, Query(description="Only entities before this time, and those without one.")] = None,
    depth: Annotated[int, Query(ge=1, le=MAX_DEPTH, description="The number of edges to follow.")] = 1,
    limit: Annotated[int, Query(ge=1, le=MAX_NODES, description="The maximum number of entities.")] = 200,
) -> Graph:
    """Return the entities that edges connect with a key, in both directions, and all edges between them."""
    wanted = NodeFilter(tuple(tables or ()), since, until)
    found = await rem.for_user(scope).find_neighbourhood(
        key, table=table, edge_types=rel_type or (), wanted=wanted, depth=depth, limit=limit
    )
    return Graph(nodes=found.nodes, edges=found.edges, is_cut=found.is_cut)

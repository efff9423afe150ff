"""SEARCH: what a text is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rem.query.result import QueryResult, Step
from rem.retrieval.search import Hit, SearchRequest

if TYPE_CHECKING:
    from rem.db.store import Store
    from rem.query.tree import Search
    from rem.retrieval.search import Searcher


async def run_search(searcher: Searcher, store: Store, query: Search) -> QueryResult:
    """The entities that fit best, with how well, and the passage that shows it."""
    request = SearchRequest(
        text=query.text,
        table=query.table,
        where=query.where.condition if query.where else None,
        field=query.field,
        min_similarity=query.min_similarity,
        mode=query.mode,
        limit=query.limit,
    )
    found = await searcher.search(store, request)
    steps = tuple(Step(name, milliseconds, rows) for name, milliseconds, rows in found.steps)
    return QueryResult("SEARCH", [_row(hit) for hit in found.hits], tuple(found.notes), steps)


def _row(hit: Hit) -> dict[str, Any]:
    return {
        "table": hit.entity_type,
        "key": hit.record["key"],
        "score": hit.score,
        "similarity": hit.similarity,
        "weight": hit.weight,
        "passage": hit.passage,
        "record": hit.record,
    }

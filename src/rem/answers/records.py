"""Find the tables and lists that a question may be about, by its words and in the rows that were read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from rem.answers.sources import YOU, find_title
from rem.answers.tables import AskedRow, AskedTable
from rem.models import Entity, Message, Record, Resource
from rem.models.results import Hit
from rem.query.tree import Search

if TYPE_CHECKING:
    from rem.db.store import Store
    from rem.knowledge.record_tables import RecordTable
    from rem.query.executor import QueryExecutor

MAX_FOUND_RECORDS = 5
MAX_SOURCE_ROWS = 3
"""Rows of an answer whose tables are read."""


async def find_tables(
    executor: QueryExecutor, store: Store, question: str, hits: Sequence[Hit]
) -> list[tuple[AskedTable, Hit]]:
    """Return the tables and lists for a question, likeliest first, each with the row that contains it."""
    # Its import takes the readers of files along.
    from rem.knowledge.record_tables import load_tables

    found = await executor.run(Search(question, table="records", limit=MAX_FOUND_RECORDS, mode="text"))
    ids = [UUID(hit.id) for hit in (*found.hits, *hits[:MAX_SOURCE_ROWS])]
    known = {hit.id: hit for hit in hits}
    tables = [table for table in await load_tables(store, ids) if table.is_complete] if ids else []
    sources = [await _find_source(store, table.rows[0], known) for table in tables]
    return [(_to_table(table, source), source) for table, source in zip(tables, sources, strict=True)]


def _to_table(table: RecordTable, source: Hit) -> AskedTable:
    """Return a table with its caption. One without a caption, such as a CSV file, is about what its source is."""
    rows = [AskedRow(list(map(str, row.headers)), list(map(str, row.values))) for row in table.rows]
    title = find_title(source)
    return AskedTable(table.caption or ("" if title == YOU else title), rows)


async def _find_source(store: Store, record: Record, known: dict[str, Hit]) -> Hit:
    """Return the note, chunk or message that contains a record."""
    if hit := known.get(str(record.source_id)):
        return hit
    model: type[Entity] = Message if record.source_table == "messages" else Resource
    sources = await store.find(model, {"id": record.source_id}, limit=1)
    if not sources:
        return Hit("records", str(record.id), record.model_dump(mode="json"))
    return Hit(record.source_table, str(sources[0].key), sources[0].model_dump(mode="json"))

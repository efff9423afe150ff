"""Find the tables and lists that a question may be about, by its words and in the rows that were read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from rem.answers.row_choice import choose_rows, estimate_table
from rem.answers.sources import YOU, find_title
from rem.answers.tables import AskedRow, AskedTable, TableReading
from rem.fair_map import map_fairly
from rem.models import Entity, Message, Record, Resource
from rem.models.results import Hit
from rem.query.tree import Search
from rem.search.reader import MessageType, RowReading, RowText
from rem.text import FUNCTION_WORDS, split_words

if TYPE_CHECKING:
    from rem.answers.reading import AnswerReader
    from rem.db.store import Store
    from rem.knowledge.record_tables import RecordTable
    from rem.query.executor import QueryExecutor

MAX_FOUND_RECORDS = 5
MAX_SOURCE_ROWS = 3
"""Rows of an answer whose tables are read."""
MAX_READ_ROWS = 48
"""Rows of tables that are read for a question."""
NOT_READ = RowReading(0.0, 0.4, (0, 0), (0, 0), 0.0)
"""A very long row. Nothing is known about it, so that nothing is counted."""


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
    return [(await _to_table(table, source), source) for table, source in zip(tables, sources, strict=True)]


async def read_tables(
    reader: AnswerReader, question: str, kind: MessageType, tables: Sequence[AskedTable]
) -> list[TableReading]:
    """Return what the reader says about the rows of tables; of a long one, about those with words of the question."""
    asked = frozenset(split_words(question)) - FUNCTION_WORDS
    left, chosen = MAX_READ_ROWS, []
    for table in tables:
        rows = await _choose_rows(table.rows, asked, left)
        left -= len(rows)
        if rows:
            chosen.append(AskedTable(table.caption, rows, is_complete=len(rows) == len(table.rows)))
    texts = [RowText(row.write()[0], table.caption) for table in chosen for row in table.rows]
    found = iter(await reader.read(question, texts))
    return [_to_reading(question, kind, table, [next(found, None) or NOT_READ for _ in table.rows]) for table in chosen]


def _to_reading(question: str, kind: MessageType, table: AskedTable, readings: Sequence[RowReading]) -> TableReading:
    texts = [row.write()[0] for row in table.rows]
    shares = choose_rows(question, kind, texts, readings)
    return TableReading(table, readings, shares, estimate_table(question, kind, table.caption, texts, readings))


async def _choose_rows(rows: Sequence[AskedRow], asked: frozenset[str], limit: int) -> Sequence[AskedRow]:
    """Return at most so many rows in their order: those with most words of the question."""
    if len(rows) <= limit:
        return rows
    common = await map_fairly(lambda row: len(asked.intersection(split_words(" ".join(row.values)))), rows)
    best = sorted(range(len(rows)), key=lambda place: -common[place])[:limit]
    return [rows[place] for place in sorted(best)]


async def _to_table(table: RecordTable, source: Hit) -> AskedTable:
    """Return a table with its caption. One without a caption, such as a CSV file, is about what its source is."""
    rows = await map_fairly(_to_row, table.rows)
    title = find_title(source)
    return AskedTable(table.caption or ("" if title == YOU else title), rows)


def _to_row(row: Record) -> AskedRow:
    return AskedRow(list(map(str, row.headers)), list(map(str, row.values)), row.checked)


async def _find_source(store: Store, record: Record, known: dict[str, Hit]) -> Hit:
    """Return the note, chunk or message that contains a record."""
    if hit := known.get(str(record.source_id)):
        return hit
    model: type[Entity] = Message if record.source_table == "messages" else Resource
    sources = await store.find(model, {"id": record.source_id}, limit=1)
    if not sources:
        return Hit("records", str(record.id), record.model_dump(mode="json"))
    return Hit(record.source_table, str(sources[0].key), sources[0].model_dump(mode="json"))

"""Search a text in every column of every table, with plain SQL."""

from __future__ import annotations

import asyncpg

_COLUMNS = """
SELECT format('%I.%I', n.nspname, c.relname) AS table_name, quote_ident(a.attname) AS name,
       a.atttypid = 'bytea'::regtype AS is_bytes
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relkind IN ('r', 'p') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
ORDER BY 1, 2
"""


async def find_traces(sql: asyncpg.Connection[asyncpg.Record], text: str) -> dict[str, int]:
    """Count the rows that contain the text, in any case, by column."""
    counts = {}
    for table, name, is_bytes in await sql.fetch(_COLUMNS):
        value = f"encode(t.{name}, 'escape')" if is_bytes else f"t.{name}::text"
        count = await sql.fetchval(f"SELECT count(*) FROM {table} t WHERE strpos(lower({value}), lower($1)) > 0", text)
        if count:
            counts[f"{table}.{name}"] = count
    return counts


async def find_in_planner_stats(sql: asyncpg.Connection[asyncpg.Record], text: str) -> list[str]:
    """Return the columns for which the planner keeps a sample value with the text."""
    rows = await sql.fetch(
        "SELECT format('%s.%s.%s', schemaname, tablename, attname) FROM pg_stats s"
        " WHERE strpos(lower(s::text), lower($1)) > 0 ORDER BY 1",
        text,
    )
    return [column for (column,) in rows]

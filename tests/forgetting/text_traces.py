"""Looks for a text in every column of every table of the database, past all of REM."""

from __future__ import annotations

import asyncpg

_COLUMNS = """
SELECT format('%I.%I', n.nspname, c.relname) AS place, quote_ident(a.attname) AS name,
       a.atttypid = 'bytea'::regtype AS is_bytes
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relkind IN ('r', 'p') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
ORDER BY 1, 2
"""


async def traces(sql: asyncpg.Connection[asyncpg.Record], text: str) -> dict[str, int]:
    """How many rows have the text in which column, in any case."""
    found = {}
    for place, name, is_bytes in await sql.fetch(_COLUMNS):
        value = f"encode(t.{name}, 'escape')" if is_bytes else f"t.{name}::text"
        number = await sql.fetchval(f"SELECT count(*) FROM {place} t WHERE strpos(lower({value}), lower($1)) > 0", text)
        if number:
            found[f"{place}.{name}"] = number
    return found


async def sampled(sql: asyncpg.Connection[asyncpg.Record], text: str) -> list[str]:
    """Of which columns the planner has kept a value with the text in it."""
    rows = await sql.fetch(
        "SELECT format('%s.%s.%s', schemaname, tablename, attname) FROM pg_stats s"
        " WHERE strpos(lower(s::text), lower($1)) > 0 ORDER BY 1",
        text,
    )
    return [place for (place,) in rows]

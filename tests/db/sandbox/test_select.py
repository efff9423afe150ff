"""SELECT statements of users: supported statements, JSON values, limits and error messages."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from rem.app import Rem
from rem.context import Scope
from rem.db.sandbox import SqlSandbox
from rem.errors import InvalidInputError, QueryLimitError, QuerySyntaxError
from rem.models import Entity, Resource
from rem.query.tree import Sql
from rem.query.verbs.sql import run_sql
from rem.settings import Settings
from tests.db.sandbox.conftest import ALICE, SECRET, Client, sandbox_on

_TABLES = ["resources", "users", "documents", "sessions", "messages", "kv_store", "edges"]
_READING = [
    "SELECT r.name, k.entity_key FROM resources r JOIN kv_store k ON k.entity_id = r.id WHERE r.user_id = 'alice'",
    "SELECT src_key, rel_type, dst_key FROM edges WHERE src_key = 'alice-apple'",
    "WITH mine AS (SELECT * FROM resources WHERE user_id IS NOT NULL) SELECT count(*) FROM mine",
    "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 5) SELECT sum(n) FROM t",
    "SELECT name, row_number() OVER (ORDER BY name), lag(name) OVER w FROM users WINDOW w AS (ORDER BY id) LIMIT 1",
    "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY ordinal) FROM resources",
    "SELECT count(*) FILTER (WHERE user_id IS NULL), string_agg(name, ', ' ORDER BY name) FROM resources",
    "SELECT t.tag FROM resources r CROSS JOIN LATERAL unnest(r.tags) AS t (tag) WHERE r.user_id = 'alice'",
    "SELECT jsonb_object_keys(metadata) AS k FROM resources GROUP BY 1 ORDER BY 1 LIMIT 1",
    "SELECT metadata #>> '{text}', metadata ? 'x', metadata @> '{\"x\": \"y\"}' FROM resources LIMIT 1",
    "SELECT name FROM resources WHERE name ILIKE 'AL%' AND name ~ 'apple$' AND content LIKE '%pp%'",
    "SELECT date_trunc('day', created_at), extract(year FROM created_at), now() - interval '1 day' FROM users LIMIT 1",
    "SELECT created_at AT TIME ZONE 'UTC', age(created_at), to_char(created_at, 'YYYY') FROM users LIMIT 1",
    "SELECT name FROM users WHERE key = rem_key('Alice_Apple User')",
    "SELECT word_similarity('appl', name) > 0.5 FROM resources WHERE user_id = 'alice'",
    "SELECT to_tsvector('english', content) @@ websearch_to_tsquery('english', 'apple') FROM resources LIMIT 1",
    "SELECT '[1,2]'::vector <=> '[2,1]'::vector AS distance",
    "(SELECT 1 AS n) UNION ALL (SELECT 2) ORDER BY n LIMIT 1",
    "VALUES (1)",
    "SELECT trim(name), trim(BOTH FROM name), trim(coalesce(name, '')), btrim(name), ltrim(name) FROM users LIMIT 1",
    "SELECT replace(name, 'a', 'b'), split_part(name, ' ', 1), substr(name, 2), left(name, 1) FROM users LIMIT 1",
    "WITH a AS (SELECT 1), b (n, m) AS (SELECT 2, 3), c (n) AS MATERIALIZED (SELECT 4) SELECT * FROM a, b, c",
    "SELECT row_to_json(r) FROM resources r LIMIT 1",
    "SELECT r::text, (r).name, r.* FROM resources r LIMIT 1",
    "SELECT ctid, xmin, tableoid FROM resources LIMIT 1",
    "SELECT * FROM rem.resources TABLESAMPLE BERNOULLI (100) LIMIT 1;",
    'SELECT "name" -- a comment; and another\nFROM "resources" /* and /* a nested */ one */ LIMIT 1',
    "SELECT 'DROP TABLE x; --' AS text, $$DELETE$$, E'it\\'s'",
    "SELECT g FROM generate_series('2026-01-01'::timestamptz, '2026-01-02', '1 month') g",
]
_REFUSED: list[tuple[str, type[InvalidInputError]]] = [
    ("DELETE FROM users", InvalidInputError),
    ("UPDATE users SET name = ''", InvalidInputError),
    ("WITH x AS (INSERT INTO users DEFAULT VALUES RETURNING *) SELECT * FROM x", InvalidInputError),
    ("SELECT * INTO mine FROM users", InvalidInputError),
    ("CREATE TABLE x ()", InvalidInputError),
    ("EXPLAIN SELECT 1", InvalidInputError),
    ("SELECT 1 FROM users FOR NO KEY UPDATE", InvalidInputError),
    ("SELECT 1; SELECT 2", InvalidInputError),
    ("SELECT lenght(name) FROM users", QuerySyntaxError),
    ("SELECT translate(name, 'a', 'b') FROM users", InvalidInputError),
    ("SELECT format('%s', name) FROM users", InvalidInputError),
    ("SELECT strpos(name, 'a') FROM users", InvalidInputError),
    ("SELECT position('a' IN name) FROM users", InvalidInputError),
    ("WITH t AS (SELECT 'x' s, 9 n) SELECT 1, repeat(s, n) AS y FROM t", InvalidInputError),
    ("SELECT 1 --\r, pg_sleep(1)\n, pg_sleep(1)", InvalidInputError),
    ("SELECT * FROM pg_stat_activity", InvalidInputError),
    ("SELECT nmae FROM users", QuerySyntaxError),
    ("SELECT 1 +", QuerySyntaxError),
    ("SELECT\n  'abc", QuerySyntaxError),
    ("   ", InvalidInputError),
    ("-- nothing", InvalidInputError),
    ("hello", QuerySyntaxError),
]
"""Statements, and the classes of their errors, if the catalogue is closed as on the embedded server."""


class Gadget(Entity, table="gadgets"):
    name: str
    price: float = 0.0


async def test_plain_table_names_show_rows_of_the_scope(alice_sql: Client) -> None:
    assert await alice_sql.select("SELECT name, user_id FROM resources ORDER BY name") == [
        {"name": "alice apple", "user_id": "alice"},
        {"name": "shared apple", "user_id": None},
    ]
    assert len(await alice_sql.select("SELECT name FROM users LIMIT 3")) == 2
    assert len(await alice_sql.select("TABLE resources")) == 2
    rows = await alice_sql.select("SELECT * FROM resources WHERE metadata->>'x' = 'y'")
    assert {row["key"] for row in rows} == {"alice-apple", "shared-apple"}


async def test_every_table_shows_own_and_shared_rows(rem: Rem, alice_sql: Client) -> None:
    expected = {"alice": 2, "bob": 2, "nobody": 1, "someone": 1}
    for user, count in expected.items():
        client = Client(alice_sql.sandbox, Scope("default", None if user == "nobody" else user))
        assert await client.select("SELECT count(*) AS n FROM resources") == [{"n": count}]
        assert await client.select("SELECT count(*) AS n FROM edges") == [{"n": count}]
    assert await Client(alice_sql.sandbox, Scope("empty", "alice")).select("SELECT * FROM resources") == []
    for table in _TABLES:
        rows = await alice_sql.select(f"SELECT * FROM {table}")
        assert rows, table
        assert SECRET not in json.dumps(rows), table


async def test_reading_statements_work(alice_sql: Client, subtests: pytest.Subtests) -> None:
    for statement in _READING:
        with subtests.test(statement):
            assert len(await alice_sql.select(statement)) == 1


async def test_values_are_plain_json(client: Client) -> None:
    (row,) = await client.select(
        """SELECT 1.10::numeric AS decimal, 12345678901234567890123::numeric AS long,
             0.12345678901234567891::numeric AS exact, 2 ^ 62::bigint AS power, 9223372036854775807 AS bigint,
             'NaN'::float8 AS nan, 0.1::float4 AS real, '\\xdead'::bytea AS bytes,
             '00000000-0000-0000-0000-000000000001'::uuid AS id, '2026-01-02T03:04:05+01'::timestamptz AS at,
             '2026-01-02'::date AS day, '{1,NULL}'::int[] AS list, '{"a": [1, null, 1.5]}'::jsonb AS json,
             NULL AS nothing, true AS yes, '[1,2.5]'::vector AS vector, int4range(1, 3) AS range,
             interval '1 day 2 hours' AS span, 'naïve 🍍' AS text"""
    )
    assert row == {
        "decimal": 1.1,
        "long": "12345678901234567890123",
        "exact": "0.12345678901234567891",
        "power": 4611686018427387904,
        "bigint": 9223372036854775807,
        "nan": "NaN",
        "real": 0.1,
        "bytes": "\\xdead",
        "id": "00000000-0000-0000-0000-000000000001",
        "at": "2026-01-02T02:04:05+00:00",
        "day": "2026-01-02",
        "list": [1, None],
        "json": {"a": [1, None, 1.5]},
        "nothing": None,
        "yes": True,
        "vector": "[1,2.5]",
        "range": "[1,3)",
        "span": "1 day 02:00:00",
        "text": "naïve 🍍",
    }
    assert not any(isinstance(value, float) and not math.isfinite(value) for value in row.values())


async def test_columns_with_the_same_name_are_numbered(client: Client) -> None:
    (row,) = await client.select("SELECT 1 AS a, 2 AS a, 3 AS a_2, 4 AS a, 5, 6")
    assert row == {"a": 1, "a_2": 2, "a_2_2": 3, "a_3": 4, "?column?": 5, "?column?_2": 6}


async def test_rows_beyond_the_limit_are_cut_off_and_reported(rem: Rem, settings: Settings, alice_sql: Client) -> None:
    small = sandbox_on(rem, settings, max_rows=3)
    store = rem.for_user("alice").store
    result = await run_sql(small, store, Sql("SELECT n FROM generate_series(1, 10) n"))
    assert result.rows == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert [note.code for note in result.notes] == ["rows_cut"]
    assert [(step.name, step.rows) for step in result.steps] == [("select", 3)]
    exact = await run_sql(small, store, Sql("SELECT n FROM generate_series(1, 3) n"))
    assert (exact.verb, exact.count, exact.notes) == ("SQL", 3, ())
    assert (await run_sql(small, store, Sql("SELECT 1 AS n"), limit=1)).as_json()["results"] == [{"n": 1}]
    assert len((await alice_sql.selection("SELECT n FROM generate_series(1, 10) n", limit=2)).rows) == 2
    with pytest.raises(InvalidInputError, match="at least 1"):
        await alice_sql.select("SELECT 1", limit=0)
    await small.close()


async def test_rows_beyond_the_byte_limit_are_cut_off_and_reported(rem: Rem, settings: Settings) -> None:
    sandbox = sandbox_on(rem, settings, max_bytes=1000)
    selection = await sandbox.select(ALICE, "SELECT md5(n::text) AS m FROM generate_series(1, 100) n")
    assert selection.is_cut_off
    assert 10 < len(selection.rows) < 30
    with pytest.raises(QueryLimitError, match="The first row alone has more than 1,000 bytes"):
        await sandbox.select(ALICE, "SELECT string_agg(n::text, '') FROM generate_series(1, 1000) n")
    await sandbox.close()


async def test_new_custom_types_are_readable_and_protected(rem: Rem, settings: Settings, memories: None) -> None:
    sandbox = sandbox_on(rem, settings)
    client = Client(sandbox, ALICE)
    with pytest.raises(InvalidInputError, match="gadgets"):
        await client.select("SELECT * FROM gadgets")
    await rem.register(Gadget)
    await rem.for_user("alice").store.upsert(Gadget(name="Lamp", price=3.5))
    await rem.for_user("bob").store.upsert(Gadget(name=SECRET))
    assert await client.select("SELECT name, price FROM gadgets") == [{"name": "Lamp", "price": 3.5}]
    await sandbox.close()


async def test_other_statements_are_refused(client: Client, sql: Any, subtests: pytest.Subtests) -> None:
    await sql.execute("SELECT rem.rem_sql_close_catalog()")
    for statement, kind in _REFUSED:
        with subtests.test(statement):
            with pytest.raises(InvalidInputError) as refused:
                await client.select(statement)
            assert type(refused.value) is kind


async def test_unknown_table_names_the_tables(client: Client) -> None:
    with pytest.raises(QuerySyntaxError, match="users") as refused:
        await client.select("SELECT *\nFROM nobody")
    assert (refused.value.line, refused.value.column) == (2, 6)


async def test_syntax_error_has_line_and_column(client: Client) -> None:
    with pytest.raises(QuerySyntaxError) as refused:
        await client.select("SELECT name,\n  nothing FROM users")
    assert (refused.value.line, refused.value.column) == (2, 3)


async def test_pool_opens_with_the_first_query_and_again_after_closing(sandbox: SqlSandbox, rem: Rem, sql: Any) -> None:
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE usename LIKE 'rem_sql_%' AND datname = current_database()"
    assert await sql.fetchval(sessions) == 0
    for _ in range(2):
        assert (await sandbox.select(ALICE, "SELECT 1 AS n")).rows == [{"n": 1}]
        assert await sql.fetchval(sessions) == 1
        await sandbox.close()
        await sandbox.close()
    await rem.for_user("alice").store.upsert(Resource(name="still here"))

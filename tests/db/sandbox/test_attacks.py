"""No statement of a user can write, read rows of others or exceed its timeout, with any set of protections."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import asyncpg
import pytest

from rem.app import Rem
from rem.errors import DatabaseUnavailableError, QueryLimitError
from rem.models import Resource
from rem.settings import Settings
from tests.db.sandbox.conftest import ALICE, BOB, SECRET, TIMEOUT, Client, Connection, Protection, sandbox_on

_MAX_SECONDS = TIMEOUT + 5.0
"""How long an attack may take on a machine that does other things meanwhile."""

REFUSED_ALWAYS = {
    "delete": "DELETE FROM resources",
    "behind a comment that a carriage return ends": "SELECT 1 --\r; DELETE FROM resources",
    "behind a comment": "/* SELECT */ -- SELECT\n DELETE FROM resources",
    "second statement": "SELECT 1; DELETE FROM resources",
    "second statement in a comment's end": "SELECT 1 /* ; */ ; DROP TABLE resources --",
    "commit and write": "SELECT 1; COMMIT; DELETE FROM resources",
    "modifying CTE": "WITH d AS (DELETE FROM resources RETURNING *) SELECT * FROM d",
    "modifying CTE, materialized": "WITH d AS MATERIALIZED (UPDATE users SET name = 'x' RETURNING 1) SELECT 1",
    "modifying CTE, insert": "WITH i AS (INSERT INTO resources (name) VALUES ('x') RETURNING *) SELECT * FROM i",
    "select into": "SELECT * INTO stolen FROM resources",
    "select into temp": "SELECT * INTO TEMP stolen FROM resources",
    "for update": "SELECT * FROM resources FOR UPDATE",
    "for share in a subquery": "SELECT * FROM (SELECT * FROM resources FOR KEY SHARE) r",
    "truncate": "TRUNCATE resources",
    "drop": "DROP TABLE resources",
    "create temp table": "CREATE TEMP TABLE resources AS SELECT 1",
    "create function in pg_temp": "CREATE FUNCTION pg_temp.lower(text) RETURNS text LANGUAGE sql AS 'SELECT 1'",
    "copy out": "COPY resources TO STDOUT",
    "copy program": "COPY (SELECT 1) TO PROGRAM 'touch /tmp/rem-attack'",
    "do": "DO $$ BEGIN DELETE FROM rem.resources; END $$",
    "call": "CALL something()",
    "prepare": "PREPARE p AS DELETE FROM resources",
    "execute": "EXECUTE p",
    "declare": "DECLARE c CURSOR WITH HOLD FOR SELECT * FROM resources",
    "explain analyze": "EXPLAIN ANALYZE SELECT pg_sleep(5)",
    "listen": "LISTEN x",
    "notify": "NOTIFY x, 'y'",
    "lock": "LOCK TABLE resources",
    "vacuum": "VACUUM",
    "set": "SET rem.scope = 'x'",
    "set role": "SET ROLE rem",
    "set session authorization": "SET SESSION AUTHORIZATION rem",
    "reset": "RESET ALL",
    "begin": "BEGIN READ WRITE",
    "show": "SHOW ALL",
    "keys and password": "SELECT * FROM sql_access",
    "keys and password, quoted": 'SELECT inner_key FROM "rem"."sql_access"',
    "internal table": "SELECT * FROM migrations",
    "register of types": "SELECT * FROM entity_types",
    "passages": "SELECT * FROM passages",
    "lookup function": "SELECT rem.rem_lookup('other', 'alice', ARRAY['x'], NULL)",
    "resolve function": "SELECT * FROM rem.rem_resolve_key('default', 'bob', 'x', NULL)",
    "record function": "SELECT rem.rem_record('resources', 'other', id) FROM resources",
    "rebuild function": "SELECT rem.rem_rebuild_kv_store()",
    "protect function": "SELECT rem.rem_sql_use_role('postgres')",
    "login function": "SELECT rem.rem_sql_login()",
    "reopen function": "SELECT rem.rem_sql_reopen_catalog()",
    "set_config of the scope": "WITH s AS MATERIALIZED (SELECT set_config('rem.scope', 'forged', false)) "
    "SELECT r.* FROM s, resources r",
    "set_config of a user": "SELECT set_config('rem.user_id', 'bob', false), set_config('role', 'rem', false)",
    "read file": "SELECT pg_read_file('/etc/passwd')",
    "read binary file": "SELECT pg_read_binary_file('PG_VERSION')",
    "list folder": "SELECT pg_ls_dir('.')",
    "stat file": "SELECT pg_stat_file('PG_VERSION')",
    "list log": "SELECT pg_ls_logdir()",
    "lo_import": "SELECT lo_import('/etc/passwd')",
    "lo_export": "SELECT lo_export(1, '/tmp/x')",
    "nextval": "SELECT nextval('rem.migrations_position_seq')",
    "setval": "SELECT setval('rem.migrations_position_seq', 1)",
    "passwords": "SELECT * FROM pg_authid",
    "statistics": "SELECT * FROM pg_statistic",
    "dblink": "SELECT * FROM dblink('dbname=postgres', 'SELECT 1') AS t (a int)",
    "terminate another": "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'rem'",
    "reload": "SELECT pg_reload_conf()",
    "switch WAL": "SELECT pg_switch_wal()",
    "role by set_config": "SELECT set_config('role', 'rem', false), * FROM sql_access",
    "session authorization by set_config": "SELECT set_config('session_authorization', 'rem', false)",
    "read write by set_config": "SELECT set_config('transaction_read_only', 'off', false), lo_create(0)",
    "shadowing by search_path": "SELECT set_config('search_path', 'pg_temp, rem', false), * FROM entity_types",
    "empty": " ;; ",
    "only a comment": "-- SELECT",
    "unclosed comment": "SELECT 1 /* /* */",
    "unclosed string": "SELECT 'abc",
    "parameter": "SELECT $1",
    "deep brackets": f"SELECT {'(' * 10_000}1{')' * 10_000}",
    "deep subqueries": f"SELECT * FROM {'(SELECT * FROM ' * 5000}resources{') x' * 5000}",
    "a megabyte": f"SELECT '{'x' * 1_000_000}'",
    "NUL": "SELECT 'a\0b'",
    "lone surrogate": "SELECT '\ud800'",
    "xml of another's table": "SELECT table_to_xml('rem.sql_access'::regclass, true, true, '')",
    "xml of a query": "SELECT query_to_xml('SELECT * FROM rem.sql_access', true, true, '')",
    "xml of a writing query": "SELECT query_to_xml('DELETE FROM rem.resources', true, true, '')",
    "words of a query": "SELECT ts_stat('SELECT to_tsvector(inner_key::text) FROM rem.sql_access')",
    "cursor": "SELECT cursor_to_xml('c', 1, true, true, '')",
}
"""These must never run, with any set of protections."""

REFUSED_BY_CHECK_OR_CATALOGUE = {
    "sleep": "SELECT pg_sleep(10)",
    "sleep for": "SELECT pg_sleep_for('10 s')",
    "sleep, qualified": 'SELECT pg_catalog."pg_sleep"(10)',
    "sleep behind a comment that a carriage return ends": "SELECT 1, --\rpg_sleep(0)",
    "sleep as a table": "SELECT * FROM resources r, pg_sleep(10) s(a)",
    "sleep behind an operator": "SELECT 1 WHERE (SELECT '' FROM pg_sleep(10)) IS NULL",
    "advisory lock": "SELECT pg_advisory_lock(1), pg_sleep(10)",
    "advisory lock that stays": "SELECT pg_advisory_lock(1)",
    "notify function": "SELECT pg_notify('x', 'y')",
    "lo_create": "SELECT lo_create(0)",
    "lo_from_bytea": "SELECT lo_from_bytea(0, 'x')",
    "cancel another": "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()",
    "own signature": "SELECT current_setting('rem.scope')",
    "own signature as a table": "SELECT * FROM current_setting('rem.scope')",
    "timeout by set_config": "SELECT set_config('statement_timeout', '0', false), pg_sleep(10)",
    "row security by set_config": "WITH s AS MATERIALIZED (SELECT set_config('row_security', 'off', false)) "
    "SELECT * FROM s",
    "catalogue": "SELECT * FROM pg_catalog.pg_class",
    "catalogue, unqualified": "SELECT proname FROM pg_proc",
    "information schema": "SELECT * FROM information_schema.tables",
    "activity": "SELECT query FROM pg_stat_activity",
    "activity function": "SELECT pg_stat_get_activity(NULL)",
    "statistics": "SELECT * FROM pg_stats WHERE schemaname = 'rem'",
    "extended statistics": "SELECT * FROM pg_stats_ext",
    "table statistics": "SELECT * FROM pg_stat_all_tables",
    "roles": "SELECT rolname FROM pg_roles",
    "settings": "SELECT * FROM pg_settings",
    "privileges": "SELECT has_table_privilege('rem.sql_access', 'SELECT')",
    "policies": "SELECT * FROM pg_policies",
    "xml of a schema": "SELECT schema_to_xml('rem', true, true, '')",
    "xml of the database": "SELECT database_to_xml(true, true, '')",
    "xml of a table": "SELECT table_to_xml('rem.resources'::regclass, true, true, '')",
    "transaction id": "SELECT txid_current(), pg_current_xact_id()",
    "snapshot": "SELECT pg_export_snapshot()",
    "server": "SELECT inet_server_addr(), version()",
    "locks": "SELECT * FROM pg_locks",
    "logical message": "SELECT pg_logical_emit_message(true, 'x', 'y')",
    "plan of a function": "SELECT pg_get_functiondef('rem.rem_lookup'::regproc)",
    "very long text": "SELECT repeat('x', 100000000)",
    "padding": "SELECT lpad('x', 100000000)",
    "filled array": "SELECT array_fill(1, ARRAY[10000000])",
    "replaced characters": "SELECT length(translate('abc', 'ab', ''))",
    "long format": "SELECT length(format('%5s', ''))",
    "position": "SELECT strpos('ab', 'b')",
    "position, in words": "SELECT position('b' IN 'ab')",
    "position, quoted": """SELECT pg_catalog."position"('ab', 'b')""",
    "trimmed at the left": "SELECT ltrim('ab', 'a')",
    "trimmed at the right": "SELECT rtrim('ab', 'b')",
    "trimmed at the left, in words": "SELECT trim(LEADING 'a' FROM 'ab')",
    "trimmed bytes": "SELECT btrim('ab'::bytea, 'b'::bytea)",
    "behind DISTINCT ON": "SELECT DISTINCT ON (name) translate(name, name, content) FROM resources",
    "like a part of a WITH": "SELECT 1, translate(name, name, content) AS x FROM resources",
}
"""On an open server every role may do this. It must do no harm."""

HARMLESS = {
    "all rows": "SELECT * FROM resources",
    "a condition that is always true": "SELECT * FROM resources WHERE user_id = 'bob' OR true",
    "another tenant": "SELECT * FROM resources WHERE tenant_id = 'other'",
    "other tables": "SELECT u, d, m FROM users u, documents d, messages m",
    "the key cache": "SELECT * FROM kv_store",
    "the edges": "SELECT * FROM edges",
    "whole rows": "SELECT r::text, to_jsonb(r), row_to_json(r) FROM resources r",
    "whole rows in conditions": f"SELECT 1 FROM resources r WHERE r::text LIKE '%{SECRET}%'",
    "system columns": "SELECT ctid, xmin, xmax, cmin, tableoid, * FROM resources",
    "by ctid": "SELECT * FROM resources WHERE ctid = ANY (ARRAY['(0,1)','(0,2)','(0,3)','(0,4)','(0,5)']::tid[])",
    "sample": "SELECT * FROM resources TABLESAMPLE SYSTEM (100)",
    "sample function": "SELECT * FROM users TABLESAMPLE BERNOULLI (100) REPEATABLE (1)",
    "error with data": "SELECT content::int FROM resources",
    "error with data in a condition": "SELECT 1 FROM resources WHERE content::int = 1",
    "error with data in a json path": "SELECT jsonb_path_query(metadata, 'strict $.text.double()') FROM resources",
    "error with data in a cast of rows": "SELECT (r::text)::json FROM resources r",
    "error with data in an aggregate": "SELECT sum(content::numeric) FROM kv_store, resources",
    "error with data in a sort": "SELECT name FROM resources ORDER BY content::uuid",
    "error with data in a join": "SELECT 1 FROM users u JOIN resources r ON r.content::date > u.summary::date",
    "error with data by division": f"SELECT 1 / (content <> '{SECRET}')::int FROM resources",
    "error with data by regexp": "SELECT 1 FROM resources WHERE 'x' ~ ('(' || content)",
    "error by an index": f"SELECT 1 FROM resources WHERE name = '{SECRET}' OR key::int = 1",
    "exists": f"SELECT EXISTS (SELECT 1 FROM resources WHERE content = '{SECRET}') AS found",
    "count": f"SELECT count(*) AS found FROM resources WHERE content LIKE '{SECRET[:4]}%'",
    "extremes": "SELECT min(content), max(content), min(key), max(name) FROM resources",
    "left join": "SELECT b.* FROM resources a LEFT JOIN resources b ON b.user_id <> a.user_id",
    "not in": "SELECT * FROM users WHERE id NOT IN (SELECT id FROM resources)",
    "correlated": "SELECT (SELECT string_agg(x.content, ',') FROM resources x WHERE x.user_id <> r.user_id) FROM "
    "resources r",
    "union": "SELECT name FROM resources UNION ALL SELECT content FROM documents UNION ALL SELECT record FROM kv_store",
    "own scope": "SELECT rem_sql_scope()",
    "a name that shadows": "WITH resources AS (SELECT 'apple' AS content) SELECT * FROM resources, rem.resources r",
    "scope by the sandbox's own function": "SELECT rem.rem_sql_set_scope('forged'), name FROM resources",
    "scope by the sandbox's own function, first": "WITH s AS MATERIALIZED (SELECT rem.rem_sql_set_scope('x')) "
    "SELECT r.* FROM s, resources r",
    "a query in the query": "SELECT * FROM rem.rem_sql_run('forged', 'SELECT * FROM resources', 10, 1000)",
    "a writing query in the query": "SELECT * FROM rem.rem_sql_run('', 'DELETE FROM resources', 10, 1000)",
    "endless rows": "SELECT * FROM generate_series(1, 1000000000)",
    "endless rows, counted": "SELECT count(*) FROM generate_series(1, 1000000000)",
    "endless recursion": "WITH RECURSIVE t (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t",
    "endless join": "SELECT count(*) FROM generate_series(1, 100000) a, generate_series(1, 100000) b WHERE a <> b",
    "endless doubling": "WITH RECURSIVE t (s) AS (SELECT 'xxxxxxxx' UNION ALL SELECT s || s FROM t) SELECT "
    "max(length(s)) FROM t",
    "growing string": "SELECT length(string_agg(md5(n::text), '')) FROM generate_series(1, 100000000) n",
    "large sort": "SELECT md5(n::text) AS m FROM generate_series(1, 100000000) n ORDER BY m",
    "large row": "SELECT string_agg(md5(n::text), '') FROM generate_series(1, 400000) n",
    "slow regexp": "SELECT 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab' ~ '^((a|aa|a?)+)+(\\1)*$'",
    "slow regexp with a back reference": "SELECT string_agg('a', '') ~ '(a*)*(\\1b)+c' FROM generate_series(1, 20000)",
    "large numbers": "SELECT length((9::numeric ^ 99999)::text), factorial(30000)",
    "many tables": f"SELECT 1 FROM {', '.join(f'resources r{n}' for n in range(200))} LIMIT 1",
    "many conditions": f"SELECT 1 WHERE {' OR '.join(f'1 = {n}' for n in range(2, 8000))}",
    "many negations": f"SELECT {'NOT ' * 20_000}true",
    "nested arrays": f"SELECT {'ARRAY[' * 24}1{']' * 24}",
}
"""These may run. They return only Alice's own rows or computed values, within the timeout."""

ATTACKS = {
    **{f"{name} (refused)": text for name, text in REFUSED_ALWAYS.items()},
    **{f"{name} (nuisance)": text for name, text in REFUSED_BY_CHECK_OR_CATALOGUE.items()},
    **{f"{name} (harmless)": text for name, text in HARMLESS.items()},
}


async def _state(sql: Connection) -> Any:
    """Return everything that an attack could change."""
    tables = await sql.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = 'rem'::regnamespace AND relkind IN ('r', 'p')"
    )
    rows = [f"(SELECT sum(hashtext(t::text)) FROM {name} t)" for name in sorted(table[0] for table in tables)]
    return await sql.fetchrow(
        f"""SELECT {", ".join(rows)}, (SELECT count(*) FROM pg_class), (SELECT count(*) FROM pg_proc),
              (SELECT count(*) FROM pg_namespace WHERE nspname !~ '^pg_(toast_)?temp'),
              (SELECT count(*) FROM pg_largeobject_metadata), (SELECT last_value FROM rem.migrations_position_seq),
              (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database =
                (SELECT oid FROM pg_database WHERE datname = current_database()))"""
    )


async def test_attack_cannot_write_or_read_other_rows_or_exceed_the_timeout(
    mallory: Client, protection: Protection, sql: Connection, subtests: pytest.Subtests
) -> None:
    await sql.execute("ANALYZE")
    notifications: list[Any] = []
    await sql.add_listener("x", lambda *message: notifications.append(message))
    before = await _state(sql)
    for name, statement in ATTACKS.items():
        with subtests.test(name):
            started = time.perf_counter()
            ran, answer = await mallory.answer(statement)
            assert time.perf_counter() - started < _MAX_SECONDS
            assert SECRET not in answer.replace(statement, "").replace(repr(statement)[1:-1], "")
            assert await _state(sql) == before
            if "(refused)" in name or ("(nuisance)" in name and protection != "catalogue open"):
                assert not ran, answer[:500]
    assert notifications == []
    assert await mallory.select("SELECT name FROM resources ORDER BY name") == [
        {"name": "alice apple"},
        {"name": "shared apple"},
    ]


@pytest.mark.parametrize("protection", ["catalogue open"], indirect=True)
async def test_query_leaves_no_state_for_the_next(mallory: Client) -> None:
    setting = "SELECT set_config('statement_timeout', '0', false), set_config('search_path', 'pg_catalog', false)"
    for _ in range(3):
        assert await mallory.select(setting)
        started = time.perf_counter()
        with pytest.raises(QueryLimitError, match="took longer") as refused:
            await mallory.select("SELECT pg_sleep(10), count(*) FROM resources")
        # It was the server that stopped it, not only the client that went away.
        assert isinstance(refused.value.__cause__, asyncpg.QueryCanceledError)
        assert time.perf_counter() - started < _MAX_SECONDS


@pytest.mark.parametrize("protection", ["catalogue open"], indirect=True)
async def test_activity_hides_queries_and_signatures_of_others(
    mallory: Client,
) -> None:
    slow = f"SELECT pg_sleep(0.2), '{SECRET}' AS fruit"
    activity = "SELECT query FROM pg_stat_activity WHERE usename = current_user AND state = 'active'"
    # The query of the other user is short, and a busy machine may miss it or stop it.
    for _ in range(20):
        running = asyncio.create_task(mallory.sandbox.select(BOB, slow))
        await asyncio.sleep(0.1)
        seen = await mallory.select(activity)
        await asyncio.gather(running, return_exceptions=True)
        if len(seen) > 1:
            break
    assert len(seen) > 1
    assert any("rem_sql_run($1" in row["query"] for row in seen)
    assert SECRET not in str(seen)
    assert "bob" not in str(seen)


@pytest.mark.parametrize("protection", ["catalogue open"], indirect=True)
async def test_killed_connection_is_replaced(mallory: Client) -> None:
    with pytest.raises(DatabaseUnavailableError):
        await mallory.select("SELECT pg_terminate_backend(pg_backend_pid())")
    assert len(await mallory.select("SELECT * FROM resources")) == 2


@pytest.mark.parametrize("protection", ["catalogue open"], indirect=True)
async def test_planner_statistics_do_not_leak_values_of_others(rem: Rem, mallory: Client, sql: Connection) -> None:
    """PostgreSQL stores the most common values of a column. Operators must not see them before the policy."""
    for n in range(30):
        await rem.for_user("bob").store.upsert(Resource(name=f"b{n}", content=SECRET, category=SECRET))
    await sql.execute("ANALYZE resources")
    assert await sql.fetchval(
        "SELECT most_common_vals::text FROM pg_stats WHERE (tablename, attname) = ('resources', 'content')"
    )
    for statement in (
        "SELECT most_common_vals, histogram_bounds FROM pg_stats WHERE tablename = 'resources'",
        "SELECT 1 FROM resources WHERE content::int > 5",
        "SELECT 1 FROM resources WHERE category::date < '2026-01-01'",
        "SELECT 1 FROM resources WHERE ('(' || content) ~ content AND content::json IS NULL",
    ):
        _, answer = await mallory.answer(statement)
        assert SECRET not in answer


async def test_client_gives_up_if_the_server_ignores_the_timeout(rem: Rem, settings: Settings, sql: Connection) -> None:
    sandbox = sandbox_on(rem, settings, timeout_seconds=TIMEOUT)
    numbers = "SELECT array_agg(g) AS a, array_agg(-g) AS b FROM generate_series(1, 60000) g"
    started = time.perf_counter()
    with pytest.raises(QueryLimitError, match="took longer"):
        await sandbox.select(ALICE, f"SELECT a && b FROM ({numbers}) AS x")
    assert time.perf_counter() - started < _MAX_SECONDS
    assert (await sandbox.select(ALICE, "SELECT 1 AS n")).rows == [{"n": 1}]
    await sandbox.close()
    # Without its client the server ends as soon as the operator does.
    await sql.execute(
        "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity "
        "WHERE application_name = 'rem sql' AND datname = current_database()"
    )


async def test_concurrent_queries_of_two_users_never_mix(rem: Rem, settings: Settings, memories: None) -> None:
    sandbox = sandbox_on(rem, settings)
    clients = [Client(sandbox, scope) for scope in (ALICE, BOB)] * 10
    statement = "SELECT DISTINCT user_id FROM resources r, generate_series(1, 200) WHERE user_id IS NOT NULL"
    answers = await asyncio.gather(*(client.select(statement) for client in clients for _ in range(3)))
    assert answers == [[{"user_id": client.scope.user_id}] for client in clients for _ in range(3)]
    await sandbox.close()


async def test_cancelled_query_ends_and_its_connection_serves_the_next(
    rem: Rem, settings: Settings, memories: None, sql: Connection
) -> None:
    sandbox = sandbox_on(rem, settings, pool_max_size=1)
    running = asyncio.create_task(sandbox.select(ALICE, "SELECT pg_sleep(60)"))
    await asyncio.sleep(0.3)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    started = time.perf_counter()
    assert (await sandbox.select(BOB, "SELECT rem_sql_scope() AS s")).rows == [{"s": ["default", "bob"]}]
    assert time.perf_counter() - started < 3
    active = "application_name = 'rem sql' AND state = 'active' AND datname = current_database()"
    assert await sql.fetchval(f"SELECT count(*) FROM pg_stat_activity WHERE {active}") == 0
    await sandbox.close()


async def test_waiting_queries_do_not_block_other_verbs(rem: Rem, settings: Settings, memories: None) -> None:
    sandbox = sandbox_on(rem, settings, timeout_seconds=1.0)
    waiting = [asyncio.create_task(sandbox.select(ALICE, "SELECT pg_sleep(0.5)")) for _ in range(8)]
    await asyncio.sleep(0.2)
    assert await rem.for_user("alice").store.lookup("alice-apple")
    assert not all(task.done() for task in waiting)
    assert len(await asyncio.gather(*waiting)) == 8
    await sandbox.close()


async def test_role_without_a_signature_can_do_nothing(role: Connection, sql: Connection) -> None:
    """Log in directly as the role: without a signed scope it sees no row."""
    for statement in (
        "SELECT * FROM rem.resources",
        "SELECT * FROM rem.kv_store",
        "SELECT * FROM rem.sql_access",
        "SELECT rem.rem_lookup('default', 'bob', ARRAY['x'], NULL)",
        "SET ROLE rem",
        "CREATE TABLE public.x ()",
        "CREATE TABLE rem.x ()",
        "CREATE SCHEMA x",
        "BEGIN READ WRITE; INSERT INTO rem.resources (name) VALUES ('x')",
        "BEGIN READ WRITE; DELETE FROM rem.resources",
        "BEGIN READ WRITE; UPDATE rem.kv_store SET record = ''",
        "ALTER TABLE rem.resources DISABLE ROW LEVEL SECURITY",
        "DROP POLICY rem_sql ON rem.resources",
        "SET row_security = off; SELECT * FROM rem.resources",
    ):
        with pytest.raises((asyncpg.InsufficientPrivilegeError, asyncpg.ReadOnlySQLTransactionError)):
            await role.execute(statement)
        await role.execute("ROLLBACK")
        await role.execute("RESET ALL")
    assert await sql.fetchval("SELECT count(*) FROM resources") == 7

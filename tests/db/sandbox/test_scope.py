"""The database accepts only a scope that REM signed for the current transaction."""

from __future__ import annotations

import json
from typing import Any

import asyncpg

from rem.context import Scope
from rem.db.sandbox import SqlSandbox
from tests.db.sandbox.conftest import ALICE, BOB, Connection

_NAMES = "SELECT name FROM rem.resources ORDER BY name"
_TRANSACTION_START = "SELECT (extract(epoch FROM now()) * 1000000)::bigint"


async def _sign(sandbox: SqlSandbox, scope: Scope, connection: Connection, **other: int) -> str:
    """Return the scope, signed for the current transaction of the connection."""
    access = await sandbox._get_access()
    moment = other.get("moment") or await connection.fetchval(_TRANSACTION_START)
    return access.credentials.sign(scope, other.get("pid") or connection.get_server_pid(), moment)


async def _names(connection: Connection, signed: str | None) -> list[str]:
    if signed is not None:
        await connection.execute("SELECT set_config('rem.scope', $1, true)", signed)
    return [name for (name,) in await connection.fetch(_NAMES)]


async def _is_refused(connection: Connection, signed: str | None) -> bool:
    try:
        async with connection.transaction():
            await _names(connection, signed)
    except asyncpg.InsufficientPrivilegeError as error:
        return str(error) == "the scope of this query is not genuine"
    return False


async def test_valid_signature_shows_the_rows_of_its_scope(sandbox: SqlSandbox, role: Connection) -> None:
    async with role.transaction(readonly=True):
        assert await _names(role, await _sign(sandbox, ALICE, role)) == ["alice apple", "shared apple"]
        assert await _names(role, await _sign(sandbox, BOB, role)) == ["bob pineapple", "shared apple"]
        assert await _names(role, await _sign(sandbox, Scope("default"), role)) == ["shared apple"]
        weird = Scope('de"fault\\', 'na"ïve, {🍍}')
        assert await _names(role, await _sign(sandbox, weird, role)) == []


async def test_invalid_signature_is_refused(sandbox: SqlSandbox, role: Connection) -> None:
    async with role.transaction(readonly=True):
        genuine = await _sign(sandbox, ALICE, role)
        mac, _, payload = genuine.partition(":")
        parts: list[Any] = json.loads(payload)
        forged = [
            None,
            "",
            ":",
            payload,
            f":{payload}",
            f"{'0' * 64}:{payload}",
            f"{mac}:{json.dumps([*parts[:3], 'bob'])}",
            f"{mac}:{payload} ",
            f"{mac.upper()}:{payload}",
            f"{mac}{payload}",
            f"{mac}:",
            mac,
            "x" * 100_000,
        ]
        for signed in forged:
            assert await _is_refused(role, signed), signed
        assert await _names(role, genuine)


async def test_signature_is_valid_only_in_its_own_transaction(sandbox: SqlSandbox, role: Connection, dsn: str) -> None:
    async with role.transaction(readonly=True):
        old = await _sign(sandbox, ALICE, role)
        assert await _names(role, old)
        assert await _is_refused(role, await _sign(sandbox, ALICE, role, pid=role.get_server_pid() + 1))
        moment = await role.fetchval(_TRANSACTION_START)
        for other in (moment - 1, moment + 1, moment + 60_000_000):
            assert await _is_refused(role, await _sign(sandbox, ALICE, role, moment=other))
        # Another backend, at the very same time.
        user = await role.fetchval("SELECT current_user")
        another = await asyncpg.connect(dsn, user=user)
        async with another.transaction(readonly=True):
            assert await _is_refused(another, old)
        await another.close()
    # The same backend, a transaction later.
    async with role.transaction(readonly=True):
        assert await _is_refused(role, old)
        assert await _names(role, await _sign(sandbox, ALICE, role))


async def test_keys_of_another_database_are_invalid(sandbox: SqlSandbox, role: Connection, sql: Connection) -> None:
    async with role.transaction(readonly=True):
        signed = await _sign(sandbox, ALICE, role)
        await sql.execute("UPDATE sql_access SET inner_key = sha512(inner_key)")
        assert await _is_refused(role, signed)
    # REM notices that its keys are stale, and reads them again.
    assert len((await sandbox.select(ALICE, "SELECT * FROM resources")).rows) == 2


async def test_policy_reads_the_scope_once_and_uses_the_owner_index(
    sandbox: SqlSandbox, role: Connection, sql: Connection
) -> None:
    await sql.execute(
        """INSERT INTO resources (name, tenant_id, user_id)
           SELECT 'r' || n, 'default', 'user-' || n % 500 FROM generate_series(1, 5000) n"""
    )
    await sql.execute("ANALYZE resources")
    async with role.transaction(readonly=True):
        await role.execute("SELECT set_config('rem.scope', $1, true)", await _sign(sandbox, ALICE, role))
        lines = [
            line for (line,) in await role.fetch("EXPLAIN ANALYZE SELECT name FROM rem.resources WHERE content ~ 'a'")
        ]
    # With partitions, the plan also lists those of other tenants.
    plan = "\n".join(line for line in lines if "never executed" not in line)
    assert "InitPlan" in plan
    assert "Seq Scan" not in plan
    assert "resources_" in plan


async def test_policies_do_not_apply_to_the_owner(sql: Connection, memories: None) -> None:
    assert await sql.fetchval("SELECT count(*) FROM resources") == 7
    assert await sql.fetchval(
        "SELECT bool_and(relrowsecurity AND NOT relforcerowsecurity) FROM pg_class WHERE relname = 'resources'"
    )

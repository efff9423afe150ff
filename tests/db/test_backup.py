"""Backups: a restored memory equals the old one in every row, and a restore never mixes or half fills memories."""

from __future__ import annotations

import asyncio
import fcntl
from pathlib import Path

import asyncpg
import pytest

from rem.app import Rem
from rem.auth.accounts import Accounts
from rem.auth.api_keys import ApiKeys
from rem.auth.identity import Role, Tier
from rem.auth.logins import Logins, hash_secret
from rem.auth.signing import Signer
from rem.db.backup import back_up, restore, split_password
from rem.db.sandbox import SqlSandbox
from rem.errors import ConflictError, DatabaseError, DatabaseUnsupportedError, InvalidInputError, RemError
from rem.jobs.queue import JobQueue
from rem.models import Edge, Resource, User
from tests.conftest import settings_for
from tests.rem_command import start_rem

TABLES = """
SELECT format('%I.%I', schemaname, tablename) FROM pg_tables
WHERE schemaname IN ('rem', 'rem_jobs', 'rem_auth') ORDER BY 1
"""
OAUTH_ROWS = """
INSERT INTO rem_auth.oauth_clients (id, registration) VALUES ('editor', '{"client_name": "Editor"}');
INSERT INTO rem_auth.oauth_codes (code_hash, tenant_id, user_id, client_id, request, expires_at)
  SELECT sha256(user_id::bytea), tenant_id, user_id, 'editor', '{}', now() + interval '5 min' FROM rem_auth.accounts;
"""
REGISTERED_AT_OPENING = {"rem.sql_access"}
"""The login of the SQL verb belongs to one database."""


async def read_all_rows(dsn: str) -> dict[str, list[str]]:
    """Return every row of every table as text."""
    connection = await asyncpg.connect(dsn)
    try:
        tables = [name for (name,) in await connection.fetch(TABLES)]
        return {
            table: sorted(text for (text,) in await connection.fetch(f"SELECT t::text FROM {table} t"))
            for table in tables
            if table not in REGISTERED_AT_OPENING
        }
    finally:
        await connection.close()


async def fill(rem: Rem) -> None:
    """Store rows of two users, with edges, a message and a deleted row, and index them."""
    alice, bob = rem.for_user("alice@example.com").store, rem.for_user("bob@example.com").store
    await alice.upsert(User(name="Grace Hopper", summary="Wrote the first compiler"))
    edges = [Edge(dst="grace-hopper", rel_type="mentions")]
    await alice.upsert(Resource(name="Notes \u2028 ünï", content="Ask Grace about the linker.", graph_edges=edges))
    gone = await bob.upsert(Resource(name="Gone", content="Deleted."))
    await bob.delete(gone)
    await rem.for_user("bob@example.com").remember("The spare key is in the blue jar.")
    await rem.index()


async def fill_logins(rem: Rem) -> tuple[str, str]:
    """Store accounts, logins, API keys and an MCP client. Return an API key and a refresh token of Alice."""
    accounts = Accounts(rem.database)
    alice = await accounts.save("alice@example.com", "default", name="Alice", role=Role.ADMIN, tier=Tier.PRO)
    await accounts.save("bob@example.com", "default")
    await accounts.set_disabled("bob@example.com", "default", disabled=True)
    keys = ApiKeys(rem.database)
    key, _ = await keys.create("laptop", "alice@example.com", "default")
    _, lost = await keys.create("lost laptop", "alice@example.com", "default")
    await keys.revoke(lost.prefix)
    tokens = await make_logins(rem).create_tokens(alice.user_id, "default")
    async with rem.database.connection() as connection:
        await connection.execute(OAUTH_ROWS)
    return key, tokens.refresh_token


def make_logins(rem: Rem) -> Logins:
    """Return the logins of a server with a fixed secret."""
    return Logins(rem.database, Signer(["s" * 64]), rem.settings.auth)


async def find_security_gaps(rem: Rem) -> list[str]:
    """Return what the role of the SQL verb may do although it should not."""
    sandbox = SqlSandbox(rem.database, rem.settings)
    try:
        return await sandbox.find_security_gaps()
    finally:
        await sandbox.close()


async def test_restored_memory_equals_the_old_one_in_every_row(dsn: str, empty_dsn: str, tmp_path: Path) -> None:
    async with Rem.open(settings_for(dsn)) as rem:
        await fill(rem)
        await fill_logins(rem)
        await JobQueue(rem.database).enqueue("dream", {"tenant_id": "default", "user_id": "alice"})
    before = await read_all_rows(dsn)

    report = await back_up(settings_for(dsn), tmp_path / "memory.backup")
    restored = await restore(settings_for(empty_dsn), tmp_path / "memory.backup")

    after = await read_all_rows(empty_dsn)
    logins = {"accounts", "api_keys", "logins", "refresh_tokens", "oauth_clients", "oauth_codes"}
    filled = {"rem.passages", "rem_jobs.jobs", *(f"rem_auth.{name}" for name in logins)}
    assert {table for table in filled if not before[table]} == set()
    assert {table for table in before if table.startswith("rem_auth.")} <= filled
    assert after == before
    assert report.size_bytes == report.file.stat().st_size
    assert report.file.stat().st_mode & 0o077 == 0
    assert restored.rows["users"] == 1
    assert restored.migrated == []


async def test_restored_memory_answers_every_verb_and_keeps_users_apart(
    dsn: str, empty_dsn: str, tmp_path: Path
) -> None:
    async with Rem.open(settings_for(dsn)) as rem:
        await fill(rem)
        gaps = await find_security_gaps(rem)
    await back_up(settings_for(dsn), tmp_path / "memory.backup")
    await restore(settings_for(empty_dsn), tmp_path / "memory.backup")

    async with Rem.open(settings_for(empty_dsn)) as rem:
        for text in (
            "LOOKUP grace-hopper",
            "FUZZY gracehoper",
            'SEARCH "linker"',
            "TRAVERSE notes-ünï",
            "SELECT name FROM users",
        ):
            own = await rem.for_user("alice@example.com").query(text)
            others = await rem.for_user("bob@example.com").query(text)
            assert own.count >= 1, text
            assert not any("race" in str(row) for row in others.hits), text
        # The rights of the SQL verb are not part of a backup.
        assert await find_security_gaps(rem) == gaps
        await rem.for_user("bob@example.com").store.upsert(Resource(name="After", content="New rows get a key."))
        assert (await rem.for_user("bob@example.com").query("LOOKUP after")).count == 1


async def test_restored_keys_and_logins_work_and_secrets_are_only_hashes(
    dsn: str, empty_dsn: str, tmp_path: Path
) -> None:
    async with Rem.open(settings_for(dsn)) as rem:
        key, refresh_token = await fill_logins(rem)
    await back_up(settings_for(dsn), tmp_path / "memory.backup")
    await restore(settings_for(empty_dsn), tmp_path / "memory.backup")

    async with Rem.open(settings_for(empty_dsn)) as rem:
        identity, _ = await ApiKeys(rem.database).identify(key)
        assert (identity.email, identity.role) == ("alice@example.com", Role.ADMIN)
        assert [stored.name for stored in await ApiKeys(rem.database).list() if stored.revoked_at] == ["lost laptop"]
        assert (await make_logins(rem).refresh(refresh_token)).refresh_token != refresh_token
    stored = "".join(row for rows in (await read_all_rows(empty_dsn)).values() for row in rows)
    assert hash_secret(key).hex() in stored
    assert key not in stored
    assert refresh_token not in stored


async def test_restore_refuses_a_database_with_accounts(dsn: str, tmp_path: Path) -> None:
    await back_up(settings_for(dsn), tmp_path / "memory.backup")
    async with Rem.open(settings_for(dsn)) as rem:
        await fill_logins(rem)
    before = await read_all_rows(dsn)

    with pytest.raises(ConflictError, match="already has accounts or API keys"):
        await restore(settings_for(dsn), tmp_path / "memory.backup")

    assert await read_all_rows(dsn) == before


async def test_restore_refuses_a_database_with_rows(dsn: str, tmp_path: Path) -> None:
    async with Rem.open(settings_for(dsn)) as rem:
        await fill(rem)
    await back_up(settings_for(dsn), tmp_path / "memory.backup")
    before = await read_all_rows(dsn)

    with pytest.raises(ConflictError, match=r"already has \d+ rows"):
        await restore(settings_for(dsn), tmp_path / "memory.backup")

    assert await read_all_rows(dsn) == before


async def test_two_restores_at_once_fill_the_database_once(dsn: str, empty_dsn: str, tmp_path: Path) -> None:
    async with Rem.open(settings_for(dsn)) as rem:
        await fill(rem)
    await back_up(settings_for(dsn), tmp_path / "memory.backup")

    restores = [restore(settings_for(empty_dsn), tmp_path / "memory.backup") for _ in range(2)]
    outcomes = await asyncio.gather(*restores, return_exceptions=True)

    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["ConflictError", "RestoreReport"]
    assert await read_all_rows(empty_dsn) == await read_all_rows(dsn)


async def test_damaged_backup_leaves_an_empty_database(dsn: str, empty_dsn: str, tmp_path: Path) -> None:
    async with Rem.open(settings_for(dsn)) as rem:
        await fill(rem)
    report = await back_up(settings_for(dsn), tmp_path / "memory.backup")
    content = report.file.read_bytes()
    report.file.write_bytes(content[: len(content) * 2 // 3])

    with pytest.raises(DatabaseError, match="pg_restore failed"):
        await restore(settings_for(empty_dsn), report.file)

    assert await read_all_rows(empty_dsn) == {}


async def test_cancelled_restore_leaves_an_empty_database(dsn: str, empty_dsn: str, tmp_path: Path) -> None:
    async with Rem.open(settings_for(dsn)) as rem:
        await fill(rem)
    await back_up(settings_for(dsn), tmp_path / "memory.backup")
    first_table = asyncio.Event()
    task = asyncio.create_task(
        restore(settings_for(empty_dsn), tmp_path / "memory.backup", on_table=lambda *_: first_table.set())
    )
    await first_table.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task

    assert await read_all_rows(empty_dsn) == {}


async def test_restore_that_cannot_be_finished_leaves_an_empty_database(
    dsn: str, empty_dsn: str, tmp_path: Path
) -> None:
    await back_up(settings_for(dsn), tmp_path / "memory.backup")
    settings = settings_for(empty_dsn)
    # PostgreSQL refuses an index of so many dimensions after the rows are restored.
    embedding = settings.embedding.model_copy(update={"dimension": 1_000_000})

    with pytest.raises(RemError):
        await restore(settings.model_copy(update={"embedding": embedding}), tmp_path / "memory.backup")

    assert await read_all_rows(empty_dsn) == {}


async def test_killed_restore_is_never_taken_for_a_whole_one_and_can_be_repeated(
    dsn: str, empty_dsn: str, tmp_path: Path
) -> None:
    """Kill the command at three moments; the program that it started goes on, and commits if nobody ends it."""
    async with Rem.open(settings_for(dsn)) as rem:
        await fill(rem)
    before = await read_all_rows(dsn)
    file = tmp_path / "memory.backup"
    await back_up(settings_for(dsn), file)
    connection = await asyncpg.connect(empty_dsn)
    for event in ("CREATE TABLE", "CREATE INDEX", None):
        await connection.execute("DROP SCHEMA IF EXISTS rem, rem_jobs, rem_auth, rem_unfinished_restore CASCADE")
        command = start_rem("db", "restore", str(file), settings={"POSTGRES__CONNECTION_STRING": empty_dsn})
        await _wait_for_restore(connection, event)
        command.kill()
        command.wait()
        with pytest.raises(DatabaseUnsupportedError, match="rem db restore"):
            async with Rem.open(settings_for(empty_dsn)):
                pass
        await restore(settings_for(empty_dsn), file)
        assert await read_all_rows(empty_dsn) == before
    await connection.close()


async def _wait_for_restore(connection: asyncpg.Connection[asyncpg.Record], event: str | None) -> None:
    """Wait until `pg_restore` runs a statement; with None, until it has committed."""
    running = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'rem-pg_restore' AND query LIKE $1"
    async with asyncio.timeout(60):
        if event is None:
            while not await connection.fetchval("SELECT to_regclass('rem.passages') IS NOT NULL"):
                pass
            return
        while not await connection.fetchval(running, f"%{event}%"):
            pass


async def test_backup_removes_what_killed_ones_left(dsn: str, tmp_path: Path) -> None:
    async with Rem.open(settings_for(dsn)) as rem:
        await fill(rem)
    file = tmp_path / "memory.backup"
    abandoned, other = tmp_path / "memory.backup.12ab34cd.unfinished", tmp_path / "other.backup.12ab34cd.unfinished"
    used = tmp_path / "memory.backup.56ef78ab.unfinished"
    for path in (abandoned, other, used):
        path.write_text("rows")
    with used.open() as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        await back_up(settings_for(dsn), file)
    assert sorted(tmp_path.glob("*backup*")) == sorted([file, other, used])


async def test_restore_refuses_other_files(empty_dsn: str, tmp_path: Path) -> None:
    (tmp_path / "rows.yaml").write_text("- table: users")

    with pytest.raises(InvalidInputError, match="not a backup"):
        await restore(settings_for(empty_dsn), tmp_path / "rows.yaml")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        await restore(settings_for(empty_dsn), tmp_path / "missing")


async def test_two_backups_to_one_name_leave_one_whole_file(dsn: str, empty_dsn: str, tmp_path: Path) -> None:
    async with Rem.open(settings_for(dsn)) as rem:
        await fill(rem)

    backups = [back_up(settings_for(dsn), tmp_path / "memory.backup") for _ in range(2)]
    outcomes = await asyncio.gather(*backups, return_exceptions=True)

    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["BackupReport", "ConflictError"]
    assert [path.name for path in tmp_path.iterdir()] == ["memory.backup"]
    await restore(settings_for(empty_dsn), tmp_path / "memory.backup")
    assert await read_all_rows(empty_dsn) == await read_all_rows(dsn)


async def test_backup_keeps_an_existing_file(dsn: str, tmp_path: Path) -> None:
    (tmp_path / "memory.backup").write_text("older")

    with pytest.raises(ConflictError, match="exists already"):
        await back_up(settings_for(dsn), tmp_path / "memory.backup")
    with pytest.raises(InvalidInputError, match="cannot be written"):
        await back_up(settings_for(dsn), tmp_path / "missing" / "memory.backup")

    assert (tmp_path / "memory.backup").read_text() == "older"
    assert [path.name for path in tmp_path.iterdir()] == ["memory.backup"]


@pytest.mark.parametrize(
    ("connection_string", "address", "password"),
    [
        ("postgresql://rem:s%40cret@db:5432/rem", "postgresql://rem@db:5432/rem?", "s@cret"),
        ("postgresql://rem@a,b/rem?sslmode=require", "postgresql://rem@a,b/rem?sslmode=require", None),
        ("postgresql:///rem?host=/run/x&password=geheim", "postgresql:///rem?host=%2Frun%2Fx", "geheim"),
    ],
)
def test_password_is_not_an_argument_of_a_process(connection_string: str, address: str, password: str | None) -> None:
    assert split_password(connection_string) == (address, password)

"""Encrypt stored texts, change the key and decrypt them again, also half-way and while others write."""

from __future__ import annotations

import asyncio
import json
from typing import TypeAlias
from uuid import uuid4

import asyncpg
import pytest

from rem.app import Rem
from rem.db.rotation import BATCH_ROWS, count_key_uses, rotate
from rem.errors import EncryptionError, ImmutableError
from rem.models import Message, Resource, Role
from rem.sessions.message import NewMessage
from rem.settings import Settings
from tests.encryption.keys import K1, K2, encrypting
from tests.forget.text_traces import find_traces
from tests.rem_command import output, start_rem
from tests.rem_command import rem as rem_command

Sql: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
ALICE = "alice@example.com"


async def list_keys(rem: Rem) -> set[str | None]:
    return {use.key_id for use in await count_key_uses(rem.database)}


async def fill(rem: Rem, rows: int = 3) -> None:
    await rem.for_user(ALICE).store.upsert_many(
        Resource(name=f"note {number}", content=f"quorvexal {number}") for number in range(rows)
    )
    call = {"id": "c", "arguments": {"q": "quorvexal"}}
    message = NewMessage(
        role=Role.TOOL, content="quorvexal", tool_calls=[call], metadata={"tool_arguments": {"q": "quorvexal"}}
    )
    await rem.for_user(ALICE).sessions.save_message(uuid4(), message)
    await rem.for_user(ALICE).remember("My sister prefers the quorvexal.", tags=["x"])


async def test_texts_are_encrypted_rotated_and_decrypted(settings: Settings, sql: Sql) -> None:
    async with Rem.open(settings) as rem:
        await fill(rem)
        await rem.index()
    before = {row["id"]: row["updated_at"] for row in await sql.fetch("SELECT id, updated_at FROM resources")}
    async with Rem.open(encrypting(settings, K1)) as rem:
        assert await list_keys(rem) == {None}
        assert await rotate(rem.database) > 0
        assert await list_keys(rem) == {"k1"}
        await rem.index()
        assert (await rem.for_user(ALICE).query("SEARCH quorvexal FROM resources")).count >= 3
    traces = await find_traces(sql, "quorvexal")
    # The key of a statement that was remembered before is made of its words.
    assert not any(name.endswith(("content", "metadata", "tool_calls", "summary")) for name in traces), traces
    async with Rem.open(encrypting(settings, K2, K1)) as rem:
        passages = await sql.fetchval("SELECT count(*) FROM passages")
        assert await rotate(rem.database) > 0
        assert await list_keys(rem) == {"k2"}
        assert await sql.fetchval("SELECT count(*) FROM passages") == passages
        assert await rotate(rem.database) == 0
    async with Rem.open(encrypting(settings, K2)) as rem:
        assert (await rem.for_user(ALICE).query("SEARCH quorvexal FROM resources")).count >= 3
        (message,) = await rem.for_user(ALICE).store.find(Message)
        assert (message.content, message.metadata) == ("quorvexal", {"tool_arguments": {"q": "quorvexal"}})
        assert (await rem.check_cache()).is_exact
    async with Rem.open(encrypting(settings, K2, enabled=False)) as rem:
        await rotate(rem.database)
    async with Rem.open(settings) as rem:
        await rem.index()
        assert (await rem.for_user(ALICE).query("SEARCH quorvexal FROM resources")).count >= 3
        (message,) = await rem.for_user(ALICE).store.find(Message)
        assert message.tool_calls == [{"id": "c", "arguments": {"q": "quorvexal"}}]
    assert await sql.fetchval("SELECT count(*) FROM resources WHERE content LIKE '%rem1:%'") == 0
    assert {row["id"]: row["updated_at"] for row in await sql.fetch("SELECT id, updated_at FROM resources")} == before


async def test_process_without_key_shows_no_ciphertext(settings: Settings) -> None:
    """It was started before the texts were encrypted, and knows nothing of the key."""
    async with Rem.open(settings) as plain:
        await fill(plain)
        assert len(await plain.for_user(ALICE).store.find(Message)) == 1
        # Its connections for SQL stay open.
        assert (await plain.for_user(ALICE).query("SELECT content FROM resources")).count > 0
        async with Rem.open(encrypting(settings, K1)) as rem:
            await rotate(rem.database)
            assert len(await rem.for_user(ALICE).store.find(Message)) == 1
            # Another process with the key ends no connection of this one.
            async with Rem.open(encrypting(settings, K1)) as second:
                assert len(await second.for_user(ALICE).store.find(Message)) == 1
            assert len(await rem.for_user(ALICE).store.find(Message)) == 1
        for work in (
            lambda: plain.for_user(ALICE).store.find(Message),
            lambda: plain.for_user(ALICE).query("SEARCH quorvexal"),
            lambda: plain.for_user(ALICE).query("LOOKUP note-1"),
            lambda: plain.for_user(ALICE).remember("My brother prefers tea."),
        ):
            with pytest.raises(EncryptionError, match="ENCRYPTION__KEYS"):
                await work()
        shown = await plain.for_user(ALICE).query("SELECT content FROM resources")
        assert {row["content"] for row in shown.rows} == {"[encrypted]"}
    with pytest.raises(EncryptionError, match="k1, which is missing"):
        async with Rem.open(settings):
            pass


async def test_interrupted_rotation_is_continued(settings: Settings) -> None:
    async with Rem.open(encrypting(settings, K1)) as rem:
        await fill(rem, 2 * BATCH_ROWS + 10)
    async with Rem.open(encrypting(settings, K2, K1)) as rem:

        def stop(done: int, _total: int | None) -> None:
            if done >= BATCH_ROWS:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            await rotate(rem.database, stop)
        assert await list_keys(rem) == {"k1", "k2"}
        assert (await rem.for_user(ALICE).query("LOOKUP note-1")).hits[0].record["content"] == "quorvexal 1"
        await rotate(rem.database)
        assert await list_keys(rem) == {"k2"}


async def test_rotation_while_others_write_loses_nothing(settings: Settings) -> None:
    async with Rem.open(encrypting(settings, K1)) as old, Rem.open(encrypting(settings, K2, K1)) as new:
        await fill(old, BATCH_ROWS)
        is_done = asyncio.Event()

        async def write() -> int:
            count = 0
            while not is_done.is_set():
                await new.for_user(ALICE).store.upsert(
                    Resource(name=f"note {count % BATCH_ROWS}", content=f"changed {count}")
                )
                count += 1
            return count

        writing = asyncio.create_task(write())
        await rotate(new.database)
        is_done.set()
        written = await writing
        assert written > 0
        rows = {row.name: row.content for row in await new.for_user(ALICE).store.find(Resource, limit=1000)}
        for count in range(max(0, written - BATCH_ROWS), written):
            assert rows[f"note {count % BATCH_ROWS}"] == f"changed {count}"
        assert await list_keys(new) == {"k2"}


async def test_commands(settings: Settings, dsn: str) -> None:
    key = output("encryption", "new-key", "k3", settings={}).strip()
    assert key.startswith("k3:")
    environment = {"POSTGRES__CONNECTION_STRING": dsn, "EMBEDDING__PROVIDER": "none", "AUDIT__ENABLED": "true"}
    async with Rem.open(settings) as rem:
        await rem.for_user(ALICE).store.upsert(Resource(name="Note", content="quorvexal"))
    encrypted = {**environment, "ENCRYPTION__ENABLED": "true", "ENCRYPTION__KEYS": key}
    status = json.loads(output("encryption", "status", "--json", settings=encrypted))
    assert (status["enabled"], status["sealing_key"], status["remaining"]) == (True, "k3", 1)
    assert output("encryption", "rotate", settings=encrypted) == "Changed 1 text.\n"
    assert "k3" in output("encryption", "status", settings=encrypted)
    plain = {**encrypted, "ENCRYPTION__ENABLED": "false"}
    refused = rem_command("encryption", "rotate", settings=plain, stdin="n\n")
    assert (refused.returncode, "without encryption?" in refused.stderr) == (1, True)
    assert json.loads(output("encryption", "rotate", "--yes", "--json", settings=plain)) == {"changed": 1}
    for text in (refused.stderr, json.dumps(status)):
        assert key.partition(":")[2] not in text
    missing = rem_command("lookup", "note", settings={**environment, "ENCRYPTION__ENABLED": "true"})
    assert (missing.returncode, "ENCRYPTION__KEYS" in missing.stderr) == (2, True)


async def test_old_message_can_be_changed_before_the_rotation(settings: Settings) -> None:
    """A row that is read and written back is encrypted with the first key, whatever it was before."""

    def tag(message: Message) -> None:
        message.tags = [*message.tags, "x"]

    def rewrite(message: Message) -> None:
        message.content = "other"

    async with Rem.open(settings) as rem:
        stored = await rem.for_user(ALICE).sessions.save_message(
            uuid4(), NewMessage(role=Role.USER, content="quorvexal")
        )
    for keys in ((K1,), (K2, K1)):
        async with Rem.open(encrypting(settings, *keys)) as rem:
            store = rem.for_user(ALICE).store
            assert (await store.modify(Message, stored.id, tag)).content == "quorvexal"
            assert await list_keys(rem) == {keys[0][:2]}
            with pytest.raises(ImmutableError):
                await store.modify(Message, stored.id, rewrite)


async def test_killed_rotation_leaves_every_text_readable(settings: Settings, dsn: str, sql: Sql) -> None:
    rows = 10 * BATCH_ROWS
    async with Rem.open(settings) as rem:
        await fill(rem, rows)
    for keys, enabled, is_done in (
        (K1, True, "LIKE '%rem1:k1:%'"),
        (f"{K2},{K1}", True, "LIKE '%rem1:k2:%'"),
        (K2, False, "NOT LIKE '%rem1:%'"),
    ):
        environment = {
            "POSTGRES__CONNECTION_STRING": dsn,
            "EMBEDDING__PROVIDER": "none",
            "ENCRYPTION__ENABLED": str(enabled).lower(),
            "ENCRYPTION__KEYS": keys,
        }
        process = start_rem("encryption", "rotate", "--yes", settings=environment)
        counting = f"SELECT count(*) FROM resources WHERE content {is_done}"
        while not await sql.fetchval(counting):
            assert process.poll() is None
            await asyncio.sleep(0.01)
        process.kill()
        process.wait()
        assert 0 < await sql.fetchval(counting) < rows, "the rotation was not killed half-way"
        async with Rem.open(encrypting(settings, *keys.split(","), enabled=enabled)) as rem:
            await check_readable(rem, rows)
            output("encryption", "rotate", "--yes", settings=environment)
            await check_readable(rem, rows)
            assert await list_keys(rem) == {keys[:2] if enabled else None}
    async with Rem.open(settings) as rem:
        await check_readable(rem, rows)


async def check_readable(rem: Rem, rows: int) -> None:
    """Check that all texts of `fill` are read as they were written."""
    stored = await rem.for_user(ALICE).store.find(Resource, limit=rows + 10)
    contents = {row.name: row.content for row in stored if row.name and row.name.startswith("note ")}
    assert contents == {f"note {number}": f"quorvexal {number}" for number in range(rows)}
    (message,) = await rem.for_user(ALICE).store.find(Message)
    assert message.tool_calls == [{"id": "c", "arguments": {"q": "quorvexal"}}]

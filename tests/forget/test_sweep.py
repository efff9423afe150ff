"""A sweep erases expired rows of all users with the statements derived from them, and nothing else."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import asyncpg

from rem.app import Rem
from rem.db.store import Store
from rem.forget.expiry import expire
from rem.forget.sweep import sweep
from rem.jobs.handlers import HANDLERS, HandlerContext
from rem.jobs.queue import JobQueue
from rem.models import Entity, File, Moment, Resource, Role, Session, User
from rem.sessions.message import NewMessage
from rem.sessions.prune import list_idle_sessions
from rem.settings import Settings
from tests.dreams.sample_claims import (
    claim_edge,
    claim_field,
    claim_moment,
    list_derived_edges,
    list_moments,
    start_run,
    store_note,
    to_ref,
)
from tests.forget.text_traces import find_traces

_MARK = "Quetzalcoatl"


def past_time() -> datetime:
    return datetime.now(UTC) - timedelta(seconds=1)


async def store_session(rem: Rem, user: str, *texts: str, expires_at: datetime | None = None) -> Session:
    memory = rem.for_user(user).sessions
    session = await memory.create_session()
    await memory.append(session.id, [NewMessage(role=Role.USER, content=text) for text in texts])
    if expires_at is not None:
        await memory.store.upsert(Session(id=session.id, expires_at=expires_at))
    return session


async def test_sweep_erases_expired_rows_of_all_users(rem: Rem, sql: asyncpg.Connection[asyncpg.Record]) -> None:
    class Gadget(Entity, table="gadgets"):
        name: str
        notes: str = ""

    await rem.register(Gadget)
    for user in ("alice@example.com", "bob@example.com", None):
        store = rem.for_user(user).store
        await store.upsert(Resource(name=f"{_MARK} note", content=_MARK, expires_at=past_time()))
        await store.upsert(Gadget(name=f"{_MARK} gadget", notes=_MARK, expires_at=past_time()))
        await store_note(store, "kept")
    await store_session(rem, "alice@example.com", _MARK, "And more.", expires_at=past_time())
    await rem.index()
    report = await rem.sweep()
    assert report.erased == {"resources": 3, "gadgets": 3, "messages": 2, "sessions": 1}
    assert report.total == 9
    await rem.index()
    assert await find_traces(sql, _MARK) == {}
    assert await sql.fetchval("SELECT count(*) FROM resources") == 3
    assert (await rem.sweep()).total == 0, "a second time changes nothing"
    assert (await rem.check_cache()).wrong_keys == 0


async def test_statements_of_swept_sources_are_derived_again_from_the_rest(
    rem: Rem, alice: Store, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    brief = await alice.upsert(Resource(name="brief", content=_MARK))
    lasting = await store_note(alice, "lasting")
    me = await alice.upsert(User(name="Alice"))
    run = await start_run(rem, alice)
    await run.store_claims(
        "test",
        to_ref(lasting),
        [
            claim_moment("both", brief, lasting, summary=f"{_MARK} again"),
            claim_edge(lasting, brief),
            claim_field(me, "summary", f"Likes {_MARK}.", brief),
        ],
    )
    await alice.upsert(Resource(name="brief", content=_MARK, expires_at=past_time()))
    await rem.sweep()
    assert await list_moments(alice) == []
    assert await list_derived_edges(alice, lasting) == []
    await rem.index()
    assert await find_traces(sql, _MARK) == {}
    assert await sql.fetchval("SELECT count(*) FROM statements") == 0, "it was not taken back by its owner"
    run = await start_run(rem, alice)
    assert (await run.store_claims("test", to_ref(lasting), [claim_moment("both", lasting)])).said == 1


async def test_row_expired_by_owner_is_not_dreamt_again(rem: Rem, alice: Store) -> None:
    source = await store_note(alice, "source")
    await (await start_run(rem, alice)).store_claims("test", to_ref(source), [claim_moment("it", source)])
    (row,) = await list_moments(alice)
    await alice.modify(Moment, row.id, lambda it: it.model_copy(update={"expires_at": past_time()}))
    assert (await rem.sweep()).erased == {"moments": 1}
    again = await (await start_run(rem, alice)).store_claims("test", to_ref(source), [claim_moment("it", source)])
    assert (again.said, again.refused) == (0, 1)
    assert await list_moments(alice) == []


async def test_entity_with_owner_expiry_is_not_changed_or_made_again(rem: Rem, alice: Store) -> None:
    async def store_and_dream(text: str) -> None:
        await store_session(rem, "alice@example.com", text)
        await rem.dreamer().dream(alice.scope, ["entities"])

    await store_and_dream("Sarah Chen <sarah.chen@acme.com> asked for the numbers.")
    (sarah,) = await alice.lookup("Sarah Chen")
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    await expire(alice, [sarah], tomorrow)
    await store_and_dream("Sarah Chen <sarah.chen@acme.com> asked again, and for more.")
    (sarah,) = await alice.lookup("Sarah Chen")
    assert sarah.expires_at == tomorrow
    await expire(alice, [sarah], past_time())
    assert (await rem.sweep()).erased == {"ontologies": 1}
    await store_and_dream("Sarah Chen <sarah.chen@acme.com> asked a third time.")
    await rem.dreamer().dream(alice.scope, ["entities"], rescan=True)
    assert await alice.lookup("Sarah Chen") == []


async def test_expired_file_is_erased_with_chunks_and_upload(
    rem: Rem, alice: Store, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    file = await alice.upsert(File(name=f"{_MARK}.md"))
    await alice.upsert(Resource(name="chunk", content=_MARK, metadata={"file_id": str(file.id)}))
    await sql.execute(
        "INSERT INTO uploads (tenant_id, file_id, content) VALUES ('default', $1, $2)", file.id, b"Quetzalcoatl"
    )
    assert "rem.uploads.content" in await find_traces(sql, _MARK)
    await alice.upsert(File(name=f"{_MARK}.md", expires_at=past_time()))
    await rem.sweep()
    assert await find_traces(sql, _MARK) == {}


async def test_sweep_uses_small_transactions(rem: Rem, alice: Store, sql: asyncpg.Connection[asyncpg.Record]) -> None:
    await alice.upsert_many([Resource(name=f"old {n}", content="x", expires_at=past_time()) for n in range(100)])
    await alice.upsert_many([Resource(name=f"new {n}", content="x") for n in range(100)])
    await sql.execute("""
        CREATE TABLE public.seen (transaction xid8);
        CREATE FUNCTION public.see() RETURNS trigger LANGUAGE plpgsql AS $$
          BEGIN INSERT INTO public.seen VALUES (pg_current_xact_id()); RETURN NULL; END $$;
        CREATE TRIGGER zzz AFTER DELETE ON rem.resources FOR EACH ROW EXECUTE FUNCTION public.see()
    """)
    assert (await sweep(rem.database, at_once=4)).erased == {"resources": 100}
    assert await sql.fetchval("SELECT count(DISTINCT transaction) FROM public.seen") == 25
    assert await sql.fetchval("SELECT count(*) FROM resources") == 100


async def test_sweep_skips_locked_and_renewed_rows(
    rem: Rem, alice: Store, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await alice.upsert_many([Resource(name=f"old {n}", content="x", expires_at=past_time()) for n in range(3)])
    async with sql.transaction():
        await sql.execute("UPDATE resources SET expires_at = NULL WHERE name = 'old 1'")
        report = await asyncio.wait_for(rem.sweep(), timeout=10)
        assert (report.erased, report.busy) == ({"resources": 2}, 1)
    assert (await rem.sweep()).total == 0
    assert [row.key for row in await alice.find(Resource)] == ["old-1"]


async def test_concurrent_sweeps_and_writers_agree(rem: Rem, alice: Store) -> None:
    await alice.upsert_many([Resource(name=f"old {n}", content="x", expires_at=past_time()) for n in range(50)])

    async def write(number: int) -> None:
        await store_note(alice, f"old {number}", "renewed")

    await asyncio.gather(rem.sweep(), *map(write, range(0, 50, 10)), rem.sweep())
    await rem.sweep()
    kept = {row.key for row in await alice.find(Resource)}
    assert kept == {"old-0", "old-10", "old-20", "old-30", "old-40"}


async def test_worker_sweeps(rem: Rem, alice: Store, settings: Settings) -> None:
    await alice.upsert(Resource(name="old", content="x", expires_at=past_time()))
    await HANDLERS["sweep"](HandlerContext(rem, settings, JobQueue(rem.database)), {})
    assert await alice.count(Resource, with_deleted=True) == 0


async def test_pruned_sessions_lose_their_statements(
    rem: Rem, alice: Store, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    session = await store_session(rem, "alice@example.com", "It was long ago.")
    recent = await store_session(rem, "alice@example.com", "It was today.")
    memory = rem.for_user("alice@example.com").sessions
    run = await start_run(rem, alice)
    await run.store_claims("test", to_ref(session), [claim_moment("long ago", *await memory.load_session(session.id))])
    await sql.execute("ALTER TABLE sessions DISABLE TRIGGER touch")
    await sql.execute(
        "UPDATE sessions SET (created_at, updated_at) = ROW(now() - interval '40 days', now() - interval '40 days') "
        "WHERE id = $1",
        session.id,
    )
    await sql.execute("ALTER TABLE sessions ENABLE TRIGGER touch")
    assert [row.id for row in await list_idle_sessions(memory, 30)] == [session.id]
    assert len(await list_moments(alice)) == 1, "looking changes nothing"
    assert await memory.prune_old_sessions(30) == 1
    assert await list_moments(alice) == []
    assert [row.id for row in await memory.list_sessions()] == [recent.id]
    assert await list_idle_sessions(memory, 30) == []

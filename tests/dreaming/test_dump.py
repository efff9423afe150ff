"""What was dreamt survives a dump: loaded elsewhere, it is adopted by the first dream."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path

from rem.app import Rem
from rem.db.store import Store
from rem.models import Message, Moment, Role, Session
from tests.conftest import fresh_database, settings_for

_AT = datetime(2026, 3, 2, 9, tzinfo=UTC)


async def _talk(store: Store) -> None:
    session = await store.upsert(Session(name="talk", created_at=_AT))
    text = "We decided to migrate the billing database to Postgres 18 in April, with twelve minutes of downtime."
    await store.upsert(Message(session_id=session.id, message_index=0, role=Role.USER, content=text, created_at=_AT))


async def test_a_loaded_moment_is_adopted_and_the_second_dream_is_silent(
    rem: Rem, alice: Store, tmp_path: Path
) -> None:
    await _talk(alice)
    await rem.dreamer().dream(alice.scope)
    (before,) = await alice.find(Moment)
    dump = io.StringIO()
    await rem.dump(dump, user="alice@example.com")
    path = tmp_path / "dump.yaml"
    path.write_text(dump.getvalue(), encoding="utf-8")
    async with fresh_database() as dsn, Rem.open(settings_for(dsn)) as other:
        await other.load(path, user="alice@example.com")
        await other.dreamer().dream(alice.scope)
        (after,) = await other.store("alice@example.com").find(Moment)
        assert (after.key, after.summary, after.sources) == (before.key, before.summary, before.sources)
        assert (await other.dreamer().dream(alice.scope)).run_id is None
        assert (await other.dreamer().audit(alice.scope)).is_clean

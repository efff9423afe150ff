"""The first run after loading a dump adopts the derived rows in it."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rem.app import Rem
from rem.db.store import Store
from rem.models import Message, Moment, Ontology, Role, Session, User
from tests.conftest import fresh_database, settings_for
from tests.dreams.sample_sessions import store_session

_AT = datetime(2026, 3, 2, 9, tzinfo=UTC)


async def _store_session(store: Store) -> None:
    session = await store.upsert(Session(name="talk", created_at=_AT))
    text = "We decided to migrate the billing database to Postgres 18 in April, with twelve minutes of downtime."
    await store.upsert(Message(session_id=session.id, message_index=0, role=Role.USER, content=text, created_at=_AT))


async def test_loaded_moment_is_adopted_by_first_run(rem: Rem, alice: Store, tmp_path: Path) -> None:
    await _store_session(alice)
    await rem.dreamer().dream(alice.scope)
    (before,) = await alice.find(Moment)
    dump = io.StringIO()
    await rem.for_user("alice@example.com").dump(dump)
    path = tmp_path / "dump.yaml"
    path.write_text(dump.getvalue(), encoding="utf-8")
    async with fresh_database() as dsn, Rem.open(settings_for(dsn)) as other:
        await other.for_user("alice@example.com").load(path)
        await other.dreamer().dream(alice.scope)
        (after,) = await other.for_user("alice@example.com").store.find(Moment)
        assert (after.key, after.summary, after.sources) == (before.key, before.summary, before.sources)
        assert (await other.dreamer().dream(alice.scope)).run_id is None
        assert (await other.dreamer().audit(alice.scope)).is_clean


async def test_loaded_moments_with_mentions_are_adopted_separately(rem: Rem, alice: Store, tmp_path: Path) -> None:
    path = await _dump_deliveries(rem, alice, tmp_path)
    async with fresh_database() as dsn, Rem.open(settings_for(dsn)) as other:
        loaded = other.for_user("alice@example.com").store
        await other.for_user("alice@example.com").load(path)
        await other.dreamer().dream(loaded.scope)
        assert await _fetch_moments(loaded) == await _fetch_moments(alice)
        assert (await other.dreamer().dream(loaded.scope)).run_id is None
        assert (await other.dreamer().audit(loaded.scope)).is_clean


async def test_moment_waiting_for_adoption_keeps_its_origin(rem: Rem, alice: Store, tmp_path: Path) -> None:
    path = await _dump_deliveries(rem, alice, tmp_path)
    async with fresh_database() as dsn:
        settings = settings_for(dsn)
        # The moment of the second session is linked one run before that session is read.
        settings.dreaming.max_sources = 1
        async with Rem.open(settings) as other:
            loaded = other.for_user("alice@example.com").store
            await other.for_user("alice@example.com").load(path)
            await other.dreamer().dream(loaded.scope, ["moments"])
            assert {moment.origin for moment in await loaded.find(Moment)} == {"dream:moments"}
            await other.dreamer().dream(loaded.scope, ["moments"])
            after = await loaded.find(Moment)
            assert {m.id: m.summary for m in after} == {m.id: m.summary for m in await alice.find(Moment)}
            assert {moment.origin for moment in after} == {"dream:moments"}


async def _dump_deliveries(rem: Rem, store: Store, folder: Path) -> Path:
    """Dump two sessions about a person with everything derived from them, and return the path."""
    for day, (goods, city) in enumerate([("violins", "Rome"), ("tractors", "Oslo")]):
        text = f"user: The delivery of {goods} to our customer Maria Gomez in {city} is late."
        await store_session(store, goods, text, at=_AT + timedelta(days=day))
    await rem.dreamer().dream(store.scope)
    dump = io.StringIO()
    await rem.for_user("alice@example.com").dump(dump)
    path = folder / "dump.yaml"
    path.write_text(dump.getvalue(), encoding="utf-8")
    return path


async def _fetch_moments(store: Store) -> list[object]:
    """What the owner's rows say, whoever wrote them when."""
    moments = [(m.key, m.id, m.origin, m.summary, m.sources, _edges(m)) for m in await store.find(Moment)]
    people = [(o.key, o.id, o.origin, o.content, o.sources, _edges(o)) for o in await store.find(Ontology)]
    profiles = [(u.key, u.origin, u.summary, u.interests, u.metadata) for u in await store.find(User)]
    return [sorted(moments), sorted(people), profiles]


def _edges(entity: Moment | Ontology) -> list[tuple[str, str, str]]:
    return sorted((edge.rel_type, edge.dst, edge.origin) for edge in entity.graph_edges)

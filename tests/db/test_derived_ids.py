"""Ids that follow from a name are the same in one database, and unknown outside of it."""

from __future__ import annotations

import asyncpg

from rem.app import Rem
from rem.db.derived_ids import DerivedIds
from rem.settings import Settings


def test_id_depends_on_the_key_and_on_every_part() -> None:
    ids = DerivedIds(b"one")
    made = ids.make("session", "default", "alice", "diary")
    assert made == DerivedIds(b"one").make("session", "default", "alice", "diary")
    others = [
        DerivedIds(b"two").make("session", "default", "alice", "diary"),
        ids.make("profile", "default", "alice", "diary"),
        ids.make("session", "default", "alicediary"),
        ids.make("session", "default", None, "diary"),
        *ids.list_candidates("session", "default", "alice", "diary")[1:],
    ]
    assert len({made, *others}) == len(others) + 1
    assert made.version == 4


async def test_key_is_of_one_database_and_hidden_from_the_sql_verb(
    rem: Rem, settings: Settings, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    before = rem.database.derived_ids.make("session", "x")
    async with Rem.open(settings) as again:
        assert again.database.derived_ids.make("session", "x") == before
    assert len(await sql.fetchval("SELECT id_key FROM installation")) == 64
    assert not await sql.fetchval(
        "SELECT EXISTS (SELECT FROM information_schema.role_table_grants WHERE table_name = 'installation' "
        "AND grantee NOT IN (current_user, 'postgres'))"
    )

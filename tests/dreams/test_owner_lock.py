"""Only one process at a time works on an owner's memory."""

from __future__ import annotations

import pytest

from rem.app import Rem
from rem.db.store import Store
from rem.dreams.owner_lock import OwnerBusyError, hold_owner_lock


async def test_second_holder_fails_until_the_lock_is_released(rem: Rem, alice: Store) -> None:
    async with hold_owner_lock(rem.database, alice.scope):
        with pytest.raises(OwnerBusyError, match="try again"):
            async with hold_owner_lock(rem.database, alice.scope, timeout_seconds=0):
                pass
    async with hold_owner_lock(rem.database, alice.scope, timeout_seconds=0) as connection:
        assert await connection.fetchval("SELECT 1") == 1


async def test_owners_do_not_wait_for_each_other(rem: Rem, alice: Store, bob: Store) -> None:
    async with (
        hold_owner_lock(rem.database, alice.scope, timeout_seconds=0),
        hold_owner_lock(rem.database, bob.scope, timeout_seconds=0),
    ):
        pass


async def test_dream_reports_a_busy_owner(rem: Rem, alice: Store) -> None:
    async with hold_owner_lock(rem.database, alice.scope):
        report = await rem.dreamer().dream(alice.scope, ["entities"], wait=False)
    assert report.was_busy

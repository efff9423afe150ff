"""Several pieces of evidence give one confidence, however many they are."""

from __future__ import annotations

import pytest

from rem.app import Rem


@pytest.mark.parametrize(
    ("shares", "combined"), [([0.5, 0.5], 0.75), ([0.9] * 5_000, 1.0), ([1.0] * 100, 1.0), ([], None)]
)
async def test_confidence_of_any_number_of_shares(rem: Rem, shares: list[float], combined: float | None) -> None:
    async with rem.database.connection() as connection:
        found = await connection.fetchval("SELECT rem.rem_combine_confidence($1)", shares)
    assert found == (None if combined is None else pytest.approx(combined))

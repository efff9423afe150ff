"""At least nine of ten entities in labelled conversations are right, also in the held-out set."""

from __future__ import annotations

import pytest
from bench.entities import SETS, labelled, score

from rem.app import Rem

_LEAST_RECALL = {"tuned": 0.9, "held_out": 0.75}


@pytest.mark.parametrize("name", SETS)
async def test_labelled_conversations_reach_required_precision(rem: Rem, name: str) -> None:
    found = await score(rem, labelled(name))
    assert found.precision >= 0.9, found.wrong
    assert found.recall >= _LEAST_RECALL[name], found.missed
    assert found.alias_recall >= 0.8, found.aliases_missed


def test_labelled_set_is_large_and_has_negative_cases() -> None:
    cases = [case for name in SETS for case in labelled(name)]
    assert len(cases) >= 90
    assert len({case["name"] for case in cases}) == len(cases)
    assert sum(not case["entities"] for case in cases) >= 40

"""At least nine of ten entities in labelled conversations are right, also in the held-out set."""

from __future__ import annotations

import pytest
from bench.entities import SETS, load_cases, score

from rem.app import Rem

_MIN_RECALL = {"tuned": 0.9, "held_out": 0.75}


@pytest.mark.parametrize("name", SETS)
async def test_labelled_conversations_reach_required_precision(rem: Rem, name: str) -> None:
    result = await score(rem, load_cases(name))
    assert result.precision >= 0.9, result.wrong
    assert result.recall >= _MIN_RECALL[name], result.missed
    assert result.alias_recall >= 0.8, result.aliases_missed


def test_labelled_set_is_large_and_has_negative_cases() -> None:
    cases = [case for name in SETS for case in load_cases(name)]
    assert len(cases) >= 90
    assert len({case["name"] for case in cases}) == len(cases)
    assert sum(not case["entities"] for case in cases) >= 40

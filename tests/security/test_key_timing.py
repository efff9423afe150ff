"""The time of a refusal does not tell how much of a key is right."""

from __future__ import annotations

import statistics
import time

import pytest

from rem.app import Rem
from rem.auth.api_keys import ApiKeys
from rem.errors import UnauthorizedError

ROUNDS = 60
MAX_RATIO = 2.0
"""Medians differ by some percent on a busy machine. A comparison byte by byte is invisible beside that anyway, so this
finds only a check that does other work, such as none at all for an unknown prefix."""


async def test_wrong_keys_are_refused_in_the_same_time(rem: Rem) -> None:
    keys = ApiKeys(rem.database)
    key, _ = await keys.create("a program", "alice@example.com", "default")
    secret_start = len("remk_") + 12 + 1
    wrong = {
        "wrong in the first character": key[:secret_start] + _other(key[secret_start]) + key[secret_start + 1 :],
        "wrong in the last character": key[:-1] + _other(key[-1]),
        "unknown prefix": f"remk_{'0' * 12}{key[17:]}",
    }
    seconds: dict[str, list[float]] = {name: [] for name in wrong}
    for _ in range(ROUNDS):
        for name, text in wrong.items():
            began = time.perf_counter()
            with pytest.raises(UnauthorizedError):
                await keys.identify(text)
            seconds[name].append(time.perf_counter() - began)
    medians = [statistics.median(times) for times in seconds.values()]
    assert max(medians) / min(medians) < MAX_RATIO, seconds.keys()
    assert (await keys.identify(key))[0].email == "alice@example.com"


def _other(character: str) -> str:
    return "A" if character != "A" else "B"

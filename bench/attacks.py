"""Attack a server, one way after the other, and measure how long another user waits meanwhile."""

from __future__ import annotations

import asyncio
import os
import re
import time
from pathlib import Path

import httpx2 as httpx

from bench.attack_list import (
    ATTACKER,
    ATTACKS,
    BYSTANDER,
    Attack,
    Latencies,
    attacked_settings,
    bystander,
    flood,
    open_attacker,
    prepare_bystander,
    upload,
)
from bench.measure import Result, print_progress
from bench.rem_server import serve_rem
from rem.auth.identity import Tier
from rem.rate_limits import MAX_LOCAL_CALLERS, LimitedCaller, RateLimiter
from rem.settings import RateLimitSettings

MAX_LOOKUP_SECONDS = 0.2
MAX_LIVE_SECONDS = 1.0
MAX_LOOKUP_RATIO = 5.0
"""For attacks that last: how much longer the slowest hundredth of the LOOKUPs takes than without them."""
MAX_LIMITER_RATIO = 5.0
LIMITER_SAMPLE = 5_000
QUIET_SECONDS = 1.0
FILES, SMALL_FILES = 600, 5
MAX_FILE_RATIO = 10.0
QUICK = ("many keys", "many invalid parts")


async def run(home: Path, names: tuple[str, ...] = tuple(ATTACKS)) -> Result:
    """Measure the slowest LOOKUP and the slowest /health/live of a bystander during each attack."""
    result = Result("attacks")
    result.figures["load before"] = round(os.getloadavg()[0], 1)
    with attacked_settings() as settings, serve_rem(home, settings) as address:
        prepare_bystander(address)
        for name in names:
            attack = ATTACKS[name]
            with bystander(address, attack.bystander_address) as quiet:
                await asyncio.sleep(max(QUIET_SECONDS, attack.seconds))
            latencies = await _measure(address, attack)
            p99_ratio = latencies.lookup_p99 / quiet.lookup_p99
            result.figures[name] = {
                "lookup_ms": round(latencies.lookup * 1000, 1),
                "live_ms": round(latencies.live * 1000, 1),
                "answers": len(latencies.seconds["lookup"]),
                # Without an attack: how busy the machine is with other things.
                "quiet_lookup_ms": round(quiet.lookup * 1000, 1),
                "quiet_live_ms": round(quiet.live * 1000, 1),
                "lookup_ratio": round(latencies.lookup / quiet.lookup, 1),
                "lookup_p99_ratio": round(p99_ratio, 1),
            }
            print_progress(f"attacks, {name}: {result.figures[name]}")
            result.check(f"LOOKUP of another user, seconds: {name}", latencies.lookup, MAX_LOOKUP_SECONDS)
            result.check(f"/health/live, seconds: {name}", latencies.live, MAX_LIVE_SECONDS)
            if attack.seconds:
                result.check(f"LOOKUP of another user against a quiet server: {name}", p99_ratio, MAX_LOOKUP_RATIO)
        quiet_seconds, seconds = await _measure_small_file(address)
        result.figures["files of one user"] = {"quiet_seconds": round(quiet_seconds, 2), "seconds": round(seconds, 2)}
        ratio = seconds / quiet_seconds
        result.check(f"small file of another user, against quiet: {FILES} files of one user", ratio, MAX_FILE_RATIO)
    before, after = await _measure_limiter()
    result.figures["100,000 callers at the limiter"] = {"first_us": before * 1e6, "later_us": after * 1e6}
    result.check("counting a request after 100,000 callers against before", after / before, MAX_LIMITER_RATIO)
    return result


async def _measure_small_file(address: str) -> tuple[float, float]:
    """Return the seconds until the file of a bystander is read, before and while an attacker's files wait."""
    async with (
        httpx.AsyncClient(base_url=address, headers=ATTACKER, timeout=120) as attacker,
        httpx.AsyncClient(base_url=address, headers=BYSTANDER, timeout=120) as other,
    ):
        await _time_upload(other, "first.txt")
        quiet = sorted([await _time_upload(other, f"quiet-{number}.txt") for number in range(SMALL_FILES)])
        await flood(attacker, FILES)
        busy = sorted([await _time_upload(other, f"small-{number}.txt") for number in range(SMALL_FILES)])
        waiting = await attacker.get("/api/v1/files", params={"status": "pending", "limit": 100})
    assert len(waiting.json()["data"]) == 100, "the attacker's files were read before the bystander's"
    return quiet[SMALL_FILES // 2], busy[SMALL_FILES // 2]


async def _time_upload(http: httpx.AsyncClient, name: str) -> float:
    started = time.perf_counter()
    answer = await upload(name, b"Tea at five.")(http)
    assert answer.status_code == 200, answer.text[:200]
    return time.perf_counter() - started


async def _measure_limiter() -> tuple[float, float]:
    """Return the seconds to count a request of a new caller: of the first ones, and of later ones."""
    limiter = RateLimiter(None, RateLimitSettings())
    times: list[float] = []
    for callers in (LIMITER_SAMPLE, MAX_LOCAL_CALLERS, LIMITER_SAMPLE):
        started = time.perf_counter()
        for number in range(callers):
            await limiter.count(LimitedCaller(str(len(times)), str(number)), Tier.ANONYMOUS)
        times.append((time.perf_counter() - started) / callers)
    return times[0], times[-1]


async def _measure(address: str, attack: Attack) -> Latencies:
    async with open_attacker(address) as http:
        with bystander(address, attack.bystander_address) as latencies:
            answers = await attack.run(http)
    assert all(attack.expects(answer.status_code) for answer in answers), [answer.text[:200] for answer in answers]
    assert all(re.search(attack.message, answer.text) for answer in answers), [answer.text[:200] for answer in answers]
    return latencies

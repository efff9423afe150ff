"""Attack a server, one way after the other, and measure how long another user waits meanwhile."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import httpx2 as httpx

from bench.attack_list import ATTACKER, ATTACKS, SERVER_SETTINGS, Attack, Latencies, bystander, prepare_bystander
from bench.measure import Result, print_progress
from bench.rem_server import serve_rem

MAX_LOOKUP_SECONDS = 0.2
MAX_LIVE_SECONDS = 1.0
QUIET_SECONDS = 1.0
QUICK = ("many keys", "many invalid parts")


async def run(home: Path, names: tuple[str, ...] = tuple(ATTACKS)) -> Result:
    """Measure the slowest LOOKUP and the slowest /health/live of a bystander during each attack."""
    result = Result("attacks")
    result.figures["load before"] = round(os.getloadavg()[0], 1)
    with serve_rem(home, SERVER_SETTINGS) as address:
        prepare_bystander(address)
        for name in names:
            with bystander(address) as quiet:
                await asyncio.sleep(QUIET_SECONDS)
            latencies = await _measure(address, ATTACKS[name])
            result.figures[name] = {
                "lookup_ms": round(latencies.lookup * 1000, 1),
                "live_ms": round(latencies.live * 1000, 1),
                "answers": len(latencies.seconds["lookup"]),
                # Without an attack: how busy the machine is with other things.
                "quiet_lookup_ms": round(quiet.lookup * 1000, 1),
                "quiet_live_ms": round(quiet.live * 1000, 1),
                "lookup_ratio": round(latencies.lookup / quiet.lookup, 1),
            }
            print_progress(f"attacks, {name}: {result.figures[name]}")
            result.check(f"LOOKUP of another user, seconds: {name}", latencies.lookup, MAX_LOOKUP_SECONDS)
            result.check(f"/health/live, seconds: {name}", latencies.live, MAX_LIVE_SECONDS)
    return result


async def _measure(address: str, attack: Attack) -> Latencies:
    async with httpx.AsyncClient(base_url=address, headers=ATTACKER, timeout=120) as http:
        with bystander(address) as latencies:
            answers = await asyncio.gather(*(attack.send(http) for _ in range(attack.times)))
    assert all(attack.expects(answer.status_code) for answer in answers), [answer.text[:200] for answer in answers]
    return latencies

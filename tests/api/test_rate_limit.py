"""Rate limits: by tier and address, shared by all processes, also while the database does not answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeAlias

import asyncpg
import httpx2
import pytest

from rem.api.main import create_app
from rem.api.rate_limit import RATE_HEADERS, find_caller, find_network
from rem.app import Rem
from rem.auth.api_keys import ApiKeys
from rem.auth.identity import Identity, Tier, UserRole
from rem.rate_limits import MAX_LOCAL_CALLERS, LimitedCaller, RateLimiter
from rem.settings import ApiSettings, AuthSettings, RateLimitSettings, Settings
from tests.api.auth_server import bearer
from tests.api.live_server import client, served
from tests.cli.test_serve import serving

LOOKUP = {"query": "LOOKUP sarah-chen"}
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@asynccontextmanager
async def limited(settings: Settings, api: ApiSettings | None = None, **limits: object) -> AsyncIterator[str]:
    """Serve the API with rate limits."""
    values = {"enabled": True, "anonymous": "3/minute", "free": "5/minute", **limits}
    update = {"rate_limit": RateLimitSettings.model_validate(values), "api": api or ApiSettings()}
    async with served(create_app(settings.model_copy(update=update))) as address:
        yield address


async def count_passed(http: httpx2.AsyncClient, requests: int, **headers: str) -> int:
    """Send requests one after another, and return how many were not refused."""
    answers = [await http.post("/api/v1/query", json=LOOKUP, headers=headers) for _ in range(requests)]
    return sum(answer.status_code == 200 for answer in answers)


async def test_200_concurrent_requests_over_4_workers_pass_exactly_50(settings: Settings, dsn: str) -> None:
    environment = {
        "REM_HOME": str(settings.rem_home),
        "POSTGRES__CONNECTION_STRING": dsn,
        "RATE_LIMIT__ENABLED": "true",
        "RATE_LIMIT__ANONYMOUS": "50/hour",
        "RATE_LIMIT__TIMEOUT_SECONDS": "30",
        "WORKER__IN_PROCESS": "false",
    }
    with serving("--workers", "4", settings=environment) as (address, _process):
        limits = httpx2.Limits(max_connections=200)
        async with httpx2.AsyncClient(base_url=address, limits=limits, timeout=60) as http:
            callers = ({"X-User-Id": f"user{number}@example.com"} for number in range(200))
            sent = (http.post("/api/v1/query", json=LOOKUP, headers=headers) for headers in callers)
            statuses = [answer.status_code for answer in await asyncio.gather(*sent)]
    assert (statuses.count(200), statuses.count(429)) == (50, 150)


async def test_exceeded_limit_has_the_documented_answer(settings: Settings) -> None:
    async with limited(settings) as address, client(address) as http:
        first = await http.post("/api/v1/query", json=LOOKUP)
        assert first.headers["ratelimit-limit"] == first.headers["x-ratelimit-limit"] == "3"
        assert first.headers["ratelimit-remaining"] == "2"
        assert 1 <= int(first.headers["ratelimit-reset"]) <= 60
        assert 0 <= int(first.headers["x-ratelimit-reset"]) - time.time() <= 61
        assert "retry-after" not in first.headers
        assert (await http.get("/api/v1/nothing")).headers["ratelimit-remaining"] == "1"
        await http.post("/api/v1/query", json=LOOKUP)
        refused = await http.post("/api/v1/query", json=LOOKUP)
    assert refused.status_code == 429
    retry_after = int(refused.headers["retry-after"])
    assert 1 <= retry_after <= 60
    error = refused.json()["error"]
    assert error["code"] == "rate_limit_exceeded"
    assert error["message"] == "You have exceeded your rate limit. Please sign in or upgrade to continue."
    assert error["details"] == {"limit": 3, "tier": "anonymous", "retry_after": retry_after}
    assert refused.headers["ratelimit-remaining"] == "0"
    assert {name.lower() for name in RATE_HEADERS} <= set(refused.headers)


async def test_each_user_has_an_own_allowance(settings: Settings, rem: Rem) -> None:
    keys, with_auth = ApiKeys(rem.database), settings.model_copy(update={"auth": AuthSettings(enabled=True)})
    async with limited(with_auth) as address, client(address) as http:
        for name in ("alice", "bob"):
            first, second = [bearer((await keys.create(name, f"{name}@example.com", "default"))[0]) for _ in range(2)]
            assert await count_passed(http, 8, **first) == 5
            # Another key of the same user is no new allowance.
            assert await count_passed(http, 1, **second) == 0
            refused = await http.get("/api/v1/models", headers=second)
            assert refused.json()["error"]["details"]["tier"] == "free"
            assert "sign in" not in refused.json()["error"]["message"]


async def test_nobody_gets_an_allowance_by_naming_another_without_a_login(settings: Settings) -> None:
    async with limited(settings) as address, client(address) as http:
        assert await count_passed(http, 2) == 2
        names: list[dict[str, str]] = [
            *({"X-User-Id": f"user{number}@example.com"} for number in range(4)),
            *({"X-Tenant-Id": f"tenant-{number}"} for number in range(2)),
            *({"X-User-Id": "alice", "X-Tenant-Id": f"tenant-{number}"} for number in range(2)),
            # No valid id of a user.
            {"X-User-Id": "anon:x"},
        ]
        passed = [await count_passed(http, 1, **named) for named in names]
        assert passed == [1, *[0] * (len(names) - 1)]
        # A token that REM did not make proves nothing, too.
        assert await count_passed(http, 1, Authorization="Bearer of-another-system", **names[0]) == 0


async def test_nothing_that_an_anonymous_caller_chooses_gives_a_new_allowance(settings: Settings) -> None:
    async with limited(settings) as address:
        passed = 0
        for number in range(8):
            # A new connection with other cookies, other headers, another tenant.
            chosen = {
                "Cookie": f"rem_session=new{number}",
                "X-Forwarded-For": f"203.0.113.{number}",
                "X-Tenant-Id": f"t{number}",
                "X-Session-Id": f"s{number}",
                "User-Agent": f"browser {number}",
            }
            async with client(address) as http:
                passed += await count_passed(http, 1, **chosen)
    assert passed == 3


async def test_forwarded_address_counts_only_behind_a_trusted_proxy(settings: Settings) -> None:
    proxies = ApiSettings(trusted_proxies=["127.0.0.0/8", "10.0.0.1"])
    async with limited(settings, proxies) as address, client(address) as http:
        assert await count_passed(http, 5, **{"X-Forwarded-For": "203.0.113.1"}) == 3
        assert await count_passed(http, 5, **{"X-Forwarded-For": "203.0.113.2"}) == 3
        # What the client itself wrote stands before what the proxies added.
        assert await count_passed(http, 2, **{"X-Forwarded-For": "198.51.100.7, 203.0.113.2, 10.0.0.1"}) == 0
        assert await count_passed(http, 5, **{"X-Forwarded-For": "2001:db8:0:1::a"}) == 3
        assert await count_passed(http, 5, **{"X-Forwarded-For": "2001:db8:0:1:ffff::b"}) == 0
        assert await count_passed(http, 5, **{"X-Forwarded-For": "2001:db8:0:2::a"}) == 3
        named = {"X-Forwarded-For": "203.0.113.3", "X-User-Id": "alice@example.com"}
        assert await count_passed(http, 5, **named) == 3
        assert await count_passed(http, 2, **{**named, "X-User-Id": "bob@example.com"}) == 0


def test_network_of_an_address() -> None:
    assert find_network("2001:db8:1:2:3:4:5:6") == find_network("2001:db8:1:2::") == "2001:db8:1:2::/64"
    assert find_network("::1") == "::/64"
    assert find_network("::ffff:192.0.2.1") == "192.0.2.1"
    assert find_network("nonsense") == "unknown"


def test_service_without_a_user_is_counted_by_its_key() -> None:
    service = Identity(None, "acme", UserRole.SERVICE, Tier.PRO, method="api_key", credential_id="k1")
    assert find_caller(service, {"client": ("192.0.2.1", 1)}) == LimitedCaller("acme", "anon:key:k1")
    assert find_caller(None, {"client": None}) == LimitedCaller("", "anon:unknown")


async def test_health_and_unlimited_tiers_are_not_counted(settings: Settings) -> None:
    async with limited(settings, anonymous="unlimited", free="1/day") as address, client(address) as http:
        for _ in range(3):
            answer = await http.post("/api/v1/query", json=LOOKUP)
            assert answer.status_code == 200
            assert "ratelimit-limit" not in answer.headers
    async with limited(settings, anonymous="1/day") as address, client(address) as http:
        assert [(await http.get("/health/live")).status_code for _ in range(3)] == [200] * 3


async def test_nothing_is_limited_by_default(anyone: httpx2.AsyncClient) -> None:
    answers = [await anyone.get("/api/v1/models") for _ in range(60)]
    assert {answer.status_code for answer in answers} == {200}
    assert "ratelimit-limit" not in answers[0].headers


async def test_next_period_gives_a_new_allowance(rem: Rem, sql: Connection) -> None:
    limiter = RateLimiter(rem.database, RateLimitSettings(free="2/minute"))
    caller = LimitedCaller("default", "alice")
    used = [allowance.used for _ in range(3) if (allowance := await limiter.count(caller, Tier.FREE)) is not None]
    assert used == [1, 2, 3]
    await sql.execute("UPDATE rem.rate_limits SET ends_at = now() - interval '1 second'")
    allowance = await limiter.count(caller, Tier.FREE)
    assert allowance is not None
    assert (allowance.used, allowance.remaining, allowance.reset_seconds) == (1, 1, 60)


async def test_sweep_deletes_ended_periods(rem: Rem, sql: Connection) -> None:
    limiter = RateLimiter(rem.database, RateLimitSettings())
    for name in ("alice", "bob"):
        await limiter.count(LimitedCaller("default", name), Tier.FREE)
    await sql.execute("UPDATE rem.rate_limits SET ends_at = now() WHERE user_id = 'alice'")
    await rem.sweep()
    assert [row["user_id"] for row in await sql.fetch("SELECT user_id FROM rem.rate_limits")] == ["bob"]


async def test_slow_counter_delays_requests_for_a_bounded_time_and_still_limits(
    settings: Settings, sql: Connection
) -> None:
    async with limited(settings, timeout_seconds=0.3) as address, client(address) as http:
        assert await count_passed(http, 1) == 1
        async with sql.transaction():
            # The counter does not answer; the rest of the database does.
            await sql.execute("SELECT FROM rem.rate_limits FOR UPDATE")
            started = time.monotonic()
            assert await count_passed(http, 1) == 1
            assert time.monotonic() - started >= 0.3
            started = time.monotonic()
            # This process counts by itself now, without waiting again.
            assert await count_passed(http, 6) == 2
            assert time.monotonic() - started < 5


async def test_counter_without_a_database_limits_in_the_process() -> None:
    limiter = RateLimiter(None, RateLimitSettings(anonymous="2/minute"))
    caller = LimitedCaller("", "anon:192.0.2.1")
    allowances = [await limiter.count(caller, Tier.ANONYMOUS) for _ in range(3)]
    assert [allowance and allowance.is_exceeded for allowance in allowances] == [False, False, True]


async def count_used(limiter: RateLimiter, name: str) -> int:
    """Count a request of a caller without a login, and return its requests in this period."""
    allowance = await limiter.count(LimitedCaller("", f"anon:{name}"), Tier.ANONYMOUS)
    assert allowance is not None
    return allowance.used


async def test_100_000_callers_are_limited_in_bounded_memory_and_time() -> None:
    limiter = RateLimiter(None, RateLimitSettings(anonymous="2/hour"))
    assert [await count_used(limiter, "persistent") for _ in range(3)] == [1, 2, 3]
    assert [await count_used(limiter, "silent") for _ in range(3)] == [1, 2, 3]
    started = time.process_time()
    for number in range(MAX_LOCAL_CALLERS):
        await count_used(limiter, str(number))
        if number % 1000 == 0:
            await count_used(limiter, "persistent")
    seconds = time.process_time() - started
    # A new caller is limited, too.
    assert [await count_used(limiter, "new") for _ in range(3)] == [1, 2, 3]
    # Whoever goes on gets no new allowance by the others; who was silent all the time was forgotten.
    assert await count_used(limiter, "persistent") == 3 + MAX_LOCAL_CALLERS / 1000 + 1
    assert await count_used(limiter, "silent") == 1
    assert len(limiter._local_counts) == MAX_LOCAL_CALLERS
    started = time.process_time()
    for number in range(1000):
        await count_used(limiter, f"late-{number}")
    # Each further caller costs the same: 1,000 of 101,000, with much room for noise.
    assert time.process_time() - started < max(seconds / 5, 0.1)


@pytest.mark.parametrize("text", ["0/minute", "5", "5/week", "-1/minute", "many", "5/minutes"])
def test_invalid_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="free"):
        RateLimitSettings(free=text)


def test_invalid_proxy_is_refused() -> None:
    with pytest.raises(ValueError, match=r"not an IP address or a network such as 10\.1\.2\.0/24"):
        ApiSettings(trusted_proxies=["*"])
    for network in ("0.0.0.0/0", "::/0", "10.1.2.3/0"):
        with pytest.raises(ValueError, match="all addresses"):
            ApiSettings(trusted_proxies=[network])
    assert ApiSettings(trusted_proxies=["10.1.2.3/8"]).trusted_proxies == ["10.0.0.0/8"]

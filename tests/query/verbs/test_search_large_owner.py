"""An owner with too many passages for a scan is searched by indexes, with the same result."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from rem import Rem, Resource
from rem.models import Role
from rem.sessions.message import NewMessage
from rem.settings import EmbeddingSettings, Settings
from tests.search.embedders.scripted_server import Reply, ScriptedServer

pytestmark = pytest.mark.slow

_ROWS = 20_050
_LIGHTHOUSE = [1.0, 0.0, 0.0, 0.0]
_ZEBRA = [0.9, 0.436, 0.0, 0.0]
"""Hundreds of other texts are nearer to the lighthouse, so the vector alone does not find it."""


def _make_vector(text: str) -> list[float]:
    """Return one direction for texts about a lighthouse, and a random direction for all others.

    Equal vectors for all else would be no fair picture: thousands of neighbours at distance zero crowd every link
    to the one that differs out of the index's graph.
    """
    if "lighthouse" in text or "beacon" in text:
        return _LIGHTHOUSE
    if "zebra" in text:
        return _ZEBRA
    anywhere = random.Random(text)  # the same text always lies at the same place
    if "lamp" in text:
        return [1.0, anywhere.gauss(0, 0.001), 0.0, 0.0]
    direction = [anywhere.gauss(0, 1) for _ in _LIGHTHOUSE]
    return [part / math.hypot(*direction) for part in direction]


def _embed(body: dict[str, list[str]]) -> object:
    return {
        "data": [{"index": place, "embedding": _make_vector(text)} for place, text in enumerate(body["input"])],
    }


_NEAREST = """
    SELECT cardinality(rem.rem_nearest_passages(
      'default', 'alice', NULL, NULL, NULL, false, tstzrange($1, '2026-08-01'), '{statement}', m.id, 4, '[1,0,0,0]',
      '{}/1000000000', 5))
    FROM rem.embedding_models m WHERE m.is_current"""
_RARE_WORDS = """
    SELECT cardinality(rem.rem_passages_with_rare_words(
      'default', 'alice', NULL, NULL, NULL, false, tstzrange($1, '2026-08-01'), '{statement}', NULL, NULL,
      t.terms, 20050, 5))
    FROM rem.rem_query_terms('default', 'lighthouse', '', '') t"""


async def _count_probed(rem: Rem, statement: str, since: str) -> int:
    """Return how many passages an index finds from a day to the end of July."""
    async with rem.database.connection() as connection:
        count: int = await connection.fetchval(statement, datetime.fromisoformat(since).replace(tzinfo=UTC))
    return count


async def _check_search_among_others(rem: Rem) -> None:
    """Check that all passages are compared if the vector index reaches only those of other owners."""
    lamps = [Resource(name=f"Lamp {number}", content=f"lamp {number}") for number in range(400)]
    await rem.for_user("carol").store.upsert_many(lamps)
    await rem.index()
    async with rem.database.connection() as connection:
        await connection.execute("ALTER FUNCTION rem.rem_nearest_passages SET hnsw.max_scan_tuples = 1")
    found = await rem.for_user("alice").query('SEARCH "beacon" MODE vector LIMIT 1')
    assert [row.key for row in found.hits] == ["row-77"]
    assert {"probe by meaning", "scan"} <= {step.name for step in found.steps}


async def _check_search_with_few_messages(rem: Rem) -> None:
    """Check that the few messages of a large owner are compared, and not looked for among all else by the index."""
    asked = NewMessage(role=Role.USER, content="Where does the walrus sleep?")
    await rem.for_user("alice").sessions.append(uuid4(), [asked], create_session=True)
    await rem.index()
    found = await rem.for_user("alice").query('SEARCH "walrus" MODE text')
    assert [row.record["content"] for row in found.hits] == [asked.content]
    both = await rem.for_user("alice").query('SEARCH "walrus zebra"')
    steps = [(step.name, step.rows) for step in both.steps]
    assert [name for name, _ in steps].count("probe by meaning") == 1
    assert ("scan", 1) in steps


async def test_large_owner_is_searched_by_indexes(settings: Settings) -> None:
    async with ScriptedServer() as service:
        service.set_script(Reply(_embed))
        embedding = {"provider": "openai", "model": "m", "dimension": 4, "base_url": service.url, "batch_size": 2048}
        known = settings.model_copy(update={"embedding": EmbeddingSettings.model_validate(embedding)})
        async with Rem.open(known) as rem:
            rows = [Resource(name=f"Row {number}", content=f"plain text {number}") for number in range(_ROWS)]
            july = datetime(2026, 7, 3, tzinfo=UTC)
            rows[77] = Resource(name="Row 77", content="the lighthouse keeper", timestamp=july)
            rows[88] = Resource(name="Row 88", content="a zebra crossing")
            await rem.for_user("alice").store.upsert_many(rows)
            await rem.for_user("bob").store.upsert(Resource(name="Bob's", content="the lighthouse and the zebra"))
            await rem.index()

            by_meaning = await rem.for_user("alice").query('SEARCH "beacon" MODE vector LIMIT 1')
            assert [row.key for row in by_meaning.hits] == ["row-77"]
            by_words = await rem.for_user("alice").query('SEARCH "zebra" MODE text')
            assert [row.key for row in by_words.hits] == ["row-88"]
            both = await rem.for_user("alice").query('SEARCH "beacon zebra" LIMIT 10')
            assert {"row-77", "row-88"} <= {row.key for row in both.hits}
            # Without any messages, there are no questions and remarks to collect apart.
            probes = [step.name for step in both.steps if step.name.startswith("probe")]
            assert probes == ["probe by meaning", "probe by words"]
            filtered = await rem.for_user("alice").query("SEARCH \"zebra\" WHERE name = 'Row 77' MODE text")
            assert filtered.count == 0
            in_july = await rem.for_user("alice").query('SEARCH "beacon zebra" SINCE 2026-07-01 UNTIL 2026-08-01')
            assert [row.key for row in in_july.hits] == ["row-77"]
            assert "scan" in {step.name for step in in_july.steps}
            assert [row.key for row in (await rem.for_user("bob").query('SEARCH "zebra"')).hits] == ["bob's"]
            await _check_search_with_few_messages(rem)
            await _check_search_among_others(rem)
            # With more than 200,000 passages, a time range is searched by these functions.
            for since, nearest, rare in (("2026-07-01", 1, 1), ("2026-07-04", 0, 0)):
                assert await _count_probed(rem, _NEAREST, since) == nearest
                assert await _count_probed(rem, _RARE_WORDS, since) == rare

"""The examples of plain language and plans in docs/query-language.md work on the sample workspace."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest

from rem.app import Rem
from rem.demo import DEMO_TENANT
from rem.query.plans.plan import MAX_STAGES
from rem.query.plans.run import MAX_CONCURRENT_QUERIES, MAX_RUNS_PER_STAGE
from rem.query.plans.template import MAX_VALUES
from rem.settings import EmbeddingSettings, Settings
from tests.rem_command import REPOSITORY

_PAGE = (REPOSITORY / "docs" / "query-language.md").read_text(encoding="utf-8")


@pytest.fixture
async def rem(settings: Settings) -> AsyncIterator[Rem]:
    """Open REM with the sample workspace, without an embedder."""
    async with Rem.open(settings.model_copy(update={"embedding": EmbeddingSettings(provider="none")})) as rem:
        await rem.load_demo()
        yield rem


def example(name: str) -> str:
    return _PAGE.split(f"<!-- example: {name} -->", 1)[1].split("\n## ", 1)[0]


async def test_examples_of_plain_language_and_plans_work(rem: Rem) -> None:
    texts = re.findall(r"^\| `(.*)` \| `(.*)` \|$", example("plain"), re.MULTILINE)
    assert len(texts) == 9
    for text, becomes in texts:
        assert (await rem.ask(text, tenant=DEMO_TENANT)).notes[0] == f"Understood as: {becomes}"
    block = re.search(r"```json\n(.*?)```", example("plan"), re.DOTALL)
    assert block is not None
    result = await rem.run_plan(block[1], tenant=DEMO_TENANT)
    assert [stage.status for stage in result.stages] == ["done"] * 4
    assert result["teammates"].result.count == 3
    assert result.answer == "work"
    assert f'"answer": "work", "results": […], "count": {result.count}}}' in _PAGE
    assert len(result["work"].queries) == 2


def test_documented_limits_equal_the_code() -> None:
    plans = example("plan")
    assert f"up to {MAX_VALUES:,}" in plans
    assert f"at most {MAX_STAGES} stages" in " ".join(plans.split())
    assert f"at most {MAX_RUNS_PER_STAGE} rows" in plans
    assert {4: "at most four queries"}[MAX_CONCURRENT_QUERIES] in " ".join(plans.split()).lower()

"""Golden sets, experiments and feedback go to Phoenix and come back.

The tests use a small server of Phoenix's protocol. With PHOENIX_TEST_URL (`make test-phoenix`) those that Phoenix can
answer use a real server.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from pydantic import SecretStr

from rem.agents.yaml_parser import parse_agent
from rem.app import Rem
from rem.context import Scope
from rem.errors import NotFoundError, PhoenixError, SettingsError
from rem.evals.evaluators import Evaluator
from rem.evals.golden_sets import GoldenCase, GoldenSet
from rem.evals.phoenix import (
    PhoenixClient,
    create_evaluator_from_schema,
    open_phoenix,
    pull_feedback,
    push_feedback,
    run_evaluation_experiment,
)
from rem.evals.targets import FunctionTarget
from rem.models import Feedback
from rem.settings import PhoenixSettings
from tests.evals.phoenix_server import PhoenixServer, phoenix_server

ALICE = Scope(user_id="alice")
ANSWERS = {"France": "Paris", "Japan": "Tokyo"}
EXACT = parse_agent("description: x\njson_schema_extra: {kind: evaluator, name: same, evaluation: {method: exact}}", "")
REAL_URL = os.environ.get("PHOENIX_TEST_URL")


@pytest.fixture(scope="module")
def server() -> Iterator[PhoenixServer]:
    with phoenix_server() as server:
        yield server


@pytest.fixture
async def phoenix(server: PhoenixServer) -> AsyncIterator[PhoenixClient]:
    async with open_phoenix(PhoenixSettings(endpoint=REAL_URL or server.url)) as client:
        yield client


def make_golden(name: str) -> GoldenSet:
    cases = [
        GoldenCase(id=country, input=country, reference=capital, metadata={"level": "easy"})
        for country, capital in ANSWERS.items()
    ]
    return GoldenSet(name, tuple(cases))


async def test_golden_set_comes_back_as_it_was(phoenix: PhoenixClient) -> None:
    golden_set = make_golden(f"capitals {os.getpid()}")
    dataset = await phoenix.upload_golden_set(golden_set)
    assert set(dataset.example_ids) == set(ANSWERS)
    again = await phoenix.upload_golden_set(golden_set)
    assert again == dataset
    name = f"{golden_set.name}-{golden_set.data_hash}"
    returned = await phoenix.download_golden_set(name)
    assert sorted(returned.cases, key=lambda case: case.id) == list(golden_set.cases)
    with pytest.raises(NotFoundError, match="no data set"):
        await phoenix.download_golden_set("nothing")


async def test_experiment_is_stored_with_outputs_and_scores(rem_without_embedder: Rem, phoenix: PhoenixClient) -> None:
    answers = {**ANSWERS, "Japan": "Kyoto"}
    run, experiment_id = await run_evaluation_experiment(
        rem_without_embedder,
        ALICE,
        make_golden(f"experiment {os.getpid()}"),
        FunctionTarget(answers.__getitem__, "answers"),
        [Evaluator(EXACT)],
        phoenix=phoenix,
    )
    assert run.ended_at is not None
    assert experiment_id is not None
    rows = await phoenix.download_run(experiment_id)
    assert sorted(str(row["output"]) for row in rows) == ["Kyoto", "Paris"]
    annotations = [annotation for row in rows for annotation in row["annotations"]]
    assert {annotation["name"] for annotation in annotations} == {"same.pass"}
    assert sorted(_get_result(annotation, "label") for annotation in annotations) == ["fail", "pass"]


def _get_result(annotation: dict[str, Any], name: str) -> Any:
    return annotation.get("result", annotation)[name]


async def test_experiment_runs_without_phoenix(rem_without_embedder: Rem) -> None:
    target = FunctionTarget(ANSWERS.__getitem__, "answers")
    run, experiment_id = await run_evaluation_experiment(
        rem_without_embedder, ALICE, make_golden("alone"), target, [Evaluator(EXACT)]
    )
    assert run.ended_at is not None
    assert experiment_id is None


@pytest.mark.skipif(REAL_URL is not None, reason="A real server knows no spans of this test.")
async def test_feedback_goes_both_ways(
    rem_without_embedder: Rem, server: PhoenixServer, phoenix: PhoenixClient
) -> None:
    store = rem_without_embedder.store(ALICE)
    await store.upsert(Feedback(rating=-1, comment="Wrong year.", span_id="00f0", trace_id="t1"))
    await store.upsert(Feedback(rating=1))
    await rem_without_embedder.store("bob").upsert(Feedback(rating=1, span_id="00f1"))
    for _ in range(2):
        assert await push_feedback(rem_without_embedder, ALICE, phoenix) == 1
    (sent,) = server.annotations
    assert (sent["span_id"], sent["annotator_kind"]) == ("00f0", "HUMAN")
    assert sent["result"] == {"score": -1, "label": "down", "explanation": "Wrong year."}
    answer = {"score": 0.0, "label": "wrong", "explanation": "It was 2025."}
    server.annotations.append(
        {"id": "human-1", "span_id": "00f0", "name": "review", "annotator_kind": "HUMAN", "result": answer}
    )
    server.annotations.append(
        {"id": "llm-1", "span_id": "00f0", "name": "llm", "annotator_kind": "LLM", "result": answer}
    )
    assert await pull_feedback(rem_without_embedder, ALICE, phoenix) == 1
    assert await pull_feedback(rem_without_embedder, ALICE, phoenix) == 0
    (received,) = [row for row in await store.find(Feedback) if row.metadata.get("phoenix_id")]
    assert (received.rating, received.comment, received.categories) == (-1, "wrong: It was 2025.", ["review"])
    assert received.trace_id == "t1"


async def test_evaluator_is_a_function_for_phoenix() -> None:
    evaluate = create_evaluator_from_schema(EXACT)
    assert evaluate.__name__ == "same"
    right = await evaluate(input={"input": "France"}, output="Paris", expected={"reference": "Paris"})
    assert right == {"score": 1.0, "label": "pass", "explanation": None}
    wrong = await evaluate(input={"q": 1}, output={"answer": "x"}, expected={"answer": "y"}, metadata={})
    assert (wrong["score"], wrong["label"]) == (0.0, "fail")


async def test_errors_say_what_to_do(server: PhoenixServer) -> None:
    with pytest.raises(SettingsError, match="PHOENIX__ENDPOINT"):
        async with open_phoenix(PhoenixSettings()):
            pass
    async with open_phoenix(PhoenixSettings(endpoint="http://127.0.0.1:9")) as client:
        with pytest.raises(PhoenixError, match="Check PHOENIX__ENDPOINT"):
            await client.download_golden_set("x")
    async with open_phoenix(PhoenixSettings(endpoint=f"{server.url}/nothing")) as client:
        with pytest.raises(PhoenixError, match="404"):
            await client.download_golden_set("x")
    async with open_phoenix(PhoenixSettings(endpoint=server.url, api_key=SecretStr("s3"))) as client:
        await client.upload_golden_set(make_golden("with key"))
    assert "Bearer s3" in server.api_keys

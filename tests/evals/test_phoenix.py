"""Golden sets, experiments and feedback go to Phoenix and come back.

The tests use a small server of Phoenix's protocol, or the real server at PHOENIX_TEST_URL (`make test-phoenix`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
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


async def test_feedback_on_a_traced_answer_goes_both_ways(
    rem_without_embedder: Rem, server: PhoenixServer, phoenix: PhoenixClient
) -> None:
    url = REAL_URL or server.url
    span_id = await trace_answer(phoenix)
    store = rem_without_embedder.for_user(ALICE).store
    await store.upsert(Feedback(rating=-1, comment="Wrong year.", span_id=span_id, trace_id="t1"))
    await store.upsert(Feedback(rating=1))
    await rem_without_embedder.for_user("bob").store.upsert(Feedback(rating=1, span_id="00000000000000f1"))
    for _ in range(2):
        assert await push_feedback(rem_without_embedder, ALICE, phoenix) == 1
    (sent,) = await list_annotations(url, span_id)
    assert sent["annotator_kind"] == "HUMAN"
    assert sent["result"] == {"score": -1, "label": "down", "explanation": "Wrong year."}
    answer = {"score": 0.0, "label": "wrong", "explanation": "It was 2025."}
    async with httpx2.AsyncClient(base_url=url) as http:
        data = [
            {
                "span_id": span_id,
                "name": kind,
                "annotator_kind": kind,
                "result": answer,
                "identifier": f"{span_id}-{kind}",
            }
            for kind in ("HUMAN", "LLM")
        ]
        (await http.post("/v1/span_annotations", params={"sync": "true"}, json={"data": data})).raise_for_status()
    assert await pull_feedback(rem_without_embedder, ALICE, phoenix) == 1
    assert await pull_feedback(rem_without_embedder, ALICE, phoenix) == 0
    (received,) = [row for row in await store.find(Feedback) if row.metadata.get("phoenix_id")]
    assert (received.rating, received.comment, received.categories) == (-1, "wrong: It was 2025.", ["HUMAN"])
    assert received.trace_id == "t1"


async def trace_answer(phoenix: PhoenixClient) -> str:
    """Send a span to a real server as `rem serve` does, wait until it is there, and return its id."""
    if REAL_URL is None:
        return "00000000000000f0"
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    provider = TracerProvider(resource=Resource.create({"openinference.project.name": "rem"}))
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint=f"{REAL_URL}/v1/traces")))
    with provider.get_tracer("rem").start_as_current_span("invoke_agent rem") as span:
        span_id = f"{span.get_span_context().span_id:016x}"
    await asyncio.to_thread(provider.shutdown)
    async with asyncio.timeout(60):
        # Phoenix stores spans in the background.
        while span_id not in [item["context"]["span_id"] for item in await phoenix.list_spans()]:  # noqa: ASYNC110
            await asyncio.sleep(0.5)
    return span_id


async def list_annotations(url: str, span_id: str) -> list[dict[str, Any]]:
    async with httpx2.AsyncClient(base_url=url) as http:
        response = await http.get("/v1/projects/rem/span_annotations", params={"span_ids": [span_id]})
    annotations: list[dict[str, Any]] = response.json()["data"]
    return annotations


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

"""`POST /query`: the query language and natural language."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from pydantic import SecretStr

from rem.api.main import create_app
from rem.db.store import Store
from rem.models import Edge, Resource, User
from rem.settings import LlmSettings, Settings
from tests.api.live_server import client, served
from tests.cases import cases
from tests.scripted_model import Call, Refuse, ScriptedModel, Step, has_result, scripted_model


async def ask(by: httpx2.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await by.post("/api/v1/query", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.fixture
async def memory(alice: Store) -> None:
    await alice.upsert(User(name="Sarah Chen", graph_edges=[Edge(dst="api-design", rel_type="wrote")]))
    await alice.upsert_many(
        [Resource(name="API design", content="How our API is designed.")]
        + [Resource(name=f"Guide {n}", content=f"The migration guide, part {n}.") for n in range(12)]
    )


@pytest.mark.usefixtures("memory")
async def test_rem_dialect_query(as_alice: httpx2.AsyncClient) -> None:
    found = await ask(as_alice, query='LOOKUP "Sarah Chen"')
    assert (found["query_type"], found["count"]) == ("LOOKUP", 1)
    assert found["results"][0]["key"] == "sarah-chen"
    assert "steps" not in found
    assert "steps" in await ask(as_alice, query="LOOKUP sarah-chen", explain=True)


@pytest.mark.usefixtures("memory")
async def test_natural_language_answer_has_the_understood_query(as_alice: httpx2.AsyncClient) -> None:
    found = await ask(as_alice, query="who is sarah chen?", mode="natural-language")
    assert found["results"][0]["key"] == "sarah-chen"
    assert found["query_type"] == "LOOKUP"


@pytest.mark.usefixtures("memory")
async def test_limit_overrides_the_limit_of_the_query(as_alice: httpx2.AsyncClient) -> None:
    search = 'SEARCH "migration guide" FROM resources MODE text'
    assert (await ask(as_alice, query=search))["count"] == 10
    assert (await ask(as_alice, query=search, limit=12))["count"] == 12
    assert (await ask(as_alice, query=f"{search} LIMIT 8", limit=2))["count"] == 2
    assert (await ask(as_alice, query="SELECT name FROM resources", limit=3))["count"] == 3


@pytest.mark.usefixtures("memory")
async def test_rows_of_another_user_are_not_found_in_any_mode(
    as_bob: httpx2.AsyncClient, anyone: httpx2.AsyncClient
) -> None:
    for someone in (as_bob, anyone):
        for body in (
            {"query": "LOOKUP sarah-chen"},
            {"query": "SELECT name FROM users"},
            {"query": 'SEARCH "how our API is designed"'},
            {"query": "sarah chen", "mode": "natural-language"},
        ):
            assert (await ask(someone, **body))["results"] == []


async def test_syntax_error_has_its_position(as_alice: httpx2.AsyncClient) -> None:
    refused = await as_alice.post("/api/v1/query", json={"query": 'SERCH "x"'})
    error = refused.json()["error"]
    assert refused.status_code == 400
    assert error["code"] == "query_syntax"
    assert error["details"] == {"line": 1, "column": 1, "suggestion": 'SEARCH "x"'}


@cases(
    ("body", "status"),
    [
        ({}, 422),
        ({"query": ""}, 400),
        ({"query": "DELETE FROM users"}, 400),
        ({"query": "SELECT pg_read_file('x')"}, 400),
    ],
)
async def test_invalid_query_request_is_refused_with_a_reason(
    as_alice: httpx2.AsyncClient, body: dict[str, Any], status: int
) -> None:
    refused = await as_alice.post("/api/v1/query", json=body)
    assert refused.status_code == status
    assert refused.json()["error"]["message"]


async def test_missing_values_are_null_in_records(anyone: httpx2.AsyncClient, shared: Store) -> None:
    await shared.upsert(Resource(name="Handbook", content="Be kind."))
    (row,) = (await ask(anyone, query="LOOKUP handbook"))["results"]
    assert row["record"]["user_id"] is None
    assert (await ask(anyone, query="SELECT name, uri FROM resources"))["results"] == [
        {"name": "Handbook", "uri": None}
    ]


@pytest.fixture
async def client_with_model(settings: Settings) -> AsyncIterator[tuple[httpx2.AsyncClient, ScriptedModel]]:
    """Yield a client of Alice for a server with a language model, and the model."""
    with scripted_model() as model:
        llm = LlmSettings(
            default_model="openai:scripted", base_url=model.url, openai_api_key=SecretStr("none"), max_retries=0
        )
        app = create_app(settings.model_copy(update={"llm": llm}))
        async with served(app) as address, client(address, "alice@example.com") as opened:
            yield opened, model


@pytest.mark.usefixtures("memory")
async def test_agent_answers_natural_language_with_a_language_model(
    client_with_model: tuple[httpx2.AsyncClient, ScriptedModel],
) -> None:
    as_alice, model = client_with_model
    answer = {"answer": "She wrote the API design.", "confidence": 0.9, "sources": ["sarah-chen"]}

    def script(body: dict[str, Any]) -> list[Step]:
        if not has_result(body):
            return [Call("search_rem", {"query": "LOOKUP sarah-chen"})]
        assert "api-design" in str(body["messages"][-1])
        return [Call("final_result", answer, "call_2")]

    model.script = script
    found = await ask(as_alice, query="what did sarah write?", mode="natural-language")
    assert (found["query_type"], found["results"]) == ("AGENT", [answer])


@pytest.mark.usefixtures("memory")
async def test_failing_language_model_falls_back_to_a_query(
    client_with_model: tuple[httpx2.AsyncClient, ScriptedModel],
) -> None:
    as_alice, model = client_with_model
    model.script = lambda _body: [Refuse(500)]
    found = await ask(as_alice, query="sarah chen", mode="natural-language")
    assert found["results"][0]["key"] == "sarah-chen"
    assert found["notes"][0]["code"] == "without_model"


@pytest.mark.usefixtures("memory")
async def test_plain_words_are_answered_with_rows(as_alice: httpx2.AsyncClient) -> None:
    found = await ask(as_alice, query="sarah chen", mode="plain-words", explain=True)
    assert found["results"][0]["key"] == "sarah-chen"
    assert found["query_type"] == "LOOKUP"
    guides = await ask(as_alice, query="the migration guide", mode="plain-words", limit=4)
    assert (guides["query_type"], guides["count"]) == ("SEARCH", 4)


@pytest.mark.usefixtures("memory")
async def test_explanation_has_the_parsed_query(as_alice: httpx2.AsyncClient) -> None:
    found = await ask(as_alice, query="search migration guide", explain=True, limit=3)
    assert (found["tree"]["type"], found["tree"]["text"], found["tree"]["limit"]) == ("SEARCH", "migration guide", 3)
    assert {"database"} <= {step["name"] for step in found["steps"]}


async def test_queries_are_parsed_without_being_run(as_alice: httpx2.AsyncClient) -> None:
    parsed = (await as_alice.post("/api/v1/query/parse", json={"query": "lookup Sarah Chen"})).json()
    assert (parsed["query_type"], parsed["query"]) == ("LOOKUP", 'LOOKUP "Sarah Chen"')
    refused = await as_alice.post("/api/v1/query/parse", json={"query": 'FUZZY "sara" TRESHOLD 0.7'})
    assert refused.status_code == 400
    assert refused.json()["error"]["details"] == {
        "line": 1,
        "column": 14,
        "suggestion": 'FUZZY "sara" THRESHOLD 0.7',
    }


async def test_language_has_verbs_clauses_and_tables(as_alice: httpx2.AsyncClient) -> None:
    language = (await as_alice.get("/api/v1/query/language")).json()
    verbs = {verb["name"]: verb for verb in language["verbs"]}
    assert list(verbs) == ["LOOKUP", "FUZZY", "SEARCH", "TRAVERSE", "SQL"]
    clauses = {clause["words"][0]: clause for clause in verbs["TRAVERSE"]["clauses"]}
    assert clauses["DIRECTION"]["choices"] == ["out", "in", "both"]
    assert "ORDER BY" in clauses
    assert "resources" in language["tables"]


@pytest.mark.usefixtures("memory")
async def test_keys_are_completed(as_alice: httpx2.AsyncClient, as_bob: httpx2.AsyncClient) -> None:
    async def complete(by: httpx2.AsyncClient, **asked: Any) -> list[str]:
        page = (await by.get("/api/v1/query/keys", params=asked)).json()
        return [f"{item['table']}/{item['key']}" for item in page["data"]]

    assert await complete(as_alice, prefix="Sarah ") == ["users/sarah-chen"]
    assert await complete(as_alice, prefix="guide", limit=2) == ["resources/guide-0", "resources/guide-1"]
    assert await complete(as_alice, prefix="sar", table="resources") == []
    assert await complete(as_bob, prefix="sar") == []
    assert (await as_alice.get("/api/v1/query/keys", params={"table": "none"})).status_code == 400

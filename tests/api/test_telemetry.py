"""OTEL__ENABLED: traces of agents, models, tools and queries, without texts of users."""

from __future__ import annotations

from typing import Any

import httpx2

from tests.api.otel_collector import Collector
from tests.cli.test_serve import serving
from tests.scripted_model import Call, Refuse, Step, has_result, scripted_model


def test_collector_receives_spans_without_content(dsn: str) -> None:
    def script(body: dict[str, Any]) -> list[Step]:
        return ["Nobody knows."] if has_result(body) else [Call("search_rem", {"query": "SEARCH hunter2"})]

    with Collector() as collector, scripted_model() as model:
        model.script = script
        settings = {
            "POSTGRES__CONNECTION_STRING": dsn,
            "OTEL__ENABLED": "true",
            "OTEL__COLLECTOR_ENDPOINT": collector.url,
            "OTEL__SERVICE_NAME": "my-rem",
            "LLM__BASE_URL": model.url,
            "LLM__OPENAI_API_KEY": "none",
            "LLM__DEFAULT_MODEL": "openai:scripted",
        }
        with serving(settings=settings) as (address, _process):
            asked = {"input": "who is hunter2?"}
            run = httpx2.post(
                f"{address}/api/v1/agents/rem/run", json=asked, headers={"X-User-Id": "alice"}, timeout=30
            )
            assert run.status_code == 200
            bad = httpx2.post(f"{address}/api/v1/query", json={"query": "LOOKUP hunter2 FROM hunter3"}, timeout=30)
            assert bad.status_code == 400
    assert collector.services == {"my-rem"}
    spans = {span.name: span for span in collector.spans}
    kinds = " ".join(spans)
    assert any("agent" in name for name in spans), kinds
    assert any(name.startswith("chat") for name in spans), kinds
    assert any("tool" in name for name in spans), kinds
    queries = [span for span in collector.spans if span.name.startswith("rem.")]
    assert queries
    # A query of a tool belongs to the answer; the one that was asked directly stands alone.
    traces = {span.trace_id for span in collector.spans if "agent" in span.name}
    assert any(span.trace_id in traces for span in queries)
    failed = [span for span in queries if span.status.code == 2]
    assert [span.status.message for span in failed] == ["UnknownTableError"]
    assert b"hunter" not in collector.content


def test_traced_errors_have_no_quoted_content(dsn: str) -> None:
    def script(body: dict[str, Any]) -> list[Step]:
        if not has_result(body):
            return [Call("search_rem", {"query": "SERCH hunter2"}), Call("no_such_tool", {"hunter2": 1}, "call_2")]
        return [Refuse(500, "I do not like hunter2")]

    with Collector() as collector, scripted_model() as model:
        model.script = script
        settings = {
            "POSTGRES__CONNECTION_STRING": dsn,
            "OTEL__ENABLED": "true",
            "OTEL__COLLECTOR_ENDPOINT": collector.url,
            "LLM__BASE_URL": model.url,
            "LLM__OPENAI_API_KEY": "none",
            "LLM__DEFAULT_MODEL": "openai:scripted",
            "LLM__MAX_RETRIES": "0",
        }
        with serving(settings=settings) as (address, _process):
            run = httpx2.post(f"{address}/api/v1/agents/rem/run", json={"input": "hunter2?"}, timeout=30)
            assert run.status_code == 502
    failed = [span for span in collector.spans if span.status.code == 2]
    assert failed
    assert b"hunter" not in collector.content


def test_server_works_without_a_reachable_collector(dsn: str) -> None:
    settings = {
        "POSTGRES__CONNECTION_STRING": dsn,
        "OTEL__ENABLED": "true",
        "OTEL__COLLECTOR_ENDPOINT": "http://127.0.0.1:9",
    }
    with serving(settings=settings) as (address, _process):
        asked = {"query": "LOOKUP nobody"}
        assert httpx2.post(f"{address}/api/v1/query", json=asked, timeout=30).status_code == 200

"""Errors of models and providers are described clearly and without secrets."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from pydantic_ai import Agent, RunTimedOut, UsageLimits
from pydantic_ai import exceptions as library

from rem.agents.model_errors import describe_model_error
from rem.agents.model_registry import MAX_LINE_BYTES, ModelRegistry
from rem.errors import (
    ModelError,
    ModelNotFoundError,
    ModelRateLimitError,
    ModelTimeoutError,
    RemError,
    RunLimitError,
    ToolFailedError,
)
from tests.agents.registries import API_KEY, make_registry
from tests.scripted_model import Call, HangUp, Pause, Raw, Refuse, ScriptedModel

REJECTED_KEY = "The provider rejected the key for the model llama3: check LLM__OPENAI_API_KEY or the provider's own."


async def describe_failure(models: ModelRegistry, name: str = "llama3", **run: Any) -> RemError:
    """Run a model that fails, and return the error as REM describes it."""
    agent = Agent(models.resolve(name).model)

    @agent.tool_plain
    def look() -> str:
        return "nothing"

    with pytest.raises(Exception) as caught:  # noqa: PT011  # any error of the library
        async with agent.run_stream_events("Hi", **run) as events:
            async for _ in events:
                pass
    described = describe_model_error(caught.value)
    assert caught.value in (described, described.__cause__)
    assert API_KEY not in str(described)
    return described


@pytest.mark.parametrize(
    ("step", "kind", "message"),
    [
        (Refuse(401, f"Incorrect API key provided: {API_KEY}"), ModelError, REJECTED_KEY),
        (Refuse(404, "The model does not exist"), ModelNotFoundError, "has no model 'llama3'"),
        (Refuse(429), ModelRateLimitError, "The model llama3 has reached its rate limit: try again"),
        (
            Refuse(400, f"Bad parameter top_q, Bearer {API_KEY}"),
            ModelError,
            "rejected the request: Bad parameter",
        ),
        (
            Refuse(400, "This model does not support tool calls"),
            ModelError,
            "does not support tool calls. Agents need a model that can call tools: choose another one.",
        ),
        (Refuse(500, "kaboom"), ModelError, "is not available at the moment: kaboom"),
        (Refuse(503, ""), ModelError, "is not available at the moment"),
        (Pause(3), ModelTimeoutError, "did not answer in time"),
        (HangUp(), ModelError, "closed the connection"),
        (Raw(b"data: {not json\n\n"), ModelError, "malformed answer"),
        (Raw(b"data: " + b"x" * (MAX_LINE_BYTES + 1)), ModelError, "sent a line of more than 16 MB"),
    ],
    ids=["key", "model", "rate", "request", "tools", "broken", "down", "slow", "hang-up", "garbage", "endless line"],
)
async def test_provider_error_is_described(
    models: ModelRegistry, server: ScriptedModel, step: Any, kind: type[RemError], message: str
) -> None:
    server.script = lambda _body: [step]
    described = await describe_failure(models)
    assert type(described) is kind
    assert message in str(described)


async def test_request_limit_is_described(models: ModelRegistry, server: ScriptedModel) -> None:
    server.script = lambda _body: [Call("look")]
    described = await describe_failure(models, usage_limits=UsageLimits(request_limit=3))
    assert type(described) is RunLimitError
    assert "request_limit of 3" in str(described)
    assert "raise LLM__REQUEST_LIMIT, or the agent's request_limit" in str(described)
    assert "https://" not in str(described)


async def test_token_limit_is_described(models: ModelRegistry, server: ScriptedModel) -> None:
    server.script = lambda _body: [Call("look")]
    described = await describe_failure(models, usage_limits=UsageLimits(total_tokens_limit=1))
    assert type(described) is RunLimitError
    assert "raise the agent's total_tokens_limit" in str(described)
    assert "LLM__REQUEST_LIMIT" not in str(described)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (library.ModelAuthenticationError, "The provider rejected the key for the model fake: check"),
        (library.ModelQuotaExceededError, "The account for the model fake has no credit left"),
        (library.ModelContextWindowExceededError, "The session is too long for the model fake: lower"),
        (library.ModelRateLimitError, "The model fake has reached its rate limit"),
    ],
)
def test_message_names_the_model(kind: type[library.ModelAPIError], message: str) -> None:
    assert str(describe_model_error(kind("fake", "It failed."))).startswith(message)


async def test_repeated_calls_of_unknown_tool_are_described(models: ModelRegistry, server: ScriptedModel) -> None:
    server.script = lambda _body: [Call("no_such_tool")]
    assert "kept making invalid tool calls" in str(await describe_failure(models))


async def test_unreachable_server_is_described() -> None:
    models = make_registry(base_url="http://127.0.0.1:9/v1", max_retries=0)
    described = await describe_failure(models)
    assert type(described) is ModelError
    assert "check the network and LLM__BASE_URL" in str(described)
    await models.close()


@pytest.mark.parametrize("retries", [0, 1])
async def test_request_is_retried_as_often_as_configured(server: ScriptedModel, retries: int) -> None:
    server.requests.clear()
    server.script = lambda _body: [Refuse(500)]
    models = make_registry(base_url=server.url, max_retries=retries)
    await describe_failure(models)
    assert len(server.requests) == 1 + retries
    await models.close()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TimeoutError(), ModelTimeoutError),
        (httpx2.ReadTimeout("x"), ModelTimeoutError),
        (RunTimedOut("x"), ModelTimeoutError),
        (httpx2.ConnectError("x"), ModelError),
        (ConnectionResetError(), ModelError),
        (ValueError(API_KEY), ModelError),
    ],
)
def test_other_errors_are_described_without_details(error: BaseException, kind: type[RemError]) -> None:
    described = describe_model_error(error)
    assert type(described) is kind
    assert API_KEY not in str(described)


def test_rem_error_is_returned_unchanged() -> None:
    error = ToolFailedError("It failed.")
    assert describe_model_error(error) is error

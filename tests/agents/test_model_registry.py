"""Which model a name means, and what is said when a model fails."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import pytest
from pydantic import SecretStr
from pydantic_ai import Agent, RunTimedOut, UsageLimits
from pydantic_ai import exceptions as library
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel

from rem.agents.model_errors import describe_model_error
from rem.agents.model_registry import ModelRegistry, list_models
from rem.errors import (
    ModelError,
    ModelNotFoundError,
    ModelRateLimitError,
    ModelTimeoutError,
    RemError,
    RunLimitError,
    ToolFailedError,
)
from rem.settings import LlmSettings, Settings
from tests.scripted_model import Call, HangUp, Pause, Raw, Refuse, ScriptedModel, scripted_model

_KEY = "sk-very-secret-key-0123456789"
_REFUSED = "The provider rejected the key for the model llama3: check LLM__OPENAI_API_KEY or the provider's own."


def settings(**llm: Any) -> Settings:
    return Settings(llm=LlmSettings(**llm))


def registry(**llm: Any) -> ModelRegistry:
    return ModelRegistry(settings(**llm))


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedModel]:
    with scripted_model() as model:
        yield model


@pytest.fixture
async def models(server: ScriptedModel) -> AsyncIterator[ModelRegistry]:
    server.requests.clear()
    server.script = lambda _body: ["Hello", " there"]
    models = registry(base_url=server.url, openai_api_key=SecretStr(_KEY), timeout_seconds=0.5, max_retries=0)
    yield models
    await models.close()


@pytest.mark.parametrize("name", [None, "", "rem", " rem "])
def test_without_settings_the_local_model_answers(name: str | None) -> None:
    resolved = registry().resolve(name)
    assert (resolved.name, resolved.is_local) == ("rem:local", True)
    assert resolved.model.model_name == "rem:local"


def test_rem_means_the_configured_model() -> None:
    models = registry(default_model="openai:gpt-4o", openai_api_key=SecretStr(_KEY))
    assert models.resolve(None).name == models.resolve("rem").name == "openai:gpt-4o"
    assert models.resolve("rem:local").is_local


def test_a_default_that_means_itself_is_the_local_model() -> None:
    assert registry(default_model="rem").resolve(None).is_local


def test_names_choose_the_provider_and_its_interface() -> None:
    models = registry(openai_api_key=SecretStr(_KEY), anthropic_api_key=SecretStr(_KEY))
    assert type(models.resolve("openai:gpt-4o").model) is OpenAIChatModel
    assert type(models.resolve("openai-chat:gpt-4o").model) is OpenAIChatModel
    assert type(models.resolve("openai-responses:gpt-4o").model) is OpenAIResponsesModel
    assert type(models.resolve("anthropic:claude-sonnet-4-5").model) is AnthropicModel


def test_a_bare_name_is_a_model_of_the_openai_compatible_server() -> None:
    resolved = registry(base_url="http://127.0.0.1:9/v1").resolve("llama3")
    assert resolved.name == "openai:llama3"
    assert resolved.model.base_url == "http://127.0.0.1:9/v1/"
    assert registry(openai_api_key=SecretStr(_KEY)).resolve("gpt-4o").name == "openai:gpt-4o"


def test_keys_and_addresses_of_the_environment_are_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", _KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("ANTHROPIC_API_KEY", _KEY)
    models = registry()
    assert models.resolve("gpt-4o").model.base_url == "http://127.0.0.1:9/v1/"
    assert not models.resolve("anthropic:claude-sonnet-4-5").is_local


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gpt-4o", "There is no model 'gpt-4o': name its provider, such as openai:gpt-4o."),
        ("test", "There is no model 'test'"),
        ("rem:lcoal", "Did you mean rem:local?"),
        ("openai:", "There is no model 'openai:'"),
        ("opnai:gpt-4o", "There is no provider 'opnai' for the model 'opnai:gpt-4o'. Did you mean openai?"),
        ("anthropc:x", "Did you mean anthropic?"),
        ("zzzzzz:x", "Providers are openai, anthropic,"),
        ("test:x", "There is no provider 'test'"),
        (":x", "There is no provider ''"),
        ("openai:gpt-4o", "Set LLM__OPENAI_API_KEY or OPENAI_API_KEY, or LLM__BASE_URL"),
        ("anthropic:claude", "Set LLM__ANTHROPIC_API_KEY or ANTHROPIC_API_KEY"),
        ("openrouter:x", "is not set up: Set the `OPENROUTER_API_KEY` environment variable to use"),
        ("groq:x", "needs a package that is not installed: Please install the `groq` package"),
        ("openai-codex:x", "needs a personal login"),
        ("voyageai:x", "voyageai"),
        ("x" * 1_000, "at most 200 printable characters"),
        ("a\nb", "at most 200 printable characters"),
    ],
)
def test_an_unknown_model_is_an_error_that_says_what_to_do(name: str, says: str) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        registry().resolve(name)
    assert says in str(caught.value)
    assert "Agent('test')" not in str(caught.value)


def test_a_model_is_made_once_and_its_connections_are_shared() -> None:
    models = registry(openai_api_key=SecretStr(_KEY))
    first, other = models.resolve("openai:a").model, models.resolve("openai-responses:b").model
    assert models.resolve("openai:a").model is first
    assert isinstance(first, OpenAIChatModel)
    assert isinstance(other, OpenAIResponsesModel)
    assert first.client is other.client


def test_names_that_callers_make_up_do_not_pile_up() -> None:
    models = registry(openai_api_key=SecretStr(_KEY))
    first = models.resolve("openai:model-0").model
    for number in range(100):
        models.resolve(f"openai:model-{number}")
    assert models.resolve("openai:model-0").model is not first
    assert models.resolve("openai:model-99").model is models.resolve("openai:model-99").model


def test_the_list_of_models() -> None:
    assert [card.id for card in list_models(settings())] == ["rem", "rem:local"]
    cards = list_models(settings(default_model="anthropic:claude-sonnet-4-5"))
    assert [(card.id, card.owned_by) for card in cards] == [
        ("rem", "rem"),
        ("rem:local", "rem"),
        ("anthropic:claude-sonnet-4-5", "anthropic"),
    ]


async def test_a_model_of_a_compatible_server_answers(models: ModelRegistry, server: ScriptedModel) -> None:
    resolved = models.resolve("llama3")
    assert (await Agent(resolved.model).run("Hi")).output == "Hello there"
    assert server.requests[0]["model"] == "llama3"


async def test_after_closing_a_model_can_be_asked_again(models: ModelRegistry) -> None:
    first = models.resolve("llama3").model
    await Agent(first).run("Hi")
    await models.close()
    again = models.resolve("llama3").model
    assert again is not first
    assert (await Agent(again).run("Hi")).output == "Hello there"


async def failure(models: ModelRegistry, name: str = "llama3", **run: Any) -> RemError:
    """The error of a run, in a stream, as REM describes it."""
    agent = Agent(models.resolve(name).model)

    @agent.tool_plain
    def look() -> str:
        return "nothing"

    with pytest.raises(Exception) as caught:  # noqa: PT011  # whatever the library makes of it
        async with agent.run_stream_events("Hi", **run) as events:
            async for _ in events:
                pass
    described = describe_model_error(caught.value)
    assert described.__cause__ is caught.value
    assert _KEY not in str(described)
    return described


@pytest.mark.parametrize(
    ("step", "kind", "says"),
    [
        (Refuse(401, f"Incorrect API key provided: {_KEY}"), ModelError, _REFUSED),
        (Refuse(404, "The model does not exist"), ModelNotFoundError, "has no model 'llama3'"),
        (Refuse(429), ModelRateLimitError, "The model llama3 has reached its rate limit: try again"),
        (Refuse(400, f"Bad parameter top_q, Bearer {_KEY}"), ModelError, "rejected the request: Bad parameter top_q"),
        (Refuse(500, "kaboom"), ModelError, "is not available at the moment: kaboom"),
        (Refuse(503, ""), ModelError, "is not available at the moment"),
        (Pause(3), ModelTimeoutError, "did not answer in time"),
        (HangUp(), ModelError, "closed the connection"),
        (Raw(b"data: {not json\n\n"), ModelError, "malformed answer"),
    ],
    ids=["key", "model", "rate", "request", "broken", "down", "slow", "hang-up", "garbage"],
)
async def test_a_provider_that_fails_is_described(
    models: ModelRegistry, server: ScriptedModel, step: Any, kind: type[RemError], says: str
) -> None:
    server.script = lambda _body: [step]
    described = await failure(models)
    assert type(described) is kind
    assert says in str(described)


async def test_a_model_that_loops_meets_the_limit(models: ModelRegistry, server: ScriptedModel) -> None:
    server.script = lambda _body: [Call("look")]
    described = await failure(models, usage_limits=UsageLimits(request_limit=3))
    assert type(described) is RunLimitError
    assert "request_limit of 3" in str(described)
    assert "raise LLM__REQUEST_LIMIT, or the agent's request_limit" in str(described)
    assert "https://" not in str(described)


async def test_a_limit_of_tokens_names_itself(models: ModelRegistry, server: ScriptedModel) -> None:
    server.script = lambda _body: [Call("look")]
    described = await failure(models, usage_limits=UsageLimits(total_tokens_limit=1))
    assert type(described) is RunLimitError
    assert "raise the agent's total_tokens_limit" in str(described)
    assert "LLM__REQUEST_LIMIT" not in str(described)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (library.ModelAuthenticationError, "The provider rejected the key for the model fake: check"),
        (library.ModelQuotaExceededError, "The account for the model fake has no credit left"),
        (library.ModelContextWindowExceededError, "The session is too long for the model fake: lower"),
        (library.ModelRateLimitError, "The model fake has reached its rate limit"),
    ],
)
def test_the_model_is_named_as_the_sentence_wants_it(kind: type[library.ModelAPIError], says: str) -> None:
    assert str(describe_model_error(kind("fake", "It failed."))).startswith(says)


async def test_a_model_that_keeps_calling_what_does_not_exist_is_described(
    models: ModelRegistry, server: ScriptedModel
) -> None:
    server.script = lambda _body: [Call("no_such_tool")]
    assert "kept making invalid tool calls" in str(await failure(models))


async def test_a_server_that_is_not_there_is_described() -> None:
    models = registry(base_url="http://127.0.0.1:9/v1", max_retries=0)
    described = await failure(models)
    assert type(described) is ModelError
    assert "check the network and LLM__BASE_URL" in str(described)
    await models.close()


@pytest.mark.parametrize("retries", [0, 1])
async def test_a_request_is_repeated_as_often_as_the_settings_say(server: ScriptedModel, retries: int) -> None:
    server.requests.clear()
    server.script = lambda _body: [Refuse(500)]
    models = registry(base_url=server.url, max_retries=retries)
    await failure(models)
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
        (ValueError(_KEY), ModelError),
    ],
)
def test_other_errors_are_described_without_their_details(error: BaseException, kind: type[RemError]) -> None:
    described = describe_model_error(error)
    assert type(described) is kind
    assert _KEY not in str(described)


def test_an_error_of_ours_is_itself() -> None:
    error = ToolFailedError("It failed.")
    assert describe_model_error(error) is error

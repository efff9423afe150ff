"""Names of models: resolve them, list them, reuse their connections."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pydantic import SecretStr
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel

from rem.agents.model_registry import ModelRegistry, list_models
from rem.errors import (
    ModelNotFoundError,
    ModelRequiredError,
)
from tests.agents.registries import API_KEY, make_registry, make_settings
from tests.scripted_model import ScriptedModel


@pytest.mark.parametrize("name", [None, "", "rem", " rem "])
def test_default_model_is_local_without_settings(name: str | None) -> None:
    resolved = make_registry().resolve(name)
    assert (resolved.name, resolved.is_local) == ("rem:local", True)
    with pytest.raises(ModelRequiredError):
        assert resolved.model


def test_rem_is_the_configured_model() -> None:
    models = make_registry(default_model="openai:gpt-4o", openai_api_key=SecretStr(API_KEY))
    assert models.resolve(None).name == models.resolve("rem").name == "openai:gpt-4o"
    assert models.resolve("rem:local").is_local


def test_default_model_named_rem_is_the_local_model() -> None:
    assert make_registry(default_model="rem").resolve(None).is_local


def test_name_selects_provider_and_api() -> None:
    # Its import takes a second, which every worker would need.
    from pydantic_ai.models.anthropic import AnthropicModel

    models = make_registry(openai_api_key=SecretStr(API_KEY), anthropic_api_key=SecretStr(API_KEY))
    assert type(models.resolve("openai:gpt-4o").model) is OpenAIChatModel
    assert type(models.resolve("openai-chat:gpt-4o").model) is OpenAIChatModel
    assert type(models.resolve("openai-responses:gpt-4o").model) is OpenAIResponsesModel
    assert type(models.resolve("anthropic:claude-sonnet-4-5").model) is AnthropicModel


def test_name_without_provider_is_a_model_of_the_openai_compatible_server() -> None:
    resolved = make_registry(base_url="http://127.0.0.1:9/v1").resolve("llama3")
    assert resolved.name == "openai:llama3"
    assert resolved.model.base_url == "http://127.0.0.1:9/v1/"
    assert make_registry(openai_api_key=SecretStr(API_KEY)).resolve("gpt-4o").name == "openai:gpt-4o"


def test_keys_and_addresses_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", API_KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("ANTHROPIC_API_KEY", API_KEY)
    models = make_registry()
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
def test_error_for_unknown_model_says_what_to_do(name: str, says: str) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        make_registry().resolve(name)
    assert says in str(caught.value)
    assert "Agent('test')" not in str(caught.value)


def test_model_is_made_once_and_shares_connections() -> None:
    models = make_registry(openai_api_key=SecretStr(API_KEY))
    first, other = models.resolve("openai:a").model, models.resolve("openai-responses:b").model
    assert models.resolve("openai:a").model is first
    assert isinstance(first, OpenAIChatModel)
    assert isinstance(other, OpenAIResponsesModel)
    assert first.client is other.client


def test_number_of_cached_models_is_limited() -> None:
    models = make_registry(openai_api_key=SecretStr(API_KEY))
    first = models.resolve("openai:model-0").model
    for number in range(100):
        models.resolve(f"openai:model-{number}")
    assert models.resolve("openai:model-0").model is not first
    assert models.resolve("openai:model-99").model is models.resolve("openai:model-99").model


def test_list_of_models() -> None:
    assert [card.id for card in list_models(make_settings())] == ["rem", "rem:local"]
    cards = list_models(make_settings(default_model="anthropic:claude-sonnet-4-5"))
    assert [(card.id, card.owned_by) for card in cards] == [
        ("rem", "rem"),
        ("rem:local", "rem"),
        ("anthropic:claude-sonnet-4-5", "anthropic"),
    ]


async def test_model_of_compatible_server_answers(models: ModelRegistry, server: ScriptedModel) -> None:
    resolved = models.resolve("llama3")
    assert (await Agent(resolved.model).run("Hi")).output == "Hello there"
    assert server.requests[0]["model"] == "llama3"


async def test_model_can_be_used_again_after_close(models: ModelRegistry) -> None:
    first = models.resolve("llama3").model
    await Agent(first).run("Hi")
    await models.close()
    again = models.resolve("llama3").model
    assert again is not first
    assert (await Agent(again).run("Hi")).output == "Hello there"


def test_library_of_a_provider_is_imported_in_a_thread() -> None:
    # In a new process, which has not imported it yet.
    done = subprocess.run([sys.executable, "-c", LOAD_MODEL], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "openai:gpt-4o True\n"), done.stderr


LOAD_MODEL = """
import asyncio, sys, threading

from rem.agents.model_registry import ModelRegistry
from rem.settings import Settings

assert "openai" not in sys.modules
threads = []

class Watch:
    def find_spec(self, name, *_arguments):
        if name == "openai":
            threads.append(threading.current_thread())

sys.meta_path.insert(0, Watch())

async def main():
    models = ModelRegistry(Settings(llm={"openai_api_key": "none"}))
    model = await models.load("openai:gpt-4o")
    print(model.name, bool(threads) and threading.main_thread() not in threads)
    await models.close()

asyncio.run(main())
"""

"""A scripted model on loopback, and a registry that knows it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from pydantic import SecretStr

from rem.agents.model_registry import ModelRegistry
from tests.agents.registries import API_KEY, make_registry
from tests.scripted_model import ScriptedModel, scripted_model


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedModel]:
    with scripted_model() as model:
        yield model


@pytest.fixture
async def models(server: ScriptedModel) -> AsyncIterator[ModelRegistry]:
    server.requests.clear()
    server.script = lambda _body: ["Hello", " there"]
    models = make_registry(base_url=server.url, openai_api_key=SecretStr(API_KEY), timeout_seconds=0.5, max_retries=0)
    yield models
    await models.close()


@pytest.fixture(scope="module")
def running_model() -> Iterator[ScriptedModel]:
    with scripted_model() as model:
        yield model


@pytest.fixture
def model(running_model: ScriptedModel) -> ScriptedModel:
    running_model.script = lambda _body: ["Noted."]
    running_model.requests.clear()
    return running_model

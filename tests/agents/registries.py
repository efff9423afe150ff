"""Model registries for tests, and the settings that they are made from."""

from __future__ import annotations

from typing import Any

from rem.agents.model_registry import ModelRegistry
from rem.settings import LlmSettings, Settings

API_KEY = "sk-very-secret-key-0123456789"


def make_settings(**llm: Any) -> Settings:
    return Settings(llm=LlmSettings(**llm))


def make_registry(**llm: Any) -> ModelRegistry:
    return ModelRegistry(make_settings(**llm))

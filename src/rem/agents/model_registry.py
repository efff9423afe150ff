"""Which language model a name means, made once and reused."""

from __future__ import annotations

import os
import pkgutil
import re
from collections import OrderedDict
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import pydantic_ai
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, infer_model, parse_model_id
from pydantic_ai.providers import Provider, infer_provider, infer_provider_class
from pydantic_ai.settings import ModelSettings

from rem.agents.local.model import LOCAL_MODEL, get_local_model
from rem.agents.schema import did_you_mean
from rem.errors import ModelNotFoundError

if TYPE_CHECKING:
    from pydantic import SecretStr

    from rem.settings import LlmSettings, Settings

pydantic_ai.BANNER_ENABLED = False

DEFAULT_MODEL = "rem"
"""The name of whatever model is configured."""
_OPENAI = ("openai", "openai-chat", "openai-responses")
_OF_A_PERSON = ("openai-codex", "openai-chatgpt")
"""Providers that use the login of whoever runs the server; callers of the server are others."""
_MOST_MODELS = 64
_LONGEST_NAME = 200
_HOW_IN_PYTHON = re.compile(r" or pass (?:it|them) via `[^`]*`| To try Pydantic AI.*\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model that can be asked."""

    name: str
    model: Model
    is_local: bool


@dataclass(frozen=True, slots=True)
class ModelCard:
    """A model that callers can name."""

    id: str
    owned_by: str
    description: str


def list_models(settings: Settings) -> list[ModelCard]:
    """The models that can be named without looking at a provider's own list."""
    configured = settings.llm.default_model
    cards = [
        ModelCard(DEFAULT_MODEL, "rem", f"The configured model: {configured or LOCAL_MODEL}"),
        ModelCard(LOCAL_MODEL, "rem", "Answers with extracts of the memory, without a language model"),
    ]
    if configured and configured not in (DEFAULT_MODEL, LOCAL_MODEL):
        cards.append(ModelCard(configured, parse_model_id(configured)[0] or "openai", "The default of this server"))
    return cards


def _chosen(name: str | None, llm: LlmSettings) -> str:
    name = (name or "").strip()
    if name in ("", DEFAULT_MODEL):
        name = (llm.default_model or "").strip()
        if name in ("", DEFAULT_MODEL):
            return LOCAL_MODEL
    if len(name) > _LONGEST_NAME or not name.isprintable():
        raise ModelNotFoundError(f"A model's name has at most {_LONGEST_NAME} printable characters.")
    return name


def _with_provider(name: str, llm: LlmSettings) -> str:
    """The name with its provider; a bare one is a model of the OpenAI-compatible server, if there is one."""
    provider, rest = parse_model_id(name)
    if provider is None:
        if _openai_address(llm) or _openai_key(llm):
            return f"openai:{name}"
        offered = f"{DEFAULT_MODEL} and {LOCAL_MODEL}"
        raise ModelNotFoundError(
            f"There is no model {name!r}: name its provider, such as openai:{name}. Without a provider there are "
            f"{offered}; others need LLM__BASE_URL or LLM__OPENAI_API_KEY."
        )
    if provider == "rem" or not rest.strip():
        raise ModelNotFoundError(f"There is no model {name!r}.{did_you_mean(name, [LOCAL_MODEL, 'openai:gpt-4o'])}")
    return name


class ModelRegistry:
    """The models by name. All models of a provider share its connections."""

    def __init__(self, settings: Settings) -> None:
        self._llm = settings.llm
        self._models: OrderedDict[str, Model] = OrderedDict()
        self._providers: dict[str, Provider[Any]] = {}

    def resolve(self, name: str | None) -> ResolvedModel:
        """The model that a name means: `rem` or none is the configured one, which is `rem:local` if nothing is."""
        name = _chosen(name, self._llm)
        if name == LOCAL_MODEL:
            return ResolvedModel(LOCAL_MODEL, get_local_model(), is_local=True)
        name = _with_provider(name, self._llm)
        model = self._models.get(name) or self._make(name)
        self._models[name] = model
        self._models.move_to_end(name)
        # Callers may name any model; their names must not fill the memory.
        if len(self._models) > _MOST_MODELS:
            self._models.popitem(last=False)
        return ResolvedModel(name, model, is_local=False)

    async def close(self) -> None:
        """Close the connections to all providers. A model that is asked for later opens them again."""
        providers = list(self._providers.values())
        self._models.clear()
        self._providers.clear()
        for provider in providers:
            # A provider closes its connections when it is left.
            async with provider:
                pass

    def _make(self, name: str) -> Model:
        try:
            model = self._model(name)
        except ImportError as error:
            raise ModelNotFoundError(f"The model {name!r} needs a package that is not installed: {error}.") from error
        except (UserError, ValueError) as error:
            raise ModelNotFoundError(_not_set_up(name, error)) from error
        if "timeout" not in model.unsupported_settings:
            model._settings = ModelSettings(timeout=self._llm.timeout_seconds)
        return model

    def _model(self, name: str) -> Model:
        provider, model_name = parse_model_id(name)
        _refuse_unknown(name, provider or "")
        if provider == "openai":
            # The library would take OpenAI's newer interface, which compatible servers seldom have.
            from pydantic_ai.models.openai import OpenAIChatModel

            return OpenAIChatModel(model_name, provider=self._provider("openai"))
        return infer_model(name, self._provider)

    def _provider(self, name: str) -> Provider[Any]:
        name = "openai" if name in _OPENAI else name
        if name not in self._providers:
            provider = _new_provider(name, self._llm)
            client: Any = provider.client
            if hasattr(client, "max_retries"):
                client.max_retries = self._llm.max_retries
            self._providers[name] = provider
        return self._providers[name]


def _new_provider(name: str, llm: LlmSettings) -> Provider[Any]:
    if name == "openai":
        from pydantic_ai.providers.openai import OpenAIProvider

        address, key = _openai_address(llm), _openai_key(llm)
        if address is None and key is None:
            raise UserError(
                "Set LLM__OPENAI_API_KEY or OPENAI_API_KEY, or LLM__BASE_URL for a server that is OpenAI-compatible."
            )
        return OpenAIProvider(base_url=address, api_key=key)
    if name == "anthropic":
        from pydantic_ai.providers.anthropic import AnthropicProvider

        key = _anthropic_key(llm)
        if key is None:
            raise UserError("Set LLM__ANTHROPIC_API_KEY or ANTHROPIC_API_KEY.")
        return AnthropicProvider(api_key=key)
    return infer_provider(name)


def _refuse_unknown(name: str, provider: str) -> None:
    if provider in _OF_A_PERSON:
        raise ModelNotFoundError(f"The model {name!r} needs the login of a person, which a server must not use.")
    try:
        infer_provider_class(provider)
    except ValueError as error:
        near = did_you_mean(provider, _provider_names()) if provider else ""
        hint = near if "Did you mean" in near else f" Providers are {', '.join(_provider_names()[:6])} and others."
        raise ModelNotFoundError(f"There is no provider {provider!r} for the model {name!r}.{hint}") from error
    except ImportError:
        # The provider is known; what it lacks is said where it is made.
        return


@cache
def _provider_names() -> list[str]:
    names = [module.name.replace("_", "-") for module in pkgutil.iter_modules(pydantic_ai.providers.__path__)]
    known = {name for name in names if not name.startswith("-")} - {*_OF_A_PERSON, "gateway"}
    popular = ["openai", "anthropic", "google", "mistral", "groq", "ollama"]
    return [*popular, *sorted({*known, *_OPENAI} - set(popular))]


def _not_set_up(name: str, error: Exception) -> str:
    return f"The model {name!r} is not set up: {_HOW_IN_PYTHON.sub('', str(error)).strip()}"


def _openai_address(llm: LlmSettings) -> str | None:
    return (llm.base_url or os.environ.get("OPENAI_BASE_URL") or "").strip() or None


def _openai_key(llm: LlmSettings) -> str | None:
    return _secret(llm.openai_api_key, "OPENAI_API_KEY")


def _anthropic_key(llm: LlmSettings) -> str | None:
    return _secret(llm.anthropic_api_key, "ANTHROPIC_API_KEY")


def _secret(setting: SecretStr | None, variable: str) -> str | None:
    value = setting.get_secret_value() if setting is not None else ""
    return value.strip() or os.environ.get(variable, "").strip() or None

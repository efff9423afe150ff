"""ModelRegistry: resolve the name of a language model, and reuse models and connections."""

from __future__ import annotations

import asyncio
import os
import pkgutil
import re
from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import httpx2
import pydantic_ai
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, infer_model, parse_model_id
from pydantic_ai.providers import Provider, infer_provider, infer_provider_class
from pydantic_ai.settings import ModelSettings

from rem.errors import ModelError, ModelNotFoundError, ModelRequiredError
from rem.text import did_you_mean, find_similar

if TYPE_CHECKING:
    from pydantic import SecretStr

    from rem.settings import LlmSettings, Settings

pydantic_ai.BANNER_ENABLED = False

LOCAL_MODEL = "rem:local"
"""No language model: the memory answers itself."""
DEFAULT_MODEL = "rem"
"""The name of the configured model."""
_OPENAI_PROVIDERS = ("openai", "openai-chat", "openai-responses")
_PERSONAL_PROVIDERS = ("openai-codex", "openai-chatgpt")
"""Providers that use the personal login of the person who runs the server. Callers must not use it."""
MAX_CACHED_MODELS = 64
MAX_LINE_BYTES = 16_000_000
"""A line of a stream has a few kilobytes. An answer without streaming is one line."""
MAX_NAME_CHARS = 200
_PYTHON_ADVICE = re.compile(r" or pass (?:it|them) via `[^`]*`| To try Pydantic AI.*\Z", re.DOTALL)
"""Advice in the library's messages that applies only to Python code."""


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model, ready for requests."""

    name: str
    given: Model | None
    """None for `rem:local`: the memory answers itself."""

    @property
    def is_local(self) -> bool:
        """Return whether the memory answers without a language model."""
        return self.given is None

    @property
    def model(self) -> Model:
        """The model of the library. Raise ModelRequiredError if the memory answers itself."""
        if self.given is None:
            raise ModelRequiredError
        return self.given


@dataclass(frozen=True, slots=True)
class ModelCard:
    """An entry in the list of models."""

    id: str
    owned_by: str
    description: str


def list_models(settings: Settings) -> list[ModelCard]:
    """Return the configured models. Providers are not asked for theirs."""
    configured = settings.llm.default_model
    cards = [
        ModelCard(DEFAULT_MODEL, "rem", f"The configured model: {configured or LOCAL_MODEL}"),
        ModelCard(LOCAL_MODEL, "rem", "The memory itself answers, without a language model"),
    ]
    if configured and configured not in (DEFAULT_MODEL, LOCAL_MODEL):
        cards.append(
            ModelCard(configured, parse_model_id(configured)[0] or "openai", "The default model of this server")
        )
    return cards


def _complete_name(name: str | None, llm: LlmSettings) -> str:
    name = _resolve_default(name, llm)
    return name if name == LOCAL_MODEL else _add_provider(name, llm)


def _resolve_default(name: str | None, llm: LlmSettings) -> str:
    name = (name or "").strip()
    if name in ("", DEFAULT_MODEL):
        name = (llm.default_model or "").strip()
        if name in ("", DEFAULT_MODEL):
            return LOCAL_MODEL
    if len(name) > MAX_NAME_CHARS or not name.isprintable():
        raise ModelNotFoundError(f"A model's name has at most {MAX_NAME_CHARS} printable characters.")
    return name


def _add_provider(name: str, llm: LlmSettings) -> str:
    """Return the name with its provider. A name without one is a model of the OpenAI-compatible server, if any."""
    provider, rest = parse_model_id(name)
    if provider is None:
        if _get_openai_url(llm) or _get_openai_key(llm):
            return f"openai:{name}"
        raise ModelNotFoundError(
            f"There is no model {name!r}: name its provider, such as openai:{name}. Without a provider there are "
            f"{DEFAULT_MODEL} and {LOCAL_MODEL}; others need LLM__BASE_URL or LLM__OPENAI_API_KEY."
        )
    if provider == "rem" or not rest.strip():
        raise ModelNotFoundError(f"There is no model {name!r}.{did_you_mean(name, [LOCAL_MODEL, 'openai:gpt-4o'])}")
    return name


class ModelRegistry:
    """Models by name. All models of a provider share its connections."""

    def __init__(self, settings: Settings) -> None:
        self._llm = settings.llm
        self._models: OrderedDict[str, Model] = OrderedDict()
        self._providers: dict[str, Provider[Any]] = {}
        self._loading = asyncio.Lock()

    async def load(self, name: str | None) -> ResolvedModel:
        """Return the model with this name, as `resolve` does. A model that is not loaded yet is loaded in a thread.

        The library of a provider takes half a second to import. In the event loop, all other requests would wait.
        """
        if (full_name := _complete_name(name, self._llm)) == LOCAL_MODEL or full_name in self._models:
            return self.resolve(name)
        async with self._loading:
            return await asyncio.to_thread(self.resolve, name)

    def resolve(self, name: str | None) -> ResolvedModel:
        """Return the model with this name. `rem` or None is the configured model, or `rem:local` if there is none.

        Raise ModelNotFoundError if the model is unknown or not set up.
        """
        name = _complete_name(name, self._llm)
        if name == LOCAL_MODEL:
            return ResolvedModel(LOCAL_MODEL, None)
        model = self._models.get(name) or self._make_model(name)
        self._models[name] = model
        self._models.move_to_end(name)
        # Callers may name any model, so the cache needs a limit.
        if len(self._models) > MAX_CACHED_MODELS:
            self._models.popitem(last=False)
        return ResolvedModel(name, model)

    async def close(self) -> None:
        """Close the connections to all providers. A later request opens them again."""
        providers = list(self._providers.values())
        self._models.clear()
        self._providers.clear()
        for provider in providers:
            # A provider closes its connections at the end of its context.
            async with provider:
                pass

    def _make_model(self, name: str) -> Model:
        try:
            model = self._infer_model(name)
        except ImportError as error:
            raise ModelNotFoundError(f"The model {name!r} needs a package that is not installed: {error}.") from error
        except (UserError, ValueError) as error:
            raise ModelNotFoundError(_describe_setup_error(name, error)) from error
        if "timeout" not in model.unsupported_settings:
            model._settings = ModelSettings(timeout=self._llm.timeout_seconds)
        return model

    def _infer_model(self, name: str) -> Model:
        provider, model_name = parse_model_id(name)
        _refuse_unknown(name, provider or "")
        if provider == "openai":
            # The library would use OpenAI's Responses API, which compatible servers rarely support.
            from pydantic_ai.models.openai import OpenAIChatModel

            return OpenAIChatModel(model_name, provider=self._get_provider("openai"))
        return infer_model(name, self._get_provider)

    def _get_provider(self, name: str) -> Provider[Any]:
        name = "openai" if name in _OPENAI_PROVIDERS else name
        if name not in self._providers:
            provider = _make_provider(name, self._llm)
            client: Any = provider.client
            if hasattr(client, "max_retries"):
                client.max_retries = self._llm.max_retries
            _bound_response_lines(client)
            self._providers[name] = provider
        return self._providers[name]


def _make_provider(name: str, llm: LlmSettings) -> Provider[Any]:
    if name == "openai":
        from pydantic_ai.providers.openai import OpenAIProvider

        url, key = _get_openai_url(llm), _get_openai_key(llm)
        if url is None and key is None:
            raise UserError(
                "Set LLM__OPENAI_API_KEY or OPENAI_API_KEY, or LLM__BASE_URL for a server that is OpenAI-compatible."
            )
        return OpenAIProvider(base_url=url, api_key=key)
    if name == "anthropic":
        from pydantic_ai.providers.anthropic import AnthropicProvider

        key = _get_anthropic_key(llm)
        if key is None:
            raise UserError("Set LLM__ANTHROPIC_API_KEY or ANTHROPIC_API_KEY.")
        return AnthropicProvider(api_key=key)
    return infer_provider(name)


def _refuse_unknown(name: str, provider: str) -> None:
    if provider in _PERSONAL_PROVIDERS:
        raise ModelNotFoundError(f"The model {name!r} needs a personal login, which a server must not use.")
    try:
        infer_provider_class(provider)
    except ValueError as error:
        similar = find_similar(provider, _list_providers())
        others = f" Providers are {', '.join(_list_providers()[:6])} and others."
        hint = others if similar is None else f" Did you mean {similar}?"
        raise ModelNotFoundError(f"There is no provider {provider!r} for the model {name!r}.{hint}") from error
    except ImportError:
        # The provider is known but its package is missing; making it raises the error with the details.
        return


@cache
def _list_providers() -> list[str]:
    names = [module.name.replace("_", "-") for module in pkgutil.iter_modules(pydantic_ai.providers.__path__)]
    known = {name for name in names if not name.startswith("-")} - {*_PERSONAL_PROVIDERS, "gateway"}
    popular = ["openai", "anthropic", "google", "mistral", "groq", "ollama"]
    return [*popular, *sorted({*known, *_OPENAI_PROVIDERS} - set(popular))]


def _describe_setup_error(name: str, error: Exception) -> str:
    return f"The model {name!r} is not set up: {_PYTHON_ADVICE.sub('', str(error)).strip()}"


def _get_openai_url(llm: LlmSettings) -> str | None:
    return (llm.base_url or os.environ.get("OPENAI_BASE_URL") or "").strip() or None


def _get_openai_key(llm: LlmSettings) -> str | None:
    return _get_secret(llm.openai_api_key, "OPENAI_API_KEY")


def _get_anthropic_key(llm: LlmSettings) -> str | None:
    return _get_secret(llm.anthropic_api_key, "ANTHROPIC_API_KEY")


def _get_secret(setting: SecretStr | None, variable: str) -> str | None:
    value = setting.get_secret_value() if setting is not None else ""
    return value.strip() or os.environ.get(variable, "").strip() or None


def _bound_response_lines(client: Any) -> None:
    """Let the HTTP client inside of a provider's client refuse lines that would fill the memory."""
    http_client = getattr(client, "_client", None)
    if isinstance(http_client, httpx2.AsyncClient):
        hooks = http_client.event_hooks
        http_client.event_hooks = {**hooks, "response": [*hooks["response"], _bound_lines]}


async def _bound_lines(response: httpx2.Response) -> None:
    if isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _BoundedStream(response.stream)


class _BoundedStream(httpx2.AsyncByteStream):
    """Passes a body on as it arrives, and raises ModelError in a line that is too long."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        line_bytes = 0
        async for chunk in self._stream:
            end = chunk.rfind(b"\n")
            line_bytes = line_bytes + len(chunk) if end < 0 else len(chunk) - end - 1
            if line_bytes > MAX_LINE_BYTES:
                raise ModelError(
                    f"The provider sent a line of more than {MAX_LINE_BYTES // 1_000_000} MB: check LLM__BASE_URL, or "
                    "choose another model."
                )
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()

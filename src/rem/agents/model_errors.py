"""Convert errors of a language model into REM's errors, with clear messages and without secrets."""

from __future__ import annotations

import re
from collections.abc import Callable

import httpx2
from pydantic_ai import exceptions as library

from rem.errors import ModelError, ModelNotFoundError, ModelRateLimitError, ModelTimeoutError, RemError, RunLimitError
from rem.text import collapse_spaces

MAX_QUOTED_CHARS = 300
_TOOL_WORDS = re.compile(r"\b(?:tool|function)[ _-]?(?:s|calls?|calling|choice)\b", re.IGNORECASE)
"""Words of a server's message that say that it does not support tools."""
_SECRET = re.compile(r"\b(?:sk|pk|rk|xai|gsk|key)[-_][\w*.-]{6,}|\bBearer\s+\S+|(?<=://)[^/\s@]+@", re.IGNORECASE)


def describe_model_error(error: BaseException) -> RemError:
    """Return the RemError for the error of a run, with the original as its cause. A RemError is returned unchanged."""
    if isinstance(error, RemError):
        return error
    describe = next(
        (describe for classes, describe in _DESCRIPTIONS if isinstance(error, classes)), _describe_unexpected
    )
    described = describe(error)
    described.__cause__ = error
    return described


def _describe_unexpected(error: BaseException) -> RemError:
    return ModelError(f"The answer failed unexpectedly ({type(error).__name__}). Try again.")


def _describe_timeout(error: BaseException) -> RemError:
    return ModelTimeoutError(
        f"{_name_model(error)} did not answer in time. Try again, or raise LLM__TIMEOUT_SECONDS if it is always slow."
    )


def _describe_limit(error: BaseException) -> RemError:
    reason = str(error).split(" Consider raising")[0].rstrip(".")
    return RunLimitError(f"The answer exceeded a limit of the agent: {reason}. {_suggest_limit(reason)}")


def _suggest_limit(reason: str) -> str:
    if "request_limit" in reason:
        return "Ask for less at once, or raise LLM__REQUEST_LIMIT, or the agent's request_limit if it has one."
    if "total_tokens_limit" in reason:
        return "Ask for less at once, or raise the agent's total_tokens_limit."
    return "Ask for less at once."


def _describe_unknown_model(error: BaseException) -> RemError:
    suggestion = getattr(error, "suggested_model_id", None)
    hint = f" Did you mean {suggestion}?" if suggestion else " Check its name, and LLM__BASE_URL if that is set."
    return ModelNotFoundError(f"The provider has no model {getattr(error, 'model_name', '')!r}.{hint}")


def _describe_invalid_key(error: BaseException) -> RemError:
    return ModelError(
        f"The provider rejected the key for {_name_model_inline(error)}: "
        "check LLM__OPENAI_API_KEY or the provider's own."
    )


def _describe_rate_limit(error: BaseException) -> RemError:
    seconds = getattr(error, "retry_after", None)
    when = f"in {seconds:.0f} seconds" if seconds else "in a moment"
    return ModelRateLimitError(f"{_name_model(error)} has reached its rate limit: try again {when}.")


def _describe_quota(error: BaseException) -> RemError:
    return ModelError(
        f"The account for {_name_model_inline(error)} has no credit left: top it up, or choose another model."
    )


def _describe_long_context(error: BaseException) -> RemError:
    return ModelError(
        f"The session is too long for {_name_model_inline(error)}: lower MEMORY__MAX_HISTORY_TOKENS, "
        "or start a new session."
    )


def _describe_rejection(error: BaseException) -> RemError:
    reason = _quote_provider(error)
    hint = " Agents need a model that can call tools: choose another one." if _TOOL_WORDS.search(reason) else ""
    return ModelError(f"{_name_model(error)} rejected the request: {reason}{hint}")


def _describe_outage(error: BaseException) -> RemError:
    return ModelError(f"{_name_model(error)} is not available at the moment: {_quote_provider(error)} Try again later.")


def _describe_connection_error(error: BaseException) -> RemError:
    return ModelError(
        f"{_name_model(error)} cannot be reached, or closed the connection: "
        "check the network and LLM__BASE_URL, or try again."
    )


def _describe_filtered_answer(error: BaseException) -> RemError:
    return ModelError("The provider's content filter stopped the answer: rephrase the question.")


def _describe_malformed_answer(error: BaseException) -> RemError:
    text = str(error)
    if "output retries" in text:
        return ModelError(
            "The model did not give an answer that matches the agent's schema: try again, or choose another model."
        )
    if "retries" in text and "ool" in text:
        return ModelError("The model kept making invalid tool calls: try again, or choose another model.")
    return ModelError("The model sent a malformed answer: try again, or choose another model.")


def _describe_misuse(error: BaseException) -> RemError:
    return ModelError(f"The model does not support this request: {_remove_secrets(str(error))}")


def _name_model(error: BaseException) -> str:
    name = getattr(error, "model_name", None)
    return f"The model {name}" if name else "The model"


def _name_model_inline(error: BaseException) -> str:
    """Return the name for use inside of a sentence."""
    name = getattr(error, "model_name", None)
    return f"the model {name}" if name else "the model"


def _quote_provider(error: BaseException) -> str:
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else body
    message = inner.get("message") if isinstance(inner, dict) else None
    status = getattr(error, "status_code", None)
    text = (
        _remove_secrets(message)
        if isinstance(message, str) and message.strip()
        else f"it answered with status {status}"
    )
    return f"{text.rstrip('.')}."


def _remove_secrets(text: str) -> str:
    """Return the text in one line, without keys, with at most MAX_QUOTED_CHARS characters."""
    text = _SECRET.sub("…", collapse_spaces(text))
    return text if len(text) <= MAX_QUOTED_CHARS else f"{text[:MAX_QUOTED_CHARS]}…"


_DESCRIPTIONS: tuple[
    tuple[type[BaseException] | tuple[type[BaseException], ...], Callable[[BaseException], RemError]], ...
] = (
    (library.UsageLimitExceeded, _describe_limit),
    (
        (
            library.ModelTimeoutError,
            library.ModelRequestTimeout,
            library.RunTimedOut,
            httpx2.TimeoutException,
            TimeoutError,
        ),
        _describe_timeout,
    ),
    (library.ModelNotFoundError, _describe_unknown_model),
    (library.ModelAuthenticationError, _describe_invalid_key),
    (library.ModelRateLimitError, _describe_rate_limit),
    (library.ModelQuotaExceededError, _describe_quota),
    (library.ModelContextWindowExceededError, _describe_long_context),
    (library.ModelRequestRejectedError, _describe_rejection),
    ((library.ModelConnectionError, httpx2.TransportError, ConnectionError), _describe_connection_error),
    ((library.ModelUnavailableError, library.ModelServerError, library.ModelHTTPError), _describe_outage),
    (library.ContentFilterError, _describe_filtered_answer),
    ((library.UnexpectedModelBehavior, library.ModelAPIError), _describe_malformed_answer),
    (library.UserError, _describe_misuse),
)
"""Special errors before general ones: the first match is used."""

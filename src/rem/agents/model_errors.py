"""What went wrong with a language model, as an error of REM's: clear, and without anything secret."""

from __future__ import annotations

import re
from collections.abc import Callable

import httpx2
from pydantic_ai import exceptions as library

from rem.errors import ModelError, ModelNotFoundError, ModelRateLimitError, ModelTimeoutError, RemError, RunLimitError

_LONGEST_QUOTED = 300
_SECRET = re.compile(r"\b(?:sk|pk|rk|xai|gsk|key)[-_][\w*.-]{6,}|\bBearer\s+\S+|(?<=://)[^/\s@]+@", re.IGNORECASE)


def describe_model_error(error: BaseException) -> RemError:
    """The error of REM's that a failed run amounts to; one that is REM's already is itself."""
    if isinstance(error, RemError):
        return error
    for kind, describe in _KINDS:
        if isinstance(error, kind):
            return _caused_by(describe(error), error)
    return _caused_by(ModelError(f"The answer failed unexpectedly ({type(error).__name__}). Try again."), error)


def _caused_by(described: RemError, error: BaseException) -> RemError:
    described.__cause__ = error
    return described


def _timeout(error: BaseException) -> RemError:
    return ModelTimeoutError(
        f"{_model(error)} takes too long. Try again, or raise LLM__TIMEOUT_SECONDS if it is always as slow."
    )


def _limit(error: BaseException) -> RemError:
    reason = str(error).split(" Consider raising")[0].rstrip(".")
    return RunLimitError(f"The answer took more than the agent may use: {reason}. {_raise_limit(reason)}")


def _raise_limit(reason: str) -> str:
    if "request_limit" in reason:
        return "Ask for less at once, or raise LLM__REQUEST_LIMIT, or the agent's request_limit if it has one."
    if "total_tokens_limit" in reason:
        return "Ask for less at once, or raise the agent's total_tokens_limit."
    return "Ask for less at once."


def _unknown(error: BaseException) -> RemError:
    near = getattr(error, "suggested_model_id", None)
    hint = f" Did you mean {near}?" if near else " Check its name, and LLM__BASE_URL if that is set."
    return ModelNotFoundError(f"The provider has no model {getattr(error, 'model_name', '')!r}.{hint}")


def _authentication(error: BaseException) -> RemError:
    return ModelError(
        f"The provider refuses the key for {_named(error)}: check LLM__OPENAI_API_KEY or the provider's own."
    )


def _rate(error: BaseException) -> RemError:
    wait = getattr(error, "retry_after", None)
    when = f"in {wait:.0f} seconds" if wait else "in a moment"
    return ModelRateLimitError(f"{_model(error)} is asked too often: try again {when}.")


def _quota(error: BaseException) -> RemError:
    return ModelError(f"The account for {_named(error)} has no credit left: top it up, or choose another model.")


def _context(error: BaseException) -> RemError:
    return ModelError(
        f"The conversation is too long for {_named(error)}: lower MEMORY__MAX_HISTORY_TOKENS, or begin a new session."
    )


def _rejected(error: BaseException) -> RemError:
    return ModelError(f"{_model(error)} refuses the request: {_provider_message(error)}")


def _down(error: BaseException) -> RemError:
    return ModelError(f"{_model(error)} does not work at the moment: {_provider_message(error)} Try again later.")


def _unreachable(error: BaseException) -> RemError:
    return ModelError(
        f"{_model(error)} cannot be reached, or broke off: check the network and LLM__BASE_URL, or try again."
    )


def _filtered(error: BaseException) -> RemError:
    return ModelError("The provider's content filter stopped the answer: put the question differently.")


def _odd(error: BaseException) -> RemError:
    text = str(error)
    if "output retries" in text:
        return ModelError("The model did not give an answer that fits the agent's schema: try again, or another model.")
    if "retries" in text and "ool" in text:
        return ModelError("The model kept calling a tool in a wrong way: try again, or another model.")
    return ModelError("The model sent an answer that cannot be read: try again, or choose another model.")


def _misused(error: BaseException) -> RemError:
    return ModelError(f"The model cannot be asked this way: {_safe(str(error))}")


def _model(error: BaseException) -> str:
    name = getattr(error, "model_name", None)
    return f"The model {name}" if name else "The model"


def _named(error: BaseException) -> str:
    """The same inside of a sentence."""
    name = getattr(error, "model_name", None)
    return f"the model {name}" if name else "the model"


def _provider_message(error: BaseException) -> str:
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else body
    message = inner.get("message") if isinstance(inner, dict) else None
    status = getattr(error, "status_code", None)
    text = _safe(message) if isinstance(message, str) and message.strip() else f"it answered with status {status}"
    return f"{text.rstrip('.')}."


def _safe(text: str) -> str:
    """The text in one line, without keys, and not too much of it."""
    text = _SECRET.sub("…", " ".join(text.split()))
    return text if len(text) <= _LONGEST_QUOTED else f"{text[:_LONGEST_QUOTED]}…"


_KINDS: tuple[
    tuple[type[BaseException] | tuple[type[BaseException], ...], Callable[[BaseException], RemError]], ...
] = (
    (library.UsageLimitExceeded, _limit),
    (
        (
            library.ModelTimeoutError,
            library.ModelRequestTimeout,
            library.RunTimedOut,
            httpx2.TimeoutException,
            TimeoutError,
        ),
        _timeout,
    ),
    (library.ModelNotFoundError, _unknown),
    (library.ModelAuthenticationError, _authentication),
    (library.ModelRateLimitError, _rate),
    (library.ModelQuotaExceededError, _quota),
    (library.ModelContextWindowExceededError, _context),
    (library.ModelRequestRejectedError, _rejected),
    ((library.ModelConnectionError, httpx2.TransportError, ConnectionError), _unreachable),
    ((library.ModelUnavailableError, library.ModelServerError, library.ModelHTTPError), _down),
    (library.ContentFilterError, _filtered),
    ((library.UnexpectedModelBehavior, library.ModelAPIError), _odd),
    (library.UserError, _misused),
)
"""From the special to the general: the first that fits counts."""

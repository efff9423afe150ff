"""HttpService: POST JSON to an embedding service, with retries after temporary failures and helpful errors."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from rem.errors import EmbeddingError, EmbeddingMisconfiguredError, EmbeddingUnavailableError
from rem.text import collapse_spaces

if TYPE_CHECKING:
    import httpx2

TEMPORARY_STATUS_CODES = {408, 409, 425, 429, 500, 502, 503, 504, 529}
FIRST_PAUSE_SECONDS = 0.5
MAX_PAUSE_SECONDS = 30.0
MAX_RETRY_AFTER_SECONDS = 60.0
"""If the service asks for a longer pause, the call fails at once: the caller should not wait that long."""
MAX_REASON_CHARS = 300


class RequestRejectedError(EmbeddingMisconfiguredError):
    """The service rejected the request (HTTP 400, 413 or 422). `reason` is its explanation."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The number of retries of a call, its timeout, and the pause before the first retry."""

    max_retries: int
    timeout_seconds: float
    first_pause_seconds: float = FIRST_PAUSE_SECONDS


class HttpService:
    """An HTTP service that takes JSON by POST."""

    def __init__(self, base_url: str, headers: Mapping[str, str], retry_policy: RetryPolicy) -> None:
        self._base_url = base_url.rstrip("/")
        self._headers = dict(headers)
        self._retry_policy = retry_policy
        self._client: httpx2.AsyncClient | None = None

    @property
    def base_url(self) -> str:
        """The address of the service, without a slash at its end."""
        return self._base_url

    async def post(self, path: str, body: object) -> Any:
        """Send `body` as JSON, and return the JSON of the answer. Raise an `EmbeddingError` if all attempts fail."""
        attempt = 0
        while True:
            answer = await self._attempt(path, body)
            if not isinstance(answer, _TemporaryFailure):
                return answer
            pause = self._pause_seconds(attempt, answer)
            if pause is None:
                raise answer.error
            attempt += 1
            await asyncio.sleep(pause)

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _attempt(self, path: str, body: object) -> Any:
        """Return the answer or a temporary failure. Raise a permanent failure."""
        import httpx2
        import orjson

        url = self._base_url + path
        try:
            response = await self._open_client().post(url, content=orjson.dumps(body))
        except httpx2.TimeoutException:
            seconds = f"{self._retry_policy.timeout_seconds:g}"
            message = f"{url} did not answer within {seconds} s (EMBEDDING__TIMEOUT_SECONDS)."
            return _TemporaryFailure(EmbeddingUnavailableError(message))
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
            raise EmbeddingMisconfiguredError(
                f"EMBEDDING__BASE_URL {self._base_url!r} is not a valid address: {error}"
            ) from error
        except httpx2.TransportError as error:
            return _TemporaryFailure(
                EmbeddingUnavailableError(f"{url} cannot be reached ({error}). Is EMBEDDING__BASE_URL right?")
            )
        if response.status_code in TEMPORARY_STATUS_CODES and not _is_out_of_quota(response):
            return _TemporaryFailure(_to_error(url, response), _parse_retry_after(response))
        if response.status_code != 200:
            raise _to_error(url, response)
        return _parse_json(url, response)

    def _open_client(self) -> httpx2.AsyncClient:
        if self._client is None:
            import httpx2

            headers = {"Content-Type": "application/json", **self._headers}
            self._client = httpx2.AsyncClient(headers=headers, timeout=self._retry_policy.timeout_seconds)
        return self._client

    def _pause_seconds(self, attempt: int, failure: _TemporaryFailure) -> float | None:
        """Return the pause before the next attempt, or None if there is none."""
        if attempt >= self._retry_policy.max_retries:
            return None
        if failure.retry_after_seconds is not None:
            is_acceptable = failure.retry_after_seconds <= MAX_RETRY_AFTER_SECONDS
            return failure.retry_after_seconds if is_acceptable else None
        pause = min(self._retry_policy.first_pause_seconds * 2.0**attempt, MAX_PAUSE_SECONDS)
        # Randomized, so that workers that failed together do not return together.
        return pause * random.uniform(0.5, 1.0)  # noqa: S311


@dataclass(frozen=True, slots=True)
class _TemporaryFailure:
    """A failure after which a retry may succeed."""

    error: EmbeddingError
    retry_after_seconds: float | None = None


def _parse_retry_after(response: httpx2.Response) -> float | None:
    """Return the seconds of the header Retry-After, which is a number or a date, or None."""
    value = response.headers.get("retry-after")
    if not value:
        return None
    if re.fullmatch(r"\d+(\.\d+)?", value.strip(), re.ASCII):
        return float(value)
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    date = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, (date - datetime.now(UTC)).total_seconds())


def _to_error(url: str, response: httpx2.Response) -> EmbeddingError:
    """Return the error for a response, with advice that depends on its status code."""
    status, reason = response.status_code, _extract_reason(response)
    message = f"{url} answered {status}: {reason}"
    if status in (401, 403):
        return EmbeddingMisconfiguredError(f"{message}. Set EMBEDDING__API_KEY to a key that is valid there.")
    if status in (400, 413, 422):
        return RequestRejectedError(f"{message}. Check EMBEDDING__MODEL and EMBEDDING__DIMENSION.", reason)
    if status == 429 or status >= 500 or status in TEMPORARY_STATUS_CODES:
        return EmbeddingUnavailableError(f"{message}. Try again later.")
    return EmbeddingMisconfiguredError(f"{message}. Check EMBEDDING__BASE_URL and EMBEDDING__MODEL.")


def _extract_reason(response: httpx2.Response) -> str:
    """Return the error message of the service in one short line."""
    try:
        body = response.json()
        error = body.get("error", body)
        text = error.get("message") or str(error) if isinstance(error, dict) else str(error)
    except (ValueError, AttributeError):
        text = response.text
    return collapse_spaces(text)[:MAX_REASON_CHARS] or response.reason_phrase


def _is_out_of_quota(response: httpx2.Response) -> bool:
    """Return True for OpenAI's 429 that no retry can cure."""
    return response.status_code == 429 and "insufficient_quota" in response.text


def _parse_json(url: str, response: httpx2.Response) -> Any:
    import orjson

    try:
        return orjson.loads(response.content)
    except ValueError as error:
        raise EmbeddingUnavailableError(
            f"{url} answered with something that is not JSON. Is EMBEDDING__BASE_URL right?"
        ) from error

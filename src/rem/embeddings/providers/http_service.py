"""Calls of an embedding service: JSON there and back, with retries while it makes sense, and errors that help."""

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

if TYPE_CHECKING:
    import httpx2

_PASSING = {408, 409, 425, 429, 500, 502, 503, 504, 529}
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 30.0
_LONGEST_ASKED_PAUSE_SECONDS = 60.0
_SHOWN_CHARACTERS = 300


class RefusedError(EmbeddingMisconfiguredError):
    """The service refused the request itself (HTTP 400, 413 or 422); `reason` is what it said."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a call is tried again, and how patient each try is."""

    most: int
    timeout_seconds: float
    first_pause_seconds: float = _FIRST_PAUSE_SECONDS


class HttpService:
    """An HTTP service that takes JSON by POST."""

    def __init__(self, base_url: str, headers: Mapping[str, str], retries: RetryPolicy) -> None:
        self._base_url = base_url.rstrip("/")
        self._headers = dict(headers)
        self._retries = retries
        self._client: httpx2.AsyncClient | None = None

    @property
    def base_url(self) -> str:
        """Where the service is."""
        return self._base_url

    async def post(self, path: str, body: object) -> Any:
        """What the service answers."""
        attempt = 0
        while True:
            answer = await self._attempt(path, body)
            if not isinstance(answer, _Failure):
                return answer
            pause = self._pause(attempt, answer)
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
        """The answer, or a failure that may pass; what will not pass is raised."""
        import httpx2
        import orjson

        url = self._base_url + path
        try:
            response = await self._connected().post(url, content=orjson.dumps(body))
        except httpx2.TimeoutException:
            seconds = f"{self._retries.timeout_seconds:g}"
            problem = f"{url} did not answer within {seconds} s (EMBEDDING__TIMEOUT_SECONDS)."
            return _Failure(EmbeddingUnavailableError(problem))
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
            raise EmbeddingMisconfiguredError(
                f"EMBEDDING__BASE_URL {self._base_url!r} is no address: {error}"
            ) from error
        except httpx2.TransportError as error:
            return _Failure(
                EmbeddingUnavailableError(f"{url} cannot be reached ({error}). Is EMBEDDING__BASE_URL right?")
            )
        if response.status_code in _PASSING and not _is_out_of_quota(response):
            return _Failure(_error(url, response), _asked_pause(response))
        if response.status_code != 200:
            raise _error(url, response)
        return _json(url, response)

    def _connected(self) -> httpx2.AsyncClient:
        if self._client is None:
            import httpx2

            headers = {"Content-Type": "application/json", **self._headers}
            self._client = httpx2.AsyncClient(headers=headers, timeout=self._retries.timeout_seconds)
        return self._client

    def _pause(self, attempt: int, failure: _Failure) -> float | None:
        """How long to wait before the next try; None if there is none."""
        if attempt >= self._retries.most:
            return None
        if failure.asked_pause is not None:
            return failure.asked_pause if failure.asked_pause <= _LONGEST_ASKED_PAUSE_SECONDS else None
        longest = min(self._retries.first_pause_seconds * 2.0**attempt, _LONGEST_PAUSE_SECONDS)
        # Spread, so that the workers that failed together do not come back together.
        return longest * random.uniform(0.5, 1.0)  # noqa: S311


@dataclass(frozen=True, slots=True)
class _Failure:
    error: EmbeddingError
    asked_pause: float | None = None


def _asked_pause(response: httpx2.Response) -> float | None:
    """The seconds of Retry-After, which is a number or a date."""
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


def _error(url: str, response: httpx2.Response) -> EmbeddingError:
    status, reason = response.status_code, _reason(response)
    said = f"{url} answered {status}: {reason}"
    if status in (401, 403):
        return EmbeddingMisconfiguredError(f"{said}. Set EMBEDDING__API_KEY to a key that is valid there.")
    if status in (400, 413, 422):
        return RefusedError(f"{said}. Check EMBEDDING__MODEL and EMBEDDING__DIMENSION.", reason)
    if status == 429 or status >= 500 or status in _PASSING:
        return EmbeddingUnavailableError(f"{said}. Try again later.")
    return EmbeddingMisconfiguredError(f"{said}. Check EMBEDDING__BASE_URL and EMBEDDING__MODEL.")


def _reason(response: httpx2.Response) -> str:
    """What the service says about its error, in one short line."""
    try:
        body = response.json()
        error = body.get("error", body)
        text = error.get("message") or str(error) if isinstance(error, dict) else str(error)
    except (ValueError, AttributeError):
        text = response.text
    return " ".join(text.split())[:_SHOWN_CHARACTERS] or response.reason_phrase


def _is_out_of_quota(response: httpx2.Response) -> bool:
    """OpenAI's 429 that no waiting cures."""
    return response.status_code == 429 and "insufficient_quota" in response.text


def _json(url: str, response: httpx2.Response) -> Any:
    import orjson

    try:
        return orjson.loads(response.content)
    except ValueError as error:
        raise EmbeddingUnavailableError(
            f"{url} answered with something that is not JSON. Is EMBEDDING__BASE_URL right?"
        ) from error

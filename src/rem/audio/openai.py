"""Transcribe with OpenAI or any server with a compatible `/audio/transcriptions`."""

from __future__ import annotations

import os

import httpx2

from rem.errors import AudioError
from rem.settings import Settings

_DEFAULT_BASE_URL = "https://api.openai.com/v1"
MAX_REASON_CHARS = 300


async def transcribe_with_openai(data: bytes, kind: str, settings: Settings) -> str:
    """Return the speech in a recording as text. `kind` is its file extension."""
    audio = settings.audio
    url = f"{(audio.base_url or settings.llm.base_url or _DEFAULT_BASE_URL).rstrip('/')}/audio/transcriptions"
    try:
        async with httpx2.AsyncClient(timeout=audio.timeout_seconds) as client:
            response = await client.post(
                url,
                headers=_authorization(settings),
                files={"file": (f"audio.{kind}", data)},
                data={"model": audio.model, "response_format": "json"},
            )
    except httpx2.TimeoutException as error:
        raise AudioError(
            f"{url} did not answer within {audio.timeout_seconds:g} s (AUDIO__TIMEOUT_SECONDS)."
        ) from error
    except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
        raise AudioError(f"AUDIO__BASE_URL is not a valid URL: {error}") from error
    except httpx2.TransportError as error:
        raise AudioError(f"{url} cannot be reached ({error}). Is AUDIO__BASE_URL right?") from error
    if response.status_code != 200:
        raise AudioError(
            f"{url} answered {response.status_code}: {_read_reason(response)}. {_advice(response.status_code)}"
        )
    return _read_text(url, response)


def _authorization(settings: Settings) -> dict[str, str]:
    """Return the Authorization header, or none if there is no key: a local server needs none."""
    secret = settings.audio.api_key or settings.llm.openai_api_key
    key = secret.get_secret_value() if secret else os.environ.get("OPENAI_API_KEY", "")
    return {"Authorization": f"Bearer {key}"} if key else {}


def _advice(status: int) -> str:
    if status in (401, 403):
        return "Set AUDIO__API_KEY to a key that is valid there."
    if status in (404, 405):
        return "If it has no transcription, set AUDIO__BASE_URL to a server that has, or AUDIO__PROVIDER=local."
    return "Check AUDIO__MODEL, or try again later."


def _read_reason(response: httpx2.Response) -> str:
    """Return the error message of the service as one short line."""
    try:
        error = response.json().get("error", {})
        text = str(error.get("message") or error) if isinstance(error, dict) else str(error)
    except (ValueError, AttributeError):
        text = response.text
    return " ".join(text.split())[:MAX_REASON_CHARS].rstrip(".") or response.reason_phrase


def _read_text(url: str, response: httpx2.Response) -> str:
    try:
        text = response.json()["text"]
    except (ValueError, KeyError, TypeError):
        text = None
    if not isinstance(text, str):
        raise AudioError(f"{url} did not answer with a text. Is AUDIO__BASE_URL right?")
    return text.strip()

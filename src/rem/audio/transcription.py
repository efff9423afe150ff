"""Decode spoken messages from base64, and transcribe recordings to text."""

from __future__ import annotations

import base64
import binascii
import os
import re

from rem.errors import AudioError, InvalidInputError
from rem.settings import AudioSettings, Settings

_DATA_URL = re.compile(r"data:[^,]{0,200};base64,", re.IGNORECASE)
_OTHER_ALPHABET = str.maketrans("-_", "+/")


def decode_audio(content: str, settings: Settings | None = None) -> bytes:
    """Decode a recording from base64 or a data URL. Raise an InvalidInputError if it is not audio or too large."""
    max_bytes = (settings.audio if settings else AudioSettings()).max_bytes
    data_url = _DATA_URL.match(content)
    text = "".join(content[data_url.end() if data_url else 0 :].split())
    if not text:
        raise InvalidInputError("The recording is empty: send a WAV file as base64.")
    if len(text) // 4 * 3 > max_bytes + 3:
        raise InvalidInputError(
            f"The recording is larger than {max_bytes:,} bytes: send a shorter one (AUDIO__MAX_BYTES)."
        )
    padding = "=" * (-len(text.rstrip("=")) % 4)
    try:
        data = base64.b64decode(text.rstrip("=").translate(_OTHER_ALPHABET) + padding, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidInputError(
            "The recording is not base64. Send a text message without the header X-Chat-Is-Audio."
        ) from error
    if len(data) > max_bytes:
        raise InvalidInputError(
            f"The recording is larger than {max_bytes:,} bytes: send a shorter one (AUDIO__MAX_BYTES)."
        )
    detect_audio_type(data)
    return data


def detect_audio_type(data: bytes) -> str:
    """Return the format of a recording as a file extension. Raise an InvalidInputError if it is not audio."""
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return "wav"
    if data[4:8] == b"ftyp":
        return "m4a"
    for signature, kind in _SIGNATURES.items():
        if data.startswith(signature):
            return kind
    if len(data) > 1 and data[0] == 0xFF and data[1] & 0xE0 == 0xE0:
        return "mp3"
    raise InvalidInputError("The recording is not in a supported format: send WAV, MP3, M4A, OGG, FLAC or WebM.")


_SIGNATURES = {b"ID3": "mp3", b"OggS": "ogg", b"fLaC": "flac", b"\x1a\x45\xdf\xa3": "webm"}


async def transcribe(data: bytes, settings: Settings) -> str:
    """Return the speech in a recording as text; empty if there is none. Raise an AudioError if transcription fails."""
    match select_provider(settings):
        case "openai":
            from rem.audio.openai import transcribe_with_openai

            return await transcribe_with_openai(data, detect_audio_type(data), settings)
        case "local":
            from rem.audio.local import transcribe_locally

            return await transcribe_locally(data)
        case _:
            raise AudioError(
                "No transcription provider is configured: set LLM__OPENAI_API_KEY or AUDIO__BASE_URL, "
                "or install the local model with `pip install 'remstack[audio]'`."
            )


def select_provider(settings: Settings) -> str:
    """Return `openai`, `local` or `none`, by the settings and the installed packages."""
    audio = settings.audio
    if audio.provider != "auto":
        return audio.provider
    has_address = audio.base_url or audio.api_key or settings.llm.base_url or settings.llm.openai_api_key
    if has_address or os.environ.get("OPENAI_API_KEY"):
        return "openai"
    from rem.audio.local import is_installed

    return "local" if is_installed() else "none"

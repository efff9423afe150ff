"""Spoken messages: from base64 to bytes, and from bytes to text."""

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
    """The recording that a message holds as base64, or as a data URL. An InvalidInputError says what is wrong."""
    most = (settings.audio if settings else AudioSettings()).max_bytes
    data_url = _DATA_URL.match(content)
    text = "".join(content[data_url.end() if data_url else 0 :].split())
    if not text:
        raise InvalidInputError("The recording is empty: send a WAV file as base64.")
    if len(text) // 4 * 3 > most + 3:
        raise InvalidInputError(f"The recording is larger than {most:,} bytes: send a shorter one (AUDIO__MAX_BYTES).")
    padding = "=" * (-len(text.rstrip("=")) % 4)
    try:
        data = base64.b64decode(text.rstrip("=").translate(_OTHER_ALPHABET) + padding, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidInputError(
            "The recording is not base64. X-Chat-Is-Audio says that the message is one: send text without that header."
        ) from error
    if len(data) > most:
        raise InvalidInputError(f"The recording is larger than {most:,} bytes: send a shorter one (AUDIO__MAX_BYTES).")
    detect_audio_type(data)
    return data


def detect_audio_type(data: bytes) -> str:
    """The kind of a recording, as the ending of its file's name. An InvalidInputError if it is none."""
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return "wav"
    if data[4:8] == b"ftyp":
        return "m4a"
    for start, kind in _STARTS.items():
        if data.startswith(start):
            return kind
    if len(data) > 1 and data[0] == 0xFF and data[1] & 0xE0 == 0xE0:
        return "mp3"
    raise InvalidInputError("The recording is no audio that REM knows: send WAV, MP3, M4A, OGG, FLAC or WebM.")


_STARTS = {b"ID3": "mp3", b"OggS": "ogg", b"fLaC": "flac", b"\x1a\x45\xdf\xa3": "webm"}


async def transcribe(data: bytes, settings: Settings) -> str:
    """What is said in a recording; empty if nothing is. An AudioError says why that cannot be told."""
    match select_provider(settings):
        case "openai":
            from rem.audio.openai import transcribe_with_openai

            return await transcribe_with_openai(data, detect_audio_type(data), settings)
        case "local":
            from rem.audio.local import transcribe_locally

            return await transcribe_locally(data)
        case _:
            raise AudioError(
                "Nobody here can write down what is said: set LLM__OPENAI_API_KEY or AUDIO__BASE_URL, "
                "or install the local model with `pip install 'remstack[audio]'`."
            )


def select_provider(settings: Settings) -> str:
    audio = settings.audio
    if audio.provider != "auto":
        return audio.provider
    has_address = audio.base_url or audio.api_key or settings.llm.base_url or settings.llm.openai_api_key
    if has_address or os.environ.get("OPENAI_API_KEY"):
        return "openai"
    from rem.audio.local import is_installed

    return "local" if is_installed() else "none"

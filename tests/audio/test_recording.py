"""Transcribe recordings by a service or by the local model."""

from __future__ import annotations

import base64
import io
import math
import struct
import wave
from importlib import import_module
from pathlib import Path

import pytest
from pydantic import SecretStr

from rem.audio.transcription import decode_audio, transcribe
from rem.audio.wav import read_wav
from rem.errors import AudioError, InvalidInputError
from rem.settings import AudioSettings, LlmSettings, Settings
from tests.audio.fake_transcriber import Transcriber


def tone(rate: int = 16_000, channels: int = 1, width: int = 2, seconds: float = 0.5) -> bytes:
    """Return a WAV file with a sine wave."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(channels)
        sound.setsampwidth(width)
        sound.setframerate(rate)
        for n in range(int(rate * seconds)):
            level = int(math.sin(n / rate * 2 * math.pi * 440) * (2 ** (8 * width - 2)))
            sample = bytes([level + 128]) if width == 1 else level.to_bytes(width, "little", signed=True)
            sound.writeframesraw(sample * channels)
    return file.getvalue()


WAV = tone()


@pytest.mark.parametrize("form", ["{}", "data:audio/wav;base64,{}", " {}\n"])
def test_base64_recording_is_decoded(form: str) -> None:
    assert decode_audio(form.format(base64.b64encode(WAV).decode())) == WAV


def test_base64_without_padding_or_url_safe_is_decoded() -> None:
    data = WAV + b"\xfb\xff\xfe"
    assert decode_audio(base64.urlsafe_b64encode(data).decode().rstrip("=")) == data


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "is empty"),
        ("data:audio/wav;base64,", "is empty"),
        ("Hello, how are you?", "not base64"),
        ("größe", "not base64"),
        (base64.b64encode(b"GIF89a" + bytes(50)).decode(), "not in a supported format"),
        (base64.b64encode(b"RIFF").decode(), "not in a supported format"),
        (base64.b64encode(WAV + bytes(25_000_000)).decode(), "larger than 25,000,000 bytes"),
    ],
    ids=["nothing", "empty data URL", "text", "not ASCII", "a picture", "cut off", "too large"],
)
def test_invalid_recording_is_refused_with_a_reason(content: str, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        decode_audio(content)


async def test_transcription_service_receives_the_recording() -> None:
    async with Transcriber(text=" What is REM? ") as service:
        settings = Settings(audio=AudioSettings(base_url=service.url, api_key=SecretStr("sk-audio"), model="whisper-9"))
        assert await transcribe(WAV, settings) == "What is REM?"
    (request,) = service.requests
    assert request.path == "/audio/transcriptions"
    assert request.headers["authorization"] == "Bearer sk-audio"
    assert (request.fields["model"], request.fields["file"], request.filename) == (b"whisper-9", WAV, "audio.wav")


async def test_transcription_falls_back_to_the_language_model_address_and_key() -> None:
    async with Transcriber() as service:
        llm = LlmSettings(base_url=service.url, openai_api_key=SecretStr("sk-llm"))
        await transcribe(WAV, Settings(llm=llm))
        await transcribe(WAV, Settings(llm=LlmSettings(base_url=service.url)))
    assert [request.headers.get("authorization") for request in service.requests] == ["Bearer sk-llm", None]


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (401, b'{"error": {"message": "bad key"}}', "401: bad key. Set AUDIO__API_KEY"),
        (404, b"no such page", "404: no such page. If it has no transcription"),
        (500, b"", "answered 500"),
        (200, b"<html>", "did not answer with a text"),
        (200, b'{"text": 5}', "did not answer with a text"),
    ],
)
async def test_failing_service_error_says_what_to_do(status: int, body: bytes, reason: str) -> None:
    async with Transcriber(status=status, body=body) as service:
        settings = Settings(audio=AudioSettings(base_url=service.url, api_key=SecretStr("sk-secret")))
        with pytest.raises(AudioError, match=reason) as error:
            await transcribe(WAV, settings)
    assert "sk-secret" not in str(error.value)


async def test_slow_or_unreachable_service_error_names_the_address() -> None:
    async with Transcriber(delay=5) as service:
        slow = Settings(audio=AudioSettings(base_url=service.url, timeout_seconds=0.1))
        with pytest.raises(AudioError, match=r"did not answer within 0\.1 s"):
            await transcribe(WAV, slow)
    with pytest.raises(AudioError, match="cannot be reached"):
        await transcribe(WAV, Settings(audio=AudioSettings(base_url="http://127.0.0.1:9/v1")))


async def test_error_without_a_transcription_provider() -> None:
    with pytest.raises(AudioError, match="LLM__OPENAI_API_KEY or AUDIO__BASE_URL"):
        await transcribe(WAV, Settings(audio=AudioSettings(provider="none")))


async def test_local_model_transcribes_speech() -> None:
    speech = (Path(import_module("moonshine_voice").get_assets_path()) / "two_cities.wav").read_bytes()[
        : 44 + 5 * 2 * 48_000
    ]
    settings = Settings(audio=AudioSettings(provider="local"))
    assert "best of times" in (await transcribe(speech, settings)).lower()
    # What is no speech gives some text or none, and the model goes on working.
    assert isinstance(await transcribe(tone(rate=44_100, channels=2), settings), str)


async def test_local_model_refuses_other_formats_than_wav() -> None:
    with pytest.raises(InvalidInputError, match="reads WAV"):
        await transcribe(b"ID3" + bytes(100), Settings(audio=AudioSettings(provider="local")))


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("channels", [1, 2])
def test_all_sample_widths_and_channel_counts_decode_equally(width: int, channels: int) -> None:
    sound = read_wav(tone(8000, channels, width, 0.1))
    assert (len(sound.samples), sound.rate) == (800, 8000)
    assert abs(sound.samples.max() - 0.5) < 0.01
    assert abs(sound.samples.min() + 0.5) < 0.01


def test_float_and_extensible_wav_are_read() -> None:
    samples = struct.pack("<4f", 0, 0.5, -0.5, float("nan"))
    extensible = struct.pack("<HHIIHHHHIH14s", 0xFFFE, 1, 16_000, 64_000, 4, 32, 22, 32, 4, 3, bytes(14))
    # A recorder that streams does not know the length and writes the largest.
    chunks = b"fmt " + struct.pack("<I", len(extensible)) + extensible + b"data\xff\xff\xff\xff" + samples
    assert read_wav(b"RIFF\xff\xff\xff\xffWAVE" + chunks).samples.tolist() == [0, 0.5, -0.5, 0]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (WAV[:20], "is incomplete"),
        (WAV[:44], "no sound"),
        (WAV[:20] + b"\x07\x00" + WAV[22:], "encoding 7"),
        (WAV[:22] + b"\x00\x00" + WAV[24:], "0 channels"),
    ],
)
def test_unreadable_wav_error_gives_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        read_wav(data)

"""Spoken messages become text: by a service, or by the model in this process."""

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
    """A WAV file of a sine."""
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
def test_a_recording_in_base64_is_decoded(form: str) -> None:
    assert decode_audio(form.format(base64.b64encode(WAV).decode())) == WAV


def test_base64_without_padding_or_in_the_other_alphabet_is_decoded() -> None:
    data = WAV + b"\xfb\xff\xfe"
    assert decode_audio(base64.urlsafe_b64encode(data).decode().rstrip("=")) == data


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "is empty"),
        ("data:audio/wav;base64,", "is empty"),
        ("Hello, how are you?", "not base64"),
        ("größe", "not base64"),
        (base64.b64encode(b"GIF89a" + bytes(50)).decode(), "no audio"),
        (base64.b64encode(b"RIFF").decode(), "no audio"),
        (base64.b64encode(WAV + bytes(25_000_000)).decode(), "larger than 25,000,000 bytes"),
    ],
    ids=["nothing", "empty data URL", "text", "not ASCII", "a picture", "cut off", "too large"],
)
def test_what_is_no_recording_is_refused_with_a_reason(content: str, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        decode_audio(content)


async def test_a_service_is_sent_the_recording_and_its_text_comes_back() -> None:
    async with Transcriber(text=" What is REM? ") as service:
        settings = Settings(audio=AudioSettings(base_url=service.url, api_key=SecretStr("sk-audio"), model="whisper-9"))
        assert await transcribe(WAV, settings) == "What is REM?"
    (request,) = service.requests
    assert request.path == "/audio/transcriptions"
    assert request.headers["authorization"] == "Bearer sk-audio"
    assert (request.fields["model"], request.fields["file"], request.filename) == (b"whisper-9", WAV, "audio.wav")


async def test_the_language_models_address_and_key_serve_if_there_are_no_others() -> None:
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
async def test_a_service_that_fails_is_named_with_what_to_do(status: int, body: bytes, reason: str) -> None:
    async with Transcriber(status=status, body=body) as service:
        settings = Settings(audio=AudioSettings(base_url=service.url, api_key=SecretStr("sk-secret")))
        with pytest.raises(AudioError, match=reason) as error:
            await transcribe(WAV, settings)
    assert "sk-secret" not in str(error.value)


async def test_a_service_that_is_slow_or_away_is_named() -> None:
    async with Transcriber(delay=5) as service:
        slow = Settings(audio=AudioSettings(base_url=service.url, timeout_seconds=0.1))
        with pytest.raises(AudioError, match=r"did not answer within 0\.1 s"):
            await transcribe(WAV, slow)
    with pytest.raises(AudioError, match="cannot be reached"):
        await transcribe(WAV, Settings(audio=AudioSettings(base_url="http://127.0.0.1:9/v1")))


async def test_without_anyone_to_listen_that_is_said() -> None:
    with pytest.raises(AudioError, match="LLM__OPENAI_API_KEY or AUDIO__BASE_URL"):
        await transcribe(WAV, Settings(audio=AudioSettings(provider="none")))


async def test_the_local_model_understands_speech() -> None:
    speech = (Path(import_module("moonshine_voice").get_assets_path()) / "two_cities.wav").read_bytes()[
        : 44 + 5 * 2 * 48_000
    ]
    settings = Settings(audio=AudioSettings(provider="local"))
    assert "best of times" in (await transcribe(speech, settings)).lower()
    # What is no speech gives some text or none, and the model goes on working.
    assert isinstance(await transcribe(tone(rate=44_100, channels=2), settings), str)


async def test_the_local_model_reads_wav_and_says_so() -> None:
    with pytest.raises(InvalidInputError, match="reads WAV"):
        await transcribe(b"ID3" + bytes(100), Settings(audio=AudioSettings(provider="local")))


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("channels", [1, 2])
def test_every_width_and_number_of_channels_is_the_same_sound(width: int, channels: int) -> None:
    sound = read_wav(tone(8000, channels, width, 0.1))
    assert (len(sound.samples), sound.rate) == (800, 8000)
    assert abs(sound.samples.max() - 0.5) < 0.01
    assert abs(sound.samples.min() + 0.5) < 0.01


def test_floats_and_the_extensible_format_are_read() -> None:
    samples = struct.pack("<4f", 0, 0.5, -0.5, float("nan"))
    extensible = struct.pack("<HHIIHHHHIH14s", 0xFFFE, 1, 16_000, 64_000, 4, 32, 22, 32, 4, 3, bytes(14))
    # A recorder that streams does not know the length and writes the largest.
    chunks = b"fmt " + struct.pack("<I", len(extensible)) + extensible + b"data\xff\xff\xff\xff" + samples
    assert read_wav(b"RIFF\xff\xff\xff\xffWAVE" + chunks).samples.tolist() == [0, 0.5, -0.5, 0]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (WAV[:20], "not complete"),
        (WAV[:44], "no sound"),
        (WAV[:20] + b"\x07\x00" + WAV[22:], "encoding 7"),
        (WAV[:22] + b"\x00\x00" + WAV[24:], "0 channels"),
    ],
)
def test_a_wav_file_that_cannot_be_read_says_why(data: bytes, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        read_wav(data)

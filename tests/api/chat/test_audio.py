"""An audio message is transcribed and then handled like text."""

from __future__ import annotations

import base64
import io
import wave
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2 as httpx
import pytest

from rem.api.main import create_app
from rem.settings import Settings
from tests.audio.fake_transcriber import Transcriber
from tests.scripted_model import ScriptedModel, last_text, scripted_model


def recording() -> str:
    """A second of silence, as a client would send it."""
    data = io.BytesIO()
    with wave.open(data, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(b"\0\0" * 16_000)
    return base64.b64encode(data.getvalue()).decode()


@pytest.fixture
async def transcriber() -> AsyncIterator[Transcriber]:
    async with Transcriber("Remember the milk") as transcriber:
        yield transcriber


@asynccontextmanager
async def serving(
    settings: Settings, transcriber: Transcriber
) -> AsyncIterator[tuple[httpx.AsyncClient, ScriptedModel]]:
    """A client of an application that hears with the transcriber and answers with a scripted model."""
    with scripted_model() as model:
        model.script = lambda body: [f"You said: {last_text(body)}"]
        llm = {"base_url": model.url, "default_model": "openai:scripted"}
        audio = {"provider": "openai", "base_url": transcriber.url}
        app = create_app(Settings.model_validate({**settings.model_dump(), "llm": llm, "audio": audio}))
        transport = httpx.ASGITransport(app=app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=30) as client,
        ):
            yield client, model


@pytest.mark.parametrize("as_part", [False, True])
async def test_recording_is_transcribed_answered_and_stored_as_text(
    settings: Settings, transcriber: Transcriber, as_part: bool
) -> None:
    part = {"type": "input_audio", "input_audio": {"data": recording(), "format": "wav"}}
    message = {"role": "user", "content": [part] if as_part else recording()}
    headers = {"X-User-Id": "alice", "X-Chat-Is-Audio": "true"}
    async with serving(settings, transcriber) as (client, _model):
        answer = await client.post("/v1/chat/completions", json={"messages": [message]}, headers=headers)
        assert answer.status_code == 200, answer.text
        stored = await client.get(f"/api/v1/sessions/{answer.headers['x-session-id']}/messages", headers=headers)
    assert answer.json()["choices"][0]["message"]["content"] == "You said: Remember the milk"
    assert stored.json()["data"][0]["content"] == "Remember the milk"
    assert len(transcriber.requests) == 1


async def test_recording_without_speech_is_an_error(settings: Settings) -> None:
    body = {"messages": [{"role": "user", "content": recording()}]}
    async with Transcriber(" ") as silence, serving(settings, silence) as (client, model):
        refused = await client.post("/v1/chat/completions", json=body, headers={"X-Chat-Is-Audio": "true"})
    assert refused.status_code == 400
    assert "No words were understood" in refused.json()["error"]["message"]
    assert not model.requests


async def test_text_that_is_not_a_recording_is_rejected(settings: Settings, transcriber: Transcriber) -> None:
    body = {"messages": [{"role": "user", "content": "Remember the milk!"}]}
    async with serving(settings, transcriber) as (client, model):
        refused = await client.post("/v1/chat/completions", json=body, headers={"X-Chat-Is-Audio": "true"})
    assert refused.status_code == 400
    assert "base64" in refused.json()["error"]["message"]
    assert not model.requests

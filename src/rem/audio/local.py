"""Transcription by a small model in this process, whose weights come with its package (extra `audio`)."""

from __future__ import annotations

import asyncio
import threading
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rem.audio.wav import Sound, read_wav
from rem.errors import AudioError

_PACKAGE = "moonshine_voice"
_turn = threading.Lock()
"""The model works on one recording at a time."""


def is_installed() -> bool:
    """Whether the model is there."""
    return find_spec(_PACKAGE) is not None


async def transcribe_locally(data: bytes) -> str:
    """What the model hears in a WAV file."""
    if not is_installed():
        raise AudioError("AUDIO__PROVIDER=local needs its model: install it with `pip install 'remstack[audio]'`.")
    return await asyncio.to_thread(_transcribe, read_wav(data))


def _transcribe(sound: Sound) -> str:
    with _turn:
        model = _model()
        try:
            transcript = model.transcribe_without_streaming(sound.samples.tolist(), sound.rate)
        except Exception as error:  # the library has no promise of what it raises
            raise AudioError(f"The local model could not read the recording: {error}") from error
    return " ".join(line.text.strip() for line in transcript.lines if line.text.strip())


@lru_cache(maxsize=1)
def _model() -> Any:
    """The model, loaded once; from files of the package, never from the network."""
    moonshine = import_module(_PACKAGE)
    path = Path(moonshine.get_assets_path()) / "tiny-en"
    return moonshine.Transcriber(model_path=str(path), model_arch=moonshine.ModelArch.TINY)

"""Transcribe with a small model in this process (extra `audio`). Its weights are part of its package."""

from __future__ import annotations

import asyncio
import threading
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rem.audio.wav import read_wav
from rem.errors import AudioError

_PACKAGE = "moonshine_voice"
_model_lock = threading.Lock()
"""The model transcribes one recording at a time."""


def is_installed() -> bool:
    """Return whether the package of the model is installed."""
    return find_spec(_PACKAGE) is not None


async def transcribe_locally(data: bytes) -> str:
    """Return the speech in a WAV file as text."""
    if not is_installed():
        raise AudioError("AUDIO__PROVIDER=local needs its model: install it with `pip install 'remstack[audio]'`.")
    return await asyncio.to_thread(_transcribe, data)


def _transcribe(data: bytes) -> str:
    sound = read_wav(data)
    with _model_lock:
        model = _load_model()
        try:
            transcript = model.transcribe_without_streaming(sound.samples.tolist(), sound.rate)
        except Exception as error:  # the library may raise anything
            raise AudioError(f"The local model could not read the recording: {error}") from error
    return " ".join(line.text.strip() for line in transcript.lines if line.text.strip())


@lru_cache(maxsize=1)
def _load_model() -> Any:
    """Load the model once, from the files of its package."""
    moonshine = import_module(_PACKAGE)
    path = Path(moonshine.get_assets_path()) / "tiny-en"
    return moonshine.Transcriber(model_path=str(path), model_arch=moonshine.ModelArch.TINY)

"""Recordings: what is said in them."""

from __future__ import annotations

from rem.audio.transcription import detect_audio_type, transcribe
from rem.errors import FileTooLargeError, FileUnreadableError, InvalidInputError
from rem.ingest.models import FetchedFile, ParsedDocument
from rem.settings import Settings


async def read_audio(file: FetchedFile, mime_type: str, settings: Settings) -> ParsedDocument:
    """What is said in a recording, written down by whoever AUDIO__PROVIDER names."""
    most = settings.audio.max_bytes
    if len(file.data) > most:
        raise FileTooLargeError(f"{file.name} is larger than {most:,} bytes (AUDIO__MAX_BYTES): take in shorter parts.")
    try:
        detect_audio_type(file.data)
        text = await transcribe(file.data, settings)
    except InvalidInputError as error:
        raise FileUnreadableError(f"{file.name} cannot be read as a recording: {error}") from error
    if not text.strip():
        raise FileUnreadableError(f"{file.name} has no speech in it that could be written down.")
    return ParsedDocument(text, "text", mime_type, metadata={"transcribed": True})

"""Read recordings: transcribe the speech in them."""

from __future__ import annotations

from rem.audio.transcription import detect_audio_type, transcribe
from rem.errors import FileTooLargeError, FileUnreadableError, InvalidInputError
from rem.ingest.models import FetchedFile, ParsedDocument
from rem.settings import Settings


async def read_audio(file: FetchedFile, mime_type: str, settings: Settings) -> ParsedDocument:
    """Return the speech in a recording as text, transcribed by the provider that AUDIO__PROVIDER names."""
    max_bytes = settings.audio.max_bytes
    if len(file.data) > max_bytes:
        raise FileTooLargeError(f"{file.name} is larger than {max_bytes:,} bytes (AUDIO__MAX_BYTES): split it.")
    try:
        detect_audio_type(file.data)
        text = await transcribe(file.data, settings)
    except InvalidInputError as error:
        raise FileUnreadableError(f"{file.name} cannot be read as a recording: {error}") from error
    if not text.strip():
        raise FileUnreadableError(f"{file.name} contains no speech.")
    return ParsedDocument(text, "text", mime_type, metadata={"transcribed": True})

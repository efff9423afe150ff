"""Read WAV files as one channel of samples between -1 and 1."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rem.errors import InvalidInputError

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE


class Sound(NamedTuple):
    """The samples of a recording, and their rate in Hz."""

    samples: npt.NDArray[np.float32]
    rate: int


class _Format(NamedTuple):
    encoding: int
    channels: int
    rate: int
    bits: int


def read_wav(data: bytes) -> Sound:
    """Parse a WAV file with integers of 8 to 32 bits or floats, of any rate, and mix its channels to one."""
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise InvalidInputError("The local model reads WAV: send the recording as WAV, or set AUDIO__PROVIDER=openai.")
    parts = dict(_iter_chunks(data))
    if b"fmt " not in parts or b"data" not in parts:
        raise InvalidInputError("The WAV file is incomplete: it has no format or no sound.")
    form = _parse_format(parts[b"fmt "])
    width = form.bits // 8 * form.channels
    sound = parts[b"data"]
    samples = _decode_samples(sound[: len(sound) // width * width], form)
    if not samples.size:
        raise InvalidInputError("The recording has no sound.")
    mono = samples.reshape(-1, form.channels).mean(axis=1, dtype=np.float32)
    return Sound(np.nan_to_num(mono).clip(-1, 1), form.rate)


def _iter_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the name and content of each chunk. The declared length may be too large: some recorders do not know it."""
    offset = 12
    while offset + 8 <= len(data):
        name, length = struct.unpack_from("<4sI", data, offset)
        yield name, data[offset + 8 : offset + 8 + length]
        offset += 8 + length + length % 2


def _parse_format(chunk: bytes) -> _Format:
    try:
        encoding, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", chunk)
        if encoding == _EXTENSIBLE:
            (encoding,) = struct.unpack_from("<H", chunk, 24)
    except struct.error as error:
        raise InvalidInputError("The WAV file's format cannot be read.") from error
    if (encoding, bits) not in _SAMPLE_TYPES or not 1 <= channels <= 64 or not 1000 <= rate <= 768_000:
        raise InvalidInputError(
            f"The WAV format (encoding {encoding}, {bits} bits, {channels} channels, {rate} Hz) is not supported: "
            "save it as PCM with 16 bits."
        )
    return _Format(encoding, channels, rate, bits)


_SAMPLE_TYPES = {
    (_PCM, 8): "u1",
    (_PCM, 16): "<i2",
    (_PCM, 24): "24",
    (_PCM, 32): "<i4",
    (_FLOAT, 32): "<f4",
    (_FLOAT, 64): "<f8",
}


def _decode_samples(sound: bytes, form: _Format) -> npt.NDArray[np.float32]:
    sample_type = _SAMPLE_TYPES[form.encoding, form.bits]
    if sample_type == "24":
        # NumPy has no 24-bit integers: put the three bytes into the upper three of four.
        wide = np.zeros((len(sound) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(sound, np.uint8).reshape(-1, 3)
        return (wide.view("<i4").ravel() / 2**31).astype(np.float32)
    samples = np.frombuffer(sound, sample_type)
    if form.encoding == _FLOAT:
        return samples.astype(np.float32)
    if form.bits == 8:
        return ((samples.astype(np.float32) - 128) / 128).astype(np.float32)
    return (samples / 2.0 ** (form.bits - 1)).astype(np.float32)

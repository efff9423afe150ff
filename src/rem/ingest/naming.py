"""What a file is called in the memory: short if that is free, and longer if another file has the short name."""

from __future__ import annotations

import hashlib
from urllib.parse import unquote, urlsplit

from rem.ingest.content import FetchedFile

_LONGEST_NAME_BYTES = 900
"""A label has 1,024 bytes, and the number of a chunk is put behind it."""
_MOST_PATHS = 8


def names_of(file: FetchedFile) -> list[str]:
    """The names that a file may have, the best first. The last one no other place has."""
    mark = hashlib.sha256(file.uri.encode(errors="surrogatepass")).hexdigest()
    place = urlsplit(file.uri)
    parts = [part for part in (place.netloc, *unquote(place.path).split("/")) if part]
    name = next((name for name in map(_clean, (file.name, *parts[-1:])) if _is_label(name)), "file")
    length = name.count("/") + 1
    longer = [_clean("/".join(parts[-more:])) for more in range(length + 1, min(len(parts), length + _MOST_PATHS) + 1)]
    names = [name, *(path for path in longer if path.endswith(name)), f"{name} {mark[:8]}", f"{name} {mark}"]
    return [_shortened(name, mark) for name in names]


def _clean(name: str) -> str:
    """The name as PostgreSQL can hold it, on one line."""
    return " ".join(name.encode(errors="replace").decode().replace("\0", "�").split())


def _is_label(name: str) -> bool:
    return any(character.isalnum() for character in name)


def _shortened(name: str, mark: str) -> str:
    if len(name.encode()) <= _LONGEST_NAME_BYTES:
        return name
    tail = name.encode()[-(_LONGEST_NAME_BYTES - 20) :].decode(errors="ignore")
    return f"{mark[:8]} …{tail}"

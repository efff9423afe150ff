"""From a place to bytes: a path, `file://`, `http(s)://`, `s3://`."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

from rem.errors import FetchForbiddenError
from rem.ingest.models import FetchedFile, FileSource, Listing
from rem.ingest.sources.policy import FetchPolicy
from rem.settings import IngestSettings

_SCHEME = re.compile(r"([a-z][a-z0-9+.\-]*)://", re.IGNORECASE)


async def fetch_file(uri: str, reach: FetchPolicy, settings: IngestSettings, *, name: str | None = None) -> FetchedFile:
    """The bytes at a place within reach, and at most `max_bytes` of them. `name` is what the file is called instead."""
    match _scheme(uri):
        case "file":
            from rem.ingest.sources.local import read_local

            file = await asyncio.to_thread(read_local, uri, reach, settings)
        case "s3":
            from rem.ingest.sources.s3 import fetch_s3

            file = await fetch_s3(uri, reach, settings)
        case _:
            from rem.ingest.sources.http import fetch_http

            file = await fetch_http(uri, reach, settings)
    return replace(file, name=name) if name else file


async def list_sources(place: str, reach: FetchPolicy, settings: IngestSettings) -> Listing:
    """All files of a folder or of an `s3://` prefix that ends with a slash; of any other place, that one."""
    match _scheme(place):
        case "file":
            return await asyncio.to_thread(_list_local, place, reach)
        case "s3":
            return await _list_s3(place, reach, settings)
        case _:
            from rem.ingest.sources.http import display_name, parse_url

            url = parse_url(place)
            return Listing([FileSource(str(url), display_name(url))])


def _scheme(place: str) -> str:
    found = _SCHEME.match(place)
    scheme = found[1].lower() if found else "file"
    if scheme not in ("file", "http", "https", "s3"):
        raise FetchForbiddenError(
            f"{scheme}:// is not read: give a path, or an address with https://, http:// or s3://."
        )
    return scheme


def _list_local(place: str, reach: FetchPolicy) -> Listing:
    from rem.ingest.sources.local import is_folder, list_local, resolve_path

    if is_folder(place, reach):
        return list_local(place, reach)
    path = resolve_path(place, reach)
    return Listing([FileSource(path.as_uri(), path.name)])


async def _list_s3(place: str, reach: FetchPolicy, settings: IngestSettings) -> Listing:
    from rem.ingest.sources.s3 import list_s3, parse_s3_uri

    parsed = parse_s3_uri(place, reach)
    if parsed.is_folder:
        return await list_s3(place, reach, settings)
    return Listing([FileSource(parsed.uri, parsed.key.rpartition("/")[2])])

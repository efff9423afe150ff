"""Fetch a file, or list the files of a folder, from a path, `file://`, `http(s)://` or `s3://`."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from dataclasses import replace

from rem.errors import FetchForbiddenError
from rem.ingest.models import FetchedFile, FileSource, Listing
from rem.ingest.sources.ignore_rules import IgnoreRules, ListingOptions
from rem.ingest.sources.policy import FetchPolicy
from rem.settings import IngestSettings

_SCHEME = re.compile(r"\A([a-z][a-z0-9+.\-]*)://", re.IGNORECASE)


async def fetch_file(
    uri: str, policy: FetchPolicy, settings: IngestSettings, *, name: str | None = None
) -> FetchedFile:
    """Fetch one file that the policy allows, and call it `name` if that is given.

    Raise a FetchForbiddenError if the policy forbids it, and a FileTooLargeError if it exceeds `settings.max_bytes`.
    """
    match _parse_scheme(uri):
        case "file":
            from rem.ingest.sources.local import read_local

            file = await asyncio.to_thread(read_local, uri, policy, settings)
        case "s3":
            from rem.ingest.sources.s3 import fetch_s3

            file = await fetch_s3(uri, policy, settings)
        case _:
            from rem.ingest.sources.http import fetch_http

            file = await fetch_http(uri, policy, settings)
    return replace(file, name=name) if name else file


async def list_sources(
    place: str, policy: FetchPolicy, settings: IngestSettings, options: ListingOptions | None = None
) -> Listing:
    """List all files of a folder, or of an `s3://` prefix that ends with a slash. List any other place as one file.

    Raise a FetchForbiddenError if the policy forbids the place. The fetch itself checks host names.
    """
    options = options or ListingOptions()
    match _parse_scheme(place):
        case "file":
            return await asyncio.to_thread(_list_local, place, policy, options)
        case "s3":
            return await _list_s3(place, policy, settings, options)
        case _:
            from rem.ingest.sources.http import check_url, display_name, parse_url

            url = parse_url(place)
            check_url(url, policy)
            return _list_one(FileSource(str(url), display_name(url)), options)


def _list_one(source: FileSource, options: ListingOptions) -> Listing:
    """Return the listing of a file that the caller has named. Only a pattern to exclude leaves it out."""
    is_excluded = IgnoreRules(options).excludes(source.name)
    return Listing(ignored=Counter({"excluded": 1})) if is_excluded else Listing([source])


def _parse_scheme(place: str) -> str:
    match = _SCHEME.match(place)
    scheme = match[1].lower() if match else "file"
    if scheme not in ("file", "http", "https", "s3"):
        raise FetchForbiddenError(f"{scheme}:// is not supported: use a path or a URL with https://, http:// or s3://.")
    return scheme


def _list_local(place: str, policy: FetchPolicy, options: ListingOptions) -> Listing:
    from rem.ingest.sources.local import is_folder, list_local, resolve_path

    if is_folder(place, policy):
        return list_local(place, policy, options)
    path = resolve_path(place, policy)
    return _list_one(FileSource(path.as_uri(), path.name), options)


async def _list_s3(place: str, policy: FetchPolicy, settings: IngestSettings, options: ListingOptions) -> Listing:
    from rem.ingest.sources.s3 import list_s3, parse_s3_uri

    location = parse_s3_uri(place, policy)
    if location.is_folder:
        return await list_s3(place, policy, settings, options)
    return _list_one(FileSource(location.uri, location.key.rpartition("/")[2]), options)

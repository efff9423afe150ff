"""Serve the web interface: one page for all its addresses, the page of the API, and the files that they load.

`make web` builds the files from `web/` into `web_dist`. The server needs nothing else for them.
"""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from rem.auth.access import DOCS_PATH, WEB_ASSETS, WEB_ICON, WEB_PAGES

WEB_FOLDER = Path(__file__).with_name("web_dist")
PAGE_POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; "
    "connect-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
"""The page runs only its own scripts, and talks to this server alone."""
FOREVER = "public, max-age=31536000, immutable"
"""For files whose name has a hash of their content."""
NO_CACHE = "no-cache"
"""The browser asks each time whether the page has changed: it names the scripts of one build."""
MIN_COMPRESSED_BYTES = 1000


class WebFile(NamedTuple):
    """A built file in memory, as it is and compressed."""

    data: bytes
    compressed: bytes | None
    media_type: str
    etag: str


def make_web_routes() -> list[BaseRoute]:
    """Return the routes of the web interface. They have no place in the OpenAPI document."""
    pages = [Route(path, _send_page) for path in WEB_PAGES]
    pages += [Route(f"{path}/{{rest:path}}", _send_page) for path in WEB_PAGES if path != "/"]
    pages.append(Route(DOCS_PATH, _send_docs))
    return [*pages, Route(f"{WEB_ASSETS}/{{name}}", _send_asset), Route(WEB_ICON, _send_icon)]


async def _send_page(request: Request) -> Response:
    return _send_html(request, "index.html")


async def _send_docs(request: Request) -> Response:
    return _send_html(request, "docs.html")


def _send_html(request: Request, name: str) -> Response:
    response = _send(request, name, NO_CACHE)
    response.headers["Content-Security-Policy"] = PAGE_POLICY
    return response


async def _send_icon(request: Request) -> Response:
    return _send(request, WEB_ICON.removeprefix("/"), NO_CACHE)


async def _send_asset(request: Request) -> Response:
    name: str = request.path_params["name"]
    if name not in _list_assets():
        raise HTTPException(404, "The web interface has no such file.")
    return _send(request, f"assets/{name}", FOREVER)


def _send(request: Request, name: str, caching: str) -> Response:
    file = _read_file(name)
    headers = {"ETag": file.etag, "Cache-Control": caching, "Vary": "Accept-Encoding"}
    if file.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if file.compressed is not None and "gzip" in request.headers.get("accept-encoding", ""):
        return Response(file.compressed, headers={**headers, "Content-Encoding": "gzip"}, media_type=file.media_type)
    return Response(file.data, headers=headers, media_type=file.media_type)


@lru_cache(maxsize=1)
def _list_assets() -> frozenset[str]:
    """Return the names of the files that may be sent, so that no path of a request reaches the file system."""
    return frozenset(path.name for path in (WEB_FOLDER / "assets").iterdir())


@lru_cache(maxsize=256)
def _read_file(name: str) -> WebFile:
    data = (WEB_FOLDER / name).read_bytes()
    media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
    is_compressed = len(data) >= MIN_COMPRESSED_BYTES and not media_type.startswith(("font/", "image/png"))
    compressed = gzip.compress(data, mtime=0) if is_compressed else None
    return WebFile(data, compressed, media_type, f'"{hashlib.sha256(data).hexdigest()[:32]}"')

"""Lists in pages, in the format of OpenAI's lists, and answers with many rows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

from fastapi import Depends, Query, Response
from pydantic import BaseModel, Field
from pydantic_core import to_json
from starlette.types import Receive, Scope, Send

from rem.fair_map import map_fairly

T = TypeVar("T")
JSON = "application/json"
MIN_PART_BYTES = 100_000


class Page(BaseModel, Generic[T]):
    """One page of a list."""

    object: Literal["list"] = "list"
    data: list[T]
    has_more: bool = Field(default=False, description="Whether there are more items: ask again with a larger `offset`.")


class Window(NamedTuple):
    """The part of a list that a request asks for."""

    limit: int
    offset: int

    @property
    def fetch_limit(self) -> int:
        """Return the number of rows to fetch: one more than the page has, to know whether there are more."""
        return self.limit + 1

    def slice_page(self, rows: Sequence[Any]) -> dict[str, Any]:
        """Return the fields of the page, from rows that were fetched with `fetch_limit`."""
        return {"data": rows[: self.limit], "has_more": len(rows) > self.limit}


async def _get_window(
    limit: Annotated[int, Query(ge=1, le=500, description="The maximum number of items.")] = 50,
    offset: Annotated[int, Query(ge=0, le=1_000_000_000, description="The number of items to skip.")] = 0,
) -> Window:
    return Window(limit, offset)


async def make_rows_response(
    fields: Mapping[str, Any], rows_field: str, to_values: Callable[[Any], Any] = lambda row: row
) -> Response:
    """Return an answer with many rows in `rows_field`, written row by row: other requests are served meanwhile."""
    parts: list[bytes] = []
    for name, value in fields.items():
        parts += (b"," if parts else b"{", _write(name), b":")
        if name == rows_field:
            parts += _list(await map_fairly(lambda row: (_write(to_values(row)),), value))
        else:
            parts.append(_write(value))
    return _PartsResponse([*parts, b"}"])


def _write(value: Any) -> bytes:
    return to_json(value, inf_nan_mode="null")


def _list(items: Sequence[Sequence[bytes]]) -> Iterator[bytes]:
    """Yield the parts of a JSON list, from the parts of its items."""
    for position, item in enumerate(items):
        yield b"," if position else b"["
        yield from item
    yield b"]" if items else b"[]"


class _PartsResponse(Response):
    """Sends a JSON text in parts. As one text it would be copied several times, while no other request is served."""

    media_type = JSON

    def __init__(self, parts: Sequence[bytes]) -> None:
        super().__init__()
        self._parts = list(_join_small(parts))
        self.headers["content-length"] = str(sum(map(len, self._parts)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for part in self._parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
            # Sending a part waits only if the client reads slowly.
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b""})


def _join_small(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the parts, small ones joined: sending one costs more than copying it."""
    joined: list[bytes] = []
    size = 0
    for part in parts:
        joined.append(part)
        size += len(part)
        if size >= MIN_PART_BYTES:
            yield b"".join(joined)
            joined, size = [], 0
    if joined:
        yield b"".join(joined)


WindowDep = Annotated[Window, Depends(_get_window)]

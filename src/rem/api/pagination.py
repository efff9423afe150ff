"""Lists in pages, in the format of OpenAI's lists, and answers with many rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

from fastapi import Depends, Query, Response
from pydantic import BaseModel, Field
from pydantic_core import to_json

from rem.fair_map import map_fairly

T = TypeVar("T")
JSON = "application/json"


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
    """Return an answer with many rows, written row by row: other requests are served meanwhile."""

    def write(value: Any) -> bytes:
        return to_json(value, inf_nan_mode="null")

    rows = await map_fairly(lambda row: write(to_values(row)), fields[rows_field])
    values = {name: write(value) for name, value in fields.items() if name != rows_field}
    values[rows_field] = b"[%s]" % b",".join(rows)
    return Response(b"{%s}" % b",".join(write(name) + b":" + values[name] for name in fields), media_type=JSON)


WindowDep = Annotated[Window, Depends(_get_window)]

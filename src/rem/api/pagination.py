"""Lists in pages, in the format of OpenAI's lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

from fastapi import Depends, Query
from pydantic import BaseModel, Field

T = TypeVar("T")


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


WindowDep = Annotated[Window, Depends(_get_window)]

"""Lists are given a page at a time, in the shape of OpenAI's lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

from fastapi import Depends, Query
from pydantic import BaseModel, Field

T = TypeVar("T")


class Page(BaseModel, Generic[T]):
    """A part of a list."""

    object: Literal["list"] = "list"
    data: list[T]
    has_more: bool = Field(default=False, description="Whether there is more: ask again with a larger `offset`.")


class Window(NamedTuple):
    """Which part of a list is asked for."""

    limit: int
    offset: int

    @property
    def fetch_limit(self) -> int:
        """One more than is shown, which tells whether there is more."""
        return self.limit + 1

    def slice_page(self, rows: Sequence[Any]) -> dict[str, Any]:
        """The page of rows that were fetched with `limit_and_one`."""
        return {"data": rows[: self.limit], "has_more": len(rows) > self.limit}


async def _window(
    limit: Annotated[int, Query(ge=1, le=500, description="How many at most.")] = 50,
    offset: Annotated[int, Query(ge=0, le=1_000_000_000, description="How many to leave out.")] = 0,
) -> Window:
    return Window(limit, offset)


WindowDep = Annotated[Window, Depends(_window)]

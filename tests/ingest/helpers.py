"""Files for the tests, as they are fetched, and what is remembered of them."""

from __future__ import annotations

from typing import Any

from rem.db.store import Store
from rem.ingest.models import FetchedFile
from rem.models import File, Resource

PAGE = "# Guide\n\nHello.\n\n## Install\n\nRun make.\n\n## Use\n\nType rem.\n"


def markdown(text: str = PAGE, name: str = "guide.md", uri: str | None = None) -> FetchedFile:
    """A Markdown file."""
    return FetchedFile(name, uri or f"file:///docs/{name}", text.encode())


async def contents(store: Store) -> dict[str, str]:
    """The pieces that are remembered, by their names."""
    rows = await store.find(Resource, order_by="ordinal, name", limit=1000)
    return {row.name: row.content for row in rows}


async def only_file(store: Store) -> File:
    """The one file that there is."""
    (row,) = await store.find(File)
    return row


async def everything(store: Store) -> list[dict[str, Any]]:
    """All rows that files are stored in, without what differs from run to run."""
    rows: list[File | Resource] = [*await store.find(File, order_by="name", limit=1000)]
    rows += await store.find(Resource, order_by="name", limit=1000)
    found = []
    for row in rows:
        values = row.model_dump(
            mode="json", exclude={"id", "created_at", "updated_at", "timestamp", "tenant_id", "user_id"}
        )
        values["metadata"].pop("file_id", None)
        found.append(values)
    return found

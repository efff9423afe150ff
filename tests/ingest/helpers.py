"""Sample files and queries for the tests of ingestion."""

from __future__ import annotations

from typing import Any

from rem.db.store import Store
from rem.ingest.models import FetchedFile
from rem.models import File, Resource

PAGE = "# Guide\n\nHello.\n\n## Install\n\nRun make.\n\n## Use\n\nType rem.\n"


def markdown(text: str = PAGE, name: str = "guide.md", uri: str | None = None) -> FetchedFile:
    """Return a Markdown file."""
    return FetchedFile(name, uri or f"file:///docs/{name}", text.encode())


async def contents(store: Store) -> dict[str, str]:
    """Return the stored chunks by name."""
    rows = await store.find(Resource, order_by="ordinal, name", limit=1000)
    return {row.name: row.content for row in rows}


async def only_file(store: Store) -> File:
    """Return the only stored file."""
    (row,) = await store.find(File)
    return row


async def everything(store: Store) -> list[dict[str, Any]]:
    """Return all rows of files and chunks, without fields that differ between runs."""
    rows: list[File | Resource] = [*await store.find(File, order_by="name", limit=1000)]
    rows += await store.find(Resource, order_by="name", limit=1000)
    dumps = []
    for row in rows:
        values = row.model_dump(
            mode="json", exclude={"id", "created_at", "updated_at", "timestamp", "tenant_id", "user_id"}
        )
        values["metadata"].pop("file_id", None)
        dumps.append(values)
    return dumps

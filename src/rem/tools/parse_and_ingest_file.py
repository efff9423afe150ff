"""parse_and_ingest_file: keep a file."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from rem.errors import DeletedError, InvalidInputError
from rem.ingest.fetch import fetch
from rem.ingest.plain import storable
from rem.ingest.reach import Reach
from rem.tools.env import ToolEnv

_MOST_KEYS = 50


async def parse_and_ingest_file(
    env: ToolEnv,
    uri: Annotated[
        str, Field(min_length=1, max_length=8000, description="https://…, s3://…, or a path that REM may read.")
    ],
    category: Annotated[
        str | None, Field(min_length=1, max_length=255, description="Such as manual, report or code.")
    ] = None,
    tags: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=255)]] | None, Field(max_length=50, description="Topics.")
    ] = None,
) -> dict[str, Any]:
    """Read a file and keep its whole text in the user's memory, in pieces that are found in every later conversation.

    Reads text, Markdown, code, HTML, CSV, JSON and YAML; PDF, Office documents, e-mail and images if REM is set up for
    it. The same file again changes nothing; a changed one takes the place of the old. A YAML file that defines an agent
    becomes that agent. For a text that you have at hand use ingest_into_rem.
    For example: parse_and_ingest_file(uri="https://example.com/handbook.pdf", category="manual")
    """
    settings = env.rem.settings
    file = await fetch(uri, Reach.of_settings(settings.ingest), settings.ingest)

    async def save_schema(text: str) -> str:
        assert env.agents is not None  # noqa: S101  # only given where there are agents
        return (await env.agents.save(text, env.scope)).name

    ingester = env.rem.ingester(env.scope, save_schema=save_schema if env.agents is not None else None)
    outcome = await ingester.take_in(
        file,
        category=None if category is None else storable(category),
        tags=None if tags is None else [storable(tag) for tag in tags],
    )
    if outcome.status in ("failed", "skipped"):
        raise InvalidInputError(outcome.error)
    if outcome.status == "deleted":
        raise DeletedError(outcome.error)
    return {
        "status": outcome.status,
        "file": outcome.key,
        "uri": outcome.uri,
        "chunks": outcome.chunks,
        "keys": list(outcome.keys[:_MOST_KEYS]),
    }

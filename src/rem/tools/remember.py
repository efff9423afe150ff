"""The tools that store texts and files: ingest_into_rem and parse_and_ingest_file."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, ValidationError

from rem.db.store import Store
from rem.errors import ConflictError, DeletedError, InvalidInputError
from rem.ingest.models import FileSource
from rem.models import Resource
from rem.models.field_types import utc_now
from rem.privacy.policy import describe_masked
from rem.text import clean_text
from rem.tools.binding import describe_validation_error, tool
from rem.tools.env import ToolEnv
from rem.tools.progress import report_step

MAX_RETURNED_KEYS = 50


@tool(destructive=True)
async def ingest_into_rem(
    env: ToolEnv,
    content: Annotated[str, Field(min_length=1, description="The complete text; Markdown is fine.")],
    name: Annotated[
        str, Field(min_length=1, max_length=255, description="A short title; its key is what lookup finds it by.")
    ],
    category: Annotated[str | None, Field(max_length=255, description="Such as note, decision or meeting.")] = None,
    tags: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=255)]] | None, Field(max_length=50, description="Topics.")
    ] = None,
    replace: Annotated[bool, Field(description="Overwrite the caller's own text of this name.")] = False,
) -> dict[str, Any]:
    """Store a text in the user's memory permanently, so that it is found in every later conversation.

    Use it when the user gives you a document or a longer note to save. For a statement ("remember that …") use
    remember, for notes on your answer register_metadata. An existing text of the same name is kept unless you say
    replace=true.
    For example: ingest_into_rem(name="Pricing decision 2026-03", content="We decided …", category="decision")
    """
    store = env.rem.for_user(env.scope).store
    privacy = store.executor.privacy
    masked, content = privacy.list_masked([content]), privacy.mask(content, "content")
    resource = _make_resource(name, content, category, tags)
    async with store.transaction() as transaction:
        if not replace:
            await _refuse_to_overwrite(transaction, name, content)
        stored = await transaction.upsert(resource)
    return {
        "status": "success",
        "table": "resources",
        "key": stored.key,
        "id": str(stored.id),
        "characters": len(content),
        **({"note": describe_masked(masked)} if masked else {}),
    }


@tool(destructive=True)
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
    """Read a file and store its whole text in the user's memory, in chunks that are found in every later conversation.

    Reads text, Markdown, code, HTML, CSV, JSON and YAML; PDF, Office documents, e-mail and images if REM is set up for
    it. The same file again changes nothing; a changed file replaces the old one. A YAML file that defines an agent
    becomes that agent. For a text that you already have use ingest_into_rem.
    For example: parse_and_ingest_file(uri="https://example.com/handbook.pdf", category="manual")
    """

    async def save_schema(text: str) -> str:
        assert env.agents is not None  # noqa: S101  # only passed on if there are agents
        return (await env.agents.save(text, env.scope)).name

    ingester = env.rem.for_user(env.scope).ingester(save_agent=save_schema if env.agents is not None else None)
    async with report_step(env, f"Fetching {uri}", 1, 3):
        file = await ingester.fetch(FileSource(uri))
    async with report_step(env, "Reading and storing the text", 2, 3):
        outcome = await ingester.ingest(
            file,
            category=None if category is None else clean_text(category),
            tags=None if tags is None else [clean_text(tag) for tag in tags],
        )
    if outcome.status in ("failed", "skipped"):
        raise InvalidInputError(outcome.error)
    if outcome.status == "deleted":
        raise DeletedError(outcome.error)
    async with report_step(env, "Indexing the text", 3, 3):
        await env.rem.for_user(env.scope).index()
    return {
        "status": outcome.status,
        "file": outcome.key,
        "uri": outcome.uri,
        "chunks": outcome.chunks,
        "keys": list(outcome.keys[:MAX_RETURNED_KEYS]),
        **({"note": describe_masked(outcome.masked)} if outcome.masked else {}),
    }


def _make_resource(name: str, content: str, category: str | None, tags: list[str] | None) -> Resource:
    fields: dict[str, Any] = {
        "name": name,
        "content": content,
        "timestamp": utc_now(),
        "origin": "tool:ingest_into_rem",
    }
    optional = {"category": category, "tags": tags}
    try:
        return Resource(**fields, **{field: value for field, value in optional.items() if value is not None})
    except ValidationError as error:
        raise InvalidInputError(f"The text cannot be stored. {describe_validation_error(error)}") from error


async def _refuse_to_overwrite(store: Store, name: str, content: str) -> None:
    own = [
        entity
        for entity in await store.find(Resource, {"key": await store.normalize_key(name)}, limit=2)
        if entity.user_id == store.scope.user_id
    ]
    if own and own[0].content != content:
        raise ConflictError(
            f"{own[0].key!r} already holds another text: choose another name, or say replace=true to overwrite it."
        )

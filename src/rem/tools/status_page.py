"""The page that says whether REM is well: no secrets, no addresses, and nothing of other users."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from rem.retrieval.embedding_model import load_current_model
from rem.tools.env import ToolEnv
from rem.tools.schema import list_entity_types


async def status(env: ToolEnv) -> dict[str, Any]:
    """Versions, how much the caller's memory holds, and whether search by meaning and a language model are set up."""
    told: dict[str, Any] = {
        "rem": version("remstack"),
        "memory": "off: set POSTGRES__ENABLED=true" if env.memory is None else "on",
        "language_model": "configured" if env.has_model else "none: set LLM__DEFAULT_MODEL",
    }
    if env.memory is None:
        return told
    facts = env.rem.database.server_info
    waiting = await env.rem.waiting()
    async with env.rem.database.connection() as connection:
        embedded_by = await load_current_model(connection)
    store = env.rem.store(env.scope)
    counts = {model.entity_type.table: await store.count(model) for model in await list_entity_types(env)}
    return {
        **told,
        "postgresql": facts.version,
        "pgvector": facts.vector.installed,
        "embedding_model": embedded_by.name if embedded_by else "none yet: search goes by words",
        "index": "some of what was written waits to be indexed" if waiting else "up to date",
        "counts": {table: count for table, count in counts.items() if count},
    }

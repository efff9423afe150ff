"""The embedding model of a database. Vectors of two models cannot be compared, so only one is current."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rem.db.sql import query
from rem.errors import EmbeddingMismatchError

if TYPE_CHECKING:
    from rem.db.database import Connection
    from rem.search.embedder import Embedder


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """An embedding model as recorded in the database."""

    id: int
    name: str
    dimension: int


async def load_current_model(connection: Connection) -> EmbeddingModel | None:
    """Return the current model, or None if nothing has been embedded yet."""
    row = await connection.fetchrow(query("search/passages", "current_model"))
    return EmbeddingModel(*row) if row else None


async def load_or_record_model(connection: Connection, embedder: Embedder) -> EmbeddingModel:
    """Return the embedder's model; record it if there is none. Raise EmbeddingMismatchError if another is current."""
    recorded = await load_current_model(connection) or await set_current_model(connection, embedder)
    require_same_model(recorded, embedder)
    return recorded


def require_same_model(recorded: EmbeddingModel, embedder: Embedder) -> None:
    """Raise EmbeddingMismatchError if the embedder's model is not the recorded one."""
    if (recorded.name, recorded.dimension) != (embedder.model, embedder.dimension):
        raise EmbeddingMismatchError(
            f"This database was embedded by {recorded.name} ({recorded.dimension} dimensions), and the settings name "
            f"{embedder.model} ({embedder.dimension}). Run `rem db reembed` to embed everything by the new model, "
            "or set EMBEDDING__PROVIDER and EMBEDDING__MODEL back. SEARCH … MODE text needs no embedder."
        )


async def set_current_model(connection: Connection, embedder: Embedder) -> EmbeddingModel:
    """Record the embedder's model as the current one, and create an index for its vectors."""
    async with connection.transaction():
        await connection.execute(query("search/passages", "lock_models"))
        await connection.execute(query("search/passages", "retire_other_models"), embedder.model, embedder.dimension)
        model_id = await connection.fetchval(
            query("search/passages", "record_model"), embedder.model, embedder.dimension
        )
        await connection.execute(query("search/passages", "create_vector_index"), model_id, embedder.dimension)
    return EmbeddingModel(model_id, embedder.model, embedder.dimension)

"""Where a walk starts: the entities that another query found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from rem.errors import InvalidInputError

if TYPE_CHECKING:
    from rem.db.store import Store
    from rem.query.result import QueryResult
    from rem.query.steps import Steps


class StartSet(NamedTuple):
    """Entities by table and id; the table is None where only the id is known."""

    tables: list[str | None]
    ids: list[UUID]


async def start_set(store: Store, found: QueryResult, steps: Steps) -> StartSet:
    """The entities of an answer: rows of SQL are known by their `id` or `key`, all others by their record."""
    nodes: list[tuple[str | None, UUID]] = []
    labels: list[str] = []
    for row in found.results:
        if found.query_type != "SQL" and "record" in row:
            nodes.append((row["table"], UUID(row["record"]["id"])))
        elif row.get("id") is not None:
            nodes.append((None, _id(row["id"])))
        elif row.get("key") is not None:
            labels.append(f"{row['table']}/{row['key']}" if row.get("table") else str(row["key"]))
        elif not {"id", "key"} & row.keys():
            raise InvalidInputError(_no_identity(row))
    if labels:
        with steps.timed("lookup") as step:
            answers = await store.answers(labels)
            step.rows = len(answers)
        nodes += [(answer.table, UUID(answer.record["id"])) for answer in answers]
    return StartSet([table for table, _ in nodes], [node_id for _, node_id in nodes])


def _id(value: Any) -> UUID:
    try:
        return value if isinstance(value, UUID) else UUID(str(value))
    except ValueError as error:
        raise InvalidInputError(f"TRAVERSE starts from the ids of entities, and {value!r} is none.") from error


def _no_identity(row: dict[str, Any]) -> str:
    columns = ", ".join(row)
    return f"TRAVERSE starts from entities, so the SQL after WITH must select their id or key; it gives {columns}."

"""Audit: checks the statements of an owner, and fixes what is wrong."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from rem.db.sql import fill, identifier, query
from rem.errors import EmbeddingDisabledError

if TYPE_CHECKING:
    from rem.db.database import Connection
    from rem.db.store import Store

MAX_ISSUES = 1000
"""Per check, to bound the report."""
MAX_SUMMARIES = 5000
"""Latest moments that are compared with each other, to bound the memory for their vectors."""
MIN_DUPLICATE_COSINE = 0.95
Embed: TypeAlias = Callable[[Sequence[str]], Awaitable[Any]]
CHECKS = (
    "exact_duplicates",
    "near_duplicates",
    "without_source",
    "orphan_rows",
    "orphan_edges",
    "dangling_edges",
    "stale_profiles",
)


@dataclass(frozen=True, slots=True)
class AuditIssue:
    """One row, edge or statement that is wrong."""

    key: str
    other: str | None
    """Key of the moment that it duplicates, or target of the edge."""
    id: UUID
    table: str | None = None
    rel_type: str | None = None


@dataclass(slots=True)
class AuditReport:
    """Issues by check, and how many of them were fixed."""

    issues: dict[str, list[AuditIssue]] = field(default_factory=dict)
    fixed: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """Number of issues by check."""
        return {check: len(issues) for check, issues in self.issues.items()}

    @property
    def is_clean(self) -> bool:
        """Whether there is no issue."""
        return not any(self.issues.values())


async def run_audit(store: Store, embed: Embed, *, fix: bool = False) -> AuditReport:
    """Check the statements of an owner. With `fix`, remove what is wrong; a stale profile waits for the next dream."""
    async with store.transaction() as inside, inside.executor.connection() as connection:
        if not fix:
            # PostgreSQL then refuses every change.
            await connection.execute(query("dreams/audit", "read_only"))
        auditor = _Auditor(connection, store, embed)
        report = AuditReport({check: await auditor.find(check) for check in CHECKS})
        if fix and not report.is_clean:
            report.fixed = await auditor.fix(report.issues)
    return report


class _Auditor:
    def __init__(self, connection: Connection, store: Store, embed: Embed) -> None:
        self._connection = connection
        self._embed = embed
        self._store = store
        self._tenant_id, self._user_id = store.scope.tenant_id, store.scope.user_id

    async def find(self, check: str) -> list[AuditIssue]:
        """Return the issues of one check."""
        if check == "near_duplicates":
            return await self._find_near_duplicates()
        if check != "orphan_rows":
            return [_to_issue(row) for row in await self._fetch(query("dreams/audit", check))]
        issues = []
        for table in self._store.types.models:
            rows = await self._fetch(fill(query("dreams/audit", check), table=identifier(table)))
            issues += [_to_issue(row, table) for row in rows]
        return issues

    async def _find_near_duplicates(self) -> list[AuditIssue]:
        """Return the moments that mean almost the same as an older one; none if embeddings are off."""
        latest_first = await self._connection.fetch(
            query("dreams/audit", "latest_summaries"), self._tenant_id, self._user_id, MAX_SUMMARIES
        )
        rows = list(reversed(latest_first))
        try:
            vectors = await self._embed([row["summary"] for row in rows]) if len(rows) > 1 else []
        except EmbeddingDisabledError:
            return []
        return [
            AuditIssue(rows[later]["key"], rows[earlier]["key"], rows[later]["id"])
            for later, earlier in _find_near_pairs(vectors)
        ][:MAX_ISSUES]

    async def _fetch(self, statement: str) -> list[Any]:
        return list(await self._connection.fetch(statement, self._tenant_id, self._user_id, MAX_ISSUES))

    async def fix(self, issues: dict[str, list[AuditIssue]]) -> int:
        """Remove what is wrong in a run of its own, and return how many issues were fixed."""
        run_id: UUID = await self._connection.fetchval(
            query("dreams/dreams", "begin_run"), self._tenant_id, self._user_id, ["audit"], None
        )
        for issue in issues["exact_duplicates"] + issues["near_duplicates"]:
            await self._connection.execute(query("dreams/audit", "end_row"), self._tenant_id, issue.id, run_id)
            await self._project("moments", issue.id)
        for issue in issues["without_source"]:
            await self._delete_statement(issue.id)
        for issue in issues["orphan_rows"]:
            delete = fill(query("dreams/audit", "delete_orphan"), table=identifier(str(issue.table)))
            await self._connection.execute(delete, self._tenant_id, issue.id)
        for issue in issues["dangling_edges"]:
            await self._connection.execute(
                query("dreams/audit", "end_edge"), self._tenant_id, issue.id, run_id, issue.rel_type, issue.other
            )
        for issue in issues["orphan_edges"] + issues["dangling_edges"]:
            await self._project(str(issue.table), issue.id)
        await self._connection.execute(query("dreams/dreams", "end_run"), self._tenant_id, run_id, "done", {}, None)
        await self._connection.execute(query("dreams/dreams", "delete_empty_run"), self._tenant_id, run_id)
        return sum(len(fixed) for check, fixed in issues.items() if check != "stale_profiles")

    async def _delete_statement(self, statement_id: UUID) -> None:
        row = await self._connection.fetchrow(query("dreams/audit", "delete_statement"), self._tenant_id, statement_id)
        if row is None:
            return
        entity = self._tenant_id, row["entity_type"], row["entity_id"]
        if row["kind"] == "field":
            await self._connection.execute(query("dreams/dreams", "set_field"), *entity, row["name"])
        elif row["kind"] == "row":
            await self._connection.execute(query("dreams/dreams", "project_row"), *entity, row["filled"])
        await self._project(row["entity_type"], row["entity_id"])

    async def _project(self, table: str, row_id: UUID) -> None:
        await self._connection.execute(query("dreams/dreams", "project"), self._tenant_id, [table], [row_id])


def _find_near_pairs(vectors: Sequence[Any]) -> list[tuple[int, int]]:
    """Return the position of each vector that is almost an earlier one, with the position of the nearest of those."""
    import numpy as np

    pairs = []
    earlier = np.zeros((0, 0))
    for position, vector in enumerate(vectors):
        unit = np.asarray(vector, dtype=np.float32)
        unit = unit / (np.linalg.norm(unit) or 1.0)
        if position:
            cosines = earlier[:position] @ unit
            nearest = int(cosines.argmax())
            if cosines[nearest] > MIN_DUPLICATE_COSINE:
                pairs.append((position, nearest))
        else:
            earlier = np.zeros((len(vectors), unit.size), dtype=np.float32)
        earlier[position] = unit
    return pairs


def _to_issue(row: Any, table: str | None = None) -> AuditIssue:
    given = dict(row)
    return AuditIssue(given["key"], given["other"], given["id"], table or given.get("src_type"), given.get("rel_type"))

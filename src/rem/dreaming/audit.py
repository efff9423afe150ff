"""Audit: what is wrong with what was dreamt, and how to mend it."""

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
MAX_SUMMARIES = 5000
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
    """One thing that is wrong."""

    key: str
    other: str | None
    """The moment that it repeats, or where the edge leads."""
    id: UUID
    table: str | None = None
    rel_type: str | None = None


@dataclass(slots=True)
class AuditReport:
    """What an audit found, at most a thousand of each kind, and how much of it was mended."""

    findings: dict[str, list[AuditIssue]] = field(default_factory=dict)
    mended: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """How many findings there are of each kind."""
        return {check: len(found) for check, found in self.findings.items()}

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found."""
        return not any(self.findings.values())


async def run_audit(store: Store, embed: Embed, *, mend: bool = False) -> AuditReport:
    """Look through what was dreamt for an owner. Mending removes what is wrong; stale profiles wait for a dream."""
    async with store.transaction() as inside, inside.executor.connection() as connection:
        auditor = _Auditor(connection, store, embed)
        report = AuditReport({check: await auditor.find(check) for check in CHECKS})
        if mend and not report.is_clean:
            report.mended = await auditor.fix(report.findings)
    return report


class _Auditor:
    def __init__(self, connection: Connection, store: Store, embed: Embed) -> None:
        self._connection = connection
        self._embed = embed
        self._store = store
        self._tenant_id, self._user_id = store.scope.tenant_id, store.scope.user_id

    async def find(self, check: str) -> list[AuditIssue]:
        if check == "near_duplicates":
            return await self._near_duplicates()
        if check != "orphan_rows":
            return [_to_issue(row) for row in await self._rows(query("dream_audit", check))]
        found = []
        for table in self._store.types.models:
            rows = await self._rows(fill(query("dream_audit", check), table=identifier(table)))
            found += [_to_issue(row, table) for row in rows]
        return found

    async def _near_duplicates(self) -> list[AuditIssue]:
        """Moments that mean almost what an older one means; none where nothing embeds."""
        rows = list(
            await self._connection.fetch(
                query("dream_audit", "summaries"), self._tenant_id, self._user_id, MAX_SUMMARIES
            )
        )
        try:
            vectors = await self._embed([row["summary"] for row in reversed(rows)]) if len(rows) > 1 else []
        except EmbeddingDisabledError:
            return []
        rows.reverse()
        return [
            AuditIssue(rows[later]["key"], rows[earlier]["key"], rows[later]["id"])
            for later, earlier in _find_near_pairs(vectors)
        ][:MAX_ISSUES]

    async def _rows(self, statement: str) -> list[Any]:
        return list(await self._connection.fetch(statement, self._tenant_id, self._user_id, MAX_ISSUES))

    async def fix(self, findings: dict[str, list[AuditIssue]]) -> int:
        run_id: UUID = await self._connection.fetchval(
            query("dreaming", "begin_run"), self._tenant_id, self._user_id, ["audit"], None
        )
        for finding in findings["exact_duplicates"] + findings["near_duplicates"]:
            await self._connection.execute(query("dream_audit", "end_row"), self._tenant_id, finding.id, run_id)
            await self._project("moments", finding.id)
        for finding in findings["without_source"]:
            await self._forget(finding.id)
        for finding in findings["orphan_rows"]:
            erase = fill(query("dream_audit", "erase_orphan"), table=identifier(str(finding.table)))
            await self._connection.execute(erase, self._tenant_id, finding.id)
        for finding in findings["dangling_edges"]:
            await self._connection.execute(
                query("dream_audit", "end_dangling"),
                self._tenant_id,
                finding.id,
                run_id,
                finding.rel_type,
                finding.other,
            )
        for finding in findings["orphan_edges"] + findings["dangling_edges"]:
            await self._project(str(finding.table), finding.id)
        await self._connection.execute(query("dreaming", "end_run"), self._tenant_id, run_id, "done", {}, None)
        await self._connection.execute(query("dreaming", "forget_empty_run"), self._tenant_id, run_id)
        return sum(len(found) for check, found in findings.items() if check != "stale_profiles")

    async def _forget(self, statement_id: UUID) -> None:
        gone = await self._connection.fetchrow(query("dream_audit", "forget_statement"), self._tenant_id, statement_id)
        if gone is None:
            return
        place = self._tenant_id, gone["entity_type"], gone["entity_id"]
        if gone["kind"] == "field":
            await self._connection.execute(query("dreaming", "set_field"), *place, gone["name"])
        elif gone["kind"] == "row":
            await self._connection.execute(query("dreaming", "project_row"), *place, gone["filled"])
        await self._project(gone["entity_type"], gone["entity_id"])

    async def _project(self, table: str, row_id: UUID) -> None:
        await self._connection.execute(query("dreaming", "project"), self._tenant_id, [table], [row_id])


def _find_near_pairs(vectors: Sequence[Any]) -> list[tuple[int, int]]:
    """Each vector that is almost an earlier one, with the nearest of those."""
    import numpy as np

    pairs = []
    known = np.zeros((0, 0))
    for place, vector in enumerate(vectors):
        unit = np.asarray(vector, dtype=np.float32)
        unit = unit / (np.linalg.norm(unit) or 1.0)
        if place:
            alike = known[:place] @ unit
            nearest = int(alike.argmax())
            if alike[nearest] > MIN_DUPLICATE_COSINE:
                pairs.append((place, nearest))
        else:
            known = np.zeros((len(vectors), unit.size), dtype=np.float32)
        known[place] = unit
    return pairs


def _to_issue(row: Any, table: str | None = None) -> AuditIssue:
    given = dict(row)
    return AuditIssue(given["key"], given["other"], given["id"], table or given.get("src_type"), given.get("rel_type"))

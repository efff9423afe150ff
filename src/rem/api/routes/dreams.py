"""`/dreams`: run dreams, list their runs with what they have learnt and dropped, and undo a run."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from rem.api.dependencies import RemDep, ScopeDep
from rem.api.openapi_errors import error_responses
from rem.api.pagination import Page
from rem.dreams.audit import AuditReport
from rem.dreams.history import RunRecord, get_run, list_runs
from rem.dreams.report import describe_run
from rem.errors import ConflictError

router = APIRouter(prefix="/dreams", tags=["dreams"])

MAX_ISSUES_SHOWN = 50
RunId = Annotated[UUID, Path(description="The id of the run.")]


class DreamRunView(BaseModel):
    """One run of dreams."""

    id: UUID
    state: Literal["running", "done", "failed", "undone"]
    dreams: list[str]
    model: str | None = Field(description="The language model; null if it used none.")
    error: str | None
    started_at: datetime
    ended_at: datetime | None
    said: int = Field(description="The number of new statements.")
    ended: int = Field(description="The number of statements that it replaced or dropped.")


class DreamRunDetails(DreamRunView):
    """One run of dreams, and in words what is left of it."""

    learnt: list[str]
    dropped: list[str]


class DreamResult(BaseModel):
    """The texts that a run has learnt and dropped."""

    run_id: UUID | None = Field(description="Null if there was nothing new.")
    learnt: list[str]
    dropped: list[str]
    notes: list[str]


class UndoneRun(BaseModel):
    """The effect of undoing a run."""

    run_id: UUID
    statements: int = Field(description="The number of statements that were deleted.")


class AuditIssueView(BaseModel):
    """A row, an edge or a statement that is wrong."""

    model_config = ConfigDict(from_attributes=True)

    key: str
    other: str | None = Field(description="The key of the row that it duplicates, or the target of the edge.")
    table: str | None
    rel_type: str | None


class AuditView(BaseModel):
    """The findings of an audit, by check."""

    counts: dict[str, int]
    issues: dict[str, list[AuditIssueView]] = Field(description="The first of each check.")
    fixed: int


@router.get("", summary="List dream runs")
async def list_dream_runs(
    rem: RemDep,
    scope: ScopeDep,
    limit: Annotated[int, Query(ge=1, le=500, description="The maximum number of runs.")] = 20,
) -> Page[DreamRunView]:
    """List the runs of dreams over the caller's memory, latest first. Runs without an effect are not kept."""
    runs = await list_runs(rem.for_user(scope).store, limit + 1)
    return Page[DreamRunView](data=[_to_view(run) for run in runs[:limit]], has_more=len(runs) > limit)


@router.post("", summary="Dream now", responses=error_responses(409))
async def dream(rem: RemDep, scope: ScopeDep) -> DreamResult:
    """Run all dreams over the caller's memory now, as every night, and return what is new."""
    report = await rem.dreamer().dream(scope, wait=False)
    if report.was_busy:
        raise ConflictError("Dreams are running already: wait until they have ended.")
    return DreamResult(run_id=report.run_id, learnt=report.learnt, dropped=report.dropped, notes=report.notes)


@router.get("/audit", summary="Audit what dreams have derived")
async def audit_dreams(rem: RemDep, scope: ScopeDep) -> AuditView:
    """Look for duplicates, statements without a source, edges to missing rows and stale profiles. Change nothing."""
    return _to_audit_view(await rem.dreamer().audit(scope))


@router.post("/audit", summary="Fix what the audit finds", responses=error_responses(409))
async def fix_dreams(rem: RemDep, scope: ScopeDep) -> AuditView:
    """Remove the duplicates and what has no source or target. A stale profile waits for the next dream."""
    return _to_audit_view(await rem.dreamer().audit(scope, fix=True))


@router.get("/{run}", summary="Get a dream run", responses=error_responses(404))
async def get_dream_run(rem: RemDep, scope: ScopeDep, run: RunId) -> DreamRunDetails:
    """Return a run, and in words what it has learnt and dropped, as far as that still holds."""
    store = rem.for_user(scope).store
    record = await get_run(store, run)
    report = await describe_run(store, run, record.skipped, record.count("refused"))
    return DreamRunDetails(**_to_view(record).model_dump(), learnt=report.learnt, dropped=report.dropped)


@router.post("/{run}/undo", summary="Undo a dream run", responses=error_responses(404, 409))
async def undo_dream_run(rem: RemDep, scope: ScopeDep, run: RunId) -> UndoneRun:
    """Delete the statements of a run, and restore those that it replaced. Rows that the caller changed stay."""
    return UndoneRun(run_id=run, statements=await rem.dreamer().undo(scope, run))


def _to_view(run: RunRecord) -> DreamRunView:
    return DreamRunView.model_validate(
        {
            "id": run.id,
            "state": run.state,
            "dreams": run.dreams,
            "model": run.model,
            "error": run.error,
            "started_at": run.started_at,
            "ended_at": run.ended_at,
            "said": run.count("said"),
            "ended": run.count("ended"),
        }
    )


def _to_audit_view(report: AuditReport) -> AuditView:
    issues = {
        check: [AuditIssueView.model_validate(issue) for issue in found[:MAX_ISSUES_SHOWN]]
        for check, found in report.issues.items()
    }
    return AuditView(counts=report.counts, issues=issues, fixed=report.fixed)

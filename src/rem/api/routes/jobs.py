"""`/jobs`: the caller's background jobs that are not done, and another try for those that failed."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from rem.api.dependencies import RemDep, ScopeDep
from rem.api.openapi_errors import error_responses
from rem.api.pagination import Page
from rem.context import Scope, parse_uuid
from rem.errors import ConflictError, NotFoundError
from rem.jobs.queue import Job, JobQueue

router = APIRouter(prefix="/jobs", tags=["files"])

JobId = Annotated[int, Path(description="The id of the job.")]


class JobView(BaseModel):
    """A job that is not done."""

    id: int
    kind: str = Field(description="What it does, such as `ingest` or `dream`.")
    state: Literal["queued", "running", "dead"] = Field(description="`dead`: it failed too often, and waits for you.")
    attempts: int
    created_at: datetime
    due_at: datetime = Field(description="The time of the next attempt.")
    error: str | None = Field(description="Why the last attempt failed.")
    file_id: UUID | None = Field(description="The file that it reads.")


@router.get("", summary="List jobs")
async def list_jobs(
    rem: RemDep,
    scope: ScopeDep,
    limit: Annotated[int, Query(ge=1, le=500, description="The maximum number of jobs.")] = 50,
) -> Page[JobView]:
    """List the caller's own jobs that are not done, newest first."""
    jobs = await JobQueue(rem.database).list_for_owner(scope.tenant_id, scope.user_id, limit=limit + 1)
    return Page[JobView](data=[_to_view(job) for job in jobs[:limit]], has_more=len(jobs) > limit)


@router.post("/{job}/retry", summary="Retry a failed job", responses=error_responses(404, 409))
async def retry_job(rem: RemDep, scope: ScopeDep, job: JobId) -> JobView:
    """Queue one of the caller's dead jobs again, with all its attempts."""
    queue = JobQueue(rem.database)
    if not _is_owned(await queue.get(job), scope):
        raise NotFoundError(f"There is no job {job}.")
    if not await queue.retry([job]):
        raise ConflictError("This job has not failed for good: REM tries it again by itself.")
    return _to_view(await queue.get(job))


def _is_owned(job: Job, scope: Scope) -> bool:
    return (job.tenant_id, job.user_id) == (scope.tenant_id, scope.user_id)


def _to_view(job: Job) -> JobView:
    return JobView(
        id=job.id,
        kind=job.kind,
        state=job.state,
        attempts=job.attempts,
        created_at=job.created_at,
        due_at=job.due_at,
        error=job.error.message if job.error else None,
        file_id=parse_uuid(str(job.payload.get("file_id"))),
    )

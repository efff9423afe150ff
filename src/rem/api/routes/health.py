"""`/health`: whether the process is alive, and whether the database answers."""

from __future__ import annotations

from functools import cache
from typing import Literal

from fastapi import APIRouter, Request, Response, status
from pydantic import BaseModel, Field

from rem.api.openapi_errors import Responses, error_responses
from rem.app import Rem
from rem.db.migrator import builtin_migrations
from rem.db.sql import query
from rem.errors import RemError

router = APIRouter(prefix="/health", tags=["health"], responses=error_responses(500))


class Health(BaseModel):
    """The state of the service."""

    status: Literal["ok", "unavailable"]
    detail: str | None = Field(default=None, description="The problem, or what is switched off.")


UNAVAILABLE: Responses = {
    503: {"model": Health, "description": "The database does not answer, has an older schema, or its disk is full."}
}


@router.get("/live", summary="Check that the process is alive")
async def live() -> Health:
    """Answer without using the database."""
    return Health(status="ok")


@router.get("/ready", summary="Check that the database answers", responses=UNAVAILABLE)
async def ready(request: Request, response: Response) -> Health:
    """Check that the database answers, has the schema of this version and, on the embedded server, room on its disk.

    Without a database (POSTGRES__ENABLED=false) the answer is ok, too.
    """
    rem: Rem | None = request.app.state.rem
    if rem is None:
        return Health(status="ok", detail="The memory is switched off (POSTGRES__ENABLED=false).")
    try:
        async with rem.database.connection() as connection:
            is_migrated = await connection.fetchval(
                query("db/migrations", "has_migration"), _newest_migration(), timeout=5
            )
    except RemError as error:
        return _report_problem(response, str(error))
    if not is_migrated:
        return _report_problem(response, "The schema of the database is older than this version: run `rem db migrate`.")
    if full_disk := rem.database.describe_full_disk():
        return _report_problem(response, full_disk)
    return Health(status="ok")


@cache
def _newest_migration() -> str:
    return builtin_migrations()[-1].name


def _report_problem(response: Response, detail: str) -> Health:
    response.status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    return Health(status="unavailable", detail=detail)


router.add_api_route("", ready, name="health", summary="The same as /health/ready", responses=UNAVAILABLE)

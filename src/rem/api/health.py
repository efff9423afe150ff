"""`/health`: is the process alive, and can it do its work?"""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request, Response, status
from pydantic import BaseModel

from rem.app import Rem
from rem.errors import RemError

router = APIRouter(prefix="/health", tags=["health"])


class Health(BaseModel):
    """The state of the service."""

    status: Literal["ok", "unavailable"]
    detail: str | None = None


@router.get("/live")
async def live() -> Health:
    """The process answers. Does not touch the database."""
    return Health(status="ok")


@router.get("")
@router.get("/ready", responses={503: {"model": Health}})
async def ready(request: Request, response: Response) -> Health:
    """The database answers, too."""
    rem: Rem = request.app.state.rem
    try:
        async with rem.database.connection() as connection:
            await connection.fetchval("SELECT 1", timeout=5)
    except RemError as error:
        response.status_code = status.HTTP_503_SERVICE_UNAVAILABLE
        return Health(status="unavailable", detail=str(error))
    return Health(status="ok")

"""`/tool-gaps`: tools that agents called but do not have."""

from __future__ import annotations

from fastapi import APIRouter

from rem.api.dependencies import RemDep, ScopeDep
from rem.api.pagination import Page, WindowDep
from rem.models import ToolGap

router = APIRouter(prefix="/tool-gaps", tags=["agents"])


@router.get("", summary="List missing tools")
async def list_tool_gaps(rem: RemDep, scope: ScopeDep, window: WindowDep) -> Page[ToolGap]:
    """List the tools that the caller's agents called but do not have, the most often called first.

    Each agent and tool is listed once, with the number of calls and the task of the last one.
    """
    gaps = await rem.for_user(scope).store.find(
        ToolGap, order_by="-occurrences, -updated_at", limit=window.fetch_limit, offset=window.offset
    )
    return Page[ToolGap].model_construct(**window.slice_page(gaps))

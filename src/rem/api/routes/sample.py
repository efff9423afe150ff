"""`/sample`: the sample workspace, in a tenant of its own."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, Field

from rem.api.dependencies import IdentityDep, RemDep
from rem.api.openapi_errors import error_responses
from rem.auth.identity import Role
from rem.demo import DEMO_TENANT, count_sample_rows, load_workspace, remove_workspace
from rem.errors import ForbiddenError

router = APIRouter(prefix="/sample", tags=["entities"])


class SampleWorkspace(BaseModel):
    """The sample workspace."""

    tenant_id: str = Field(description="Its tenant: send it as `X-Tenant-Id` to look into it.")
    rows: int = Field(description="The number of its rows; 0 if it is not loaded.")
    may_change: bool = Field(description="Whether the caller may load and remove it.")


def _may_change(request: Request, identity: IdentityDep) -> bool:
    """Return True if the caller may change the sample workspace, which is in another tenant than most callers."""
    is_admin_there = identity.tenant_id == DEMO_TENANT and identity.has_role(Role.ADMIN)
    return bool(request.app.state.trusts_headers) or is_admin_there


MayChangeDep = Annotated[bool, Depends(_may_change)]


@router.get("", summary="Show whether the sample workspace is loaded")
async def get_sample(rem: RemDep, may_change: MayChangeDep) -> SampleWorkspace:
    """Count the rows of the sample workspace."""
    rows = await count_sample_rows(rem.for_user(tenant=DEMO_TENANT).store)
    return SampleWorkspace(tenant_id=DEMO_TENANT, rows=rows, may_change=may_change)


@router.put("", summary="Load the sample workspace", responses=error_responses(403))
async def load_sample(rem: RemDep, may_change: MayChangeDep) -> SampleWorkspace:
    """Load the sample workspace into its own tenant. Loading it again changes nothing."""
    _require(may_change)
    await load_workspace(rem.for_user(tenant=DEMO_TENANT).store)
    return await get_sample(rem, may_change)


@router.delete("", summary="Remove the sample workspace", responses=error_responses(403))
async def remove_sample(rem: RemDep, may_change: MayChangeDep) -> SampleWorkspace:
    """Erase the sample workspace and the chats in its tenant. Rows that somebody edited stay."""
    _require(may_change)
    await remove_workspace(rem.for_user(tenant=DEMO_TENANT).store)
    return await get_sample(rem, may_change)


def _require(may_change: bool) -> None:
    if not may_change:
        raise ForbiddenError("The operator of this server loads and removes the sample workspace: rem demo.")

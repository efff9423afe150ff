"""The tools list_schema and get_schema."""

from __future__ import annotations

import pytest

from rem import Rem
from rem.errors import (
    NotFoundError,
)
from rem.tools.schema import get_schema, list_schema
from tests.tools.tool_env import env_for

ALICE, BOB = "alice@example.com", "bob@example.com"


async def test_tables_are_described_with_their_fields(rem: Rem) -> None:
    env = env_for(rem, ALICE)
    outline = {kind["table"]: kind for kind in (await list_schema(env))["types"]}
    assert outline["users"]["key"] == ["name", "email", "id"]
    assert outline["moments"]["searched"] == ["summary"]
    detail = await get_schema(env, "moments")
    assert detail["fields"]["starts_timestamp"] == "time"
    assert detail["fields"]["present_persons"] == "list of text"
    assert (await get_schema(env, "Resource"))["table"] == "resources"
    with pytest.raises(NotFoundError, match="Did you mean 'moments'"):
        await get_schema(env, "momnts")


async def test_tables_are_described_without_database() -> None:
    env = env_for(None)
    assert (await list_schema(env))["count"] >= 14
    assert (await get_schema(env, "users"))["fields"]["interests"] == "list of text"

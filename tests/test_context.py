"""The context and the scope of a caller."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from starlette.requests import Request

from rem.context import (
    AgentContext,
    Scope,
    agent_context_scope,
    get_current_context,
    resolve_session_id,
    set_current_context,
)
from rem.errors import InvalidInputError

_ALICE = "edabafbb-61ad-51d6-9fd8-e976c892a731"


def request(headers: dict[str, str], *, trusts_headers: bool, user: object = None) -> Request:
    state: dict[str, Any] = {} if user is None else {"user": user}
    app = SimpleNamespace(state=SimpleNamespace(trusts_headers=trusts_headers))
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "headers": raw, "app": app, "state": state})


def test_headers_are_case_insensitive() -> None:
    context = AgentContext.from_headers(
        {
            "x-user-id": " alice@example.com ",
            "X-TENANT-ID": "acme",
            "X-Session-Id": "550e8400-e29b-41d4-a716-446655440000",
            "X-Model-Name": "openai:gpt-4o",
            "X-Agent-Schema": "query-agent",
            "X-Is-Eval": "True",
            "X-Client-Id": "web",
        }
    )
    assert context == AgentContext(
        user_id=_ALICE,
        user_email="alice@example.com",
        tenant_id="acme",
        session_id="550e8400-e29b-41d4-a716-446655440000",
        default_model="openai:gpt-4o",
        agent_schema_uri="query-agent",
        is_eval=True,
        client_id="web",
    )
    assert AgentContext.model_validate_json(context.model_dump_json()) == context


def test_missing_headers_are_the_anonymous_caller() -> None:
    assert AgentContext.from_headers({"X-User-Id": "  ", "X-Is-Eval": "no"}) == AgentContext()
    assert AgentContext().scope == Scope("default", None)


def test_logged_in_user_overrides_headers() -> None:
    user = SimpleNamespace(id="alice", tenant_id="acme", email="alice@example.com")
    claimed = {"X-User-Id": "mallory", "X-Tenant-Id": "other", "X-Session-Id": "x"}
    context = AgentContext.from_request(request(claimed, trusts_headers=True, user=user))
    assert (context.user_id, context.tenant_id) == ("alice", "acme")
    assert context.user_email == "alice@example.com"
    assert context.session_id == str(resolve_session_id("x", Scope("acme", "alice")))
    assert context.session_name == "x"


def test_untrusted_headers_are_ignored() -> None:
    claimed = {"X-User-Id": "alice", "X-Tenant-Id": "acme"}
    assert AgentContext.from_request(request(claimed, trusts_headers=False)) == AgentContext()
    assert AgentContext.from_request(request(claimed, trusts_headers=True)).user_id == "alice"


def test_anonymous_session_owns_itself_and_its_id_cannot_be_claimed() -> None:
    session = "550e8400-e29b-41d4-a716-446655440000"
    assert AgentContext(session_id=session).scope == Scope("default", f"anon:{session}")
    for claimed in (f"anon:{session}", f"ANON:{session}"):
        with pytest.raises(InvalidInputError, match="anon:"):
            AgentContext.from_headers({"X-User-Id": claimed})


@pytest.mark.parametrize("header", ["a\0b", "x" * 300])
def test_invalid_user_is_rejected_with_the_name_of_the_header(header: str) -> None:
    with pytest.raises(InvalidInputError, match="X-User-Id"):
        AgentContext.from_headers({"X-User-Id": header})


def test_session_is_a_uuid_or_a_name_of_the_user() -> None:
    alice, bob = Scope("default", "alice"), Scope("default", "bob")
    uuid = UUID("550e8400-e29b-41d4-a716-446655440000")
    assert resolve_session_id(str(uuid), alice) == resolve_session_id(f"{{{uuid}}}", bob) == uuid
    named = resolve_session_id("Planung für Zürich", alice)
    assert named.version == 5
    assert named == resolve_session_id("Planung für Zürich", alice)
    assert named not in (resolve_session_id("Planung für Zürich", bob), resolve_session_id("Planung", alice))


def test_child_context_has_the_same_user_and_session() -> None:
    parent = AgentContext(user_id="alice", tenant_id="acme", session_id="s", is_eval=True, client_id="web")
    child = parent.child_context("worker", "openai:gpt-4o")
    assert child == parent.model_copy(update={"agent_schema_uri": "worker", "default_model": "openai:gpt-4o"})
    assert parent.child_context() == parent
    with pytest.raises(ValueError, match="frozen"):
        child.user_id = "mallory"  # type: ignore[misc]


async def test_contexts_nest_and_do_not_leak_between_tasks() -> None:
    outer, inner = AgentContext(user_id="outer"), AgentContext(user_id="inner")
    assert get_current_context() is None
    with agent_context_scope(outer):
        with agent_context_scope(inner):
            assert get_current_context() is inner
        assert get_current_context() is outer

        async def elsewhere() -> None:
            set_current_context(inner)

        await asyncio.create_task(elsewhere())
        assert get_current_context() is outer
    assert get_current_context() is None

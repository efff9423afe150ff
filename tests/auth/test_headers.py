"""Who may name a user or a tenant in a header."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rem.auth.access import check_access, is_public
from rem.auth.headers import ANY_TENANT, apply_headers, trust_headers
from rem.auth.identity import Identity, Role, Tier, make_anonymous
from rem.context import resolve_user_id
from rem.errors import ForbiddenError, InvalidInputError, UnauthorizedError

SARAH = Identity(
    resolve_user_id("sarah@example.com"), "acme", Role.USER, Tier.FREE, "sarah@example.com", method="token"
)
SERVICE = Identity(None, "acme", Role.SERVICE, Tier.PRO, method="api_key")


def test_headers_are_trusted_while_authentication_is_off() -> None:
    caller = trust_headers({"x-user-id": " Sarah@Example.com ", "x-tenant-id": "acme"})
    assert (caller.id, caller.tenant_id, caller.method) == (SARAH.id, "acme", "header")
    assert not caller.is_authenticated
    assert trust_headers({}) == Identity(None, "default", Role.USER, Tier.ANONYMOUS)
    with pytest.raises(InvalidInputError, match="X-User-Id"):
        trust_headers({"x-user-id": "x" * 300})


@pytest.mark.parametrize("named", ["", "sarah@example.com", "SARAH@example.com", str(SARAH.id)])
def test_caller_may_name_itself(named: str) -> None:
    assert apply_headers(SARAH, {"x-user-id": named, "x-tenant-id": "acme"}) == SARAH


@pytest.mark.parametrize("role", [Role.USER, Role.ADMIN])
@pytest.mark.parametrize(
    "headers",
    [{"x-user-id": "bob@example.com"}, {"x-user-id": "test-user"}, {"x-tenant-id": "default"}, {"x-tenant-id": "*"}],
)
def test_caller_may_not_name_another(role: Role, headers: dict[str, str]) -> None:
    with pytest.raises(ForbiddenError, match="leave the header out"):
        apply_headers(replace(SARAH, role=role), headers)


@pytest.mark.parametrize("headers", [{"x-user-id": "sarah@example.com"}, {"x-tenant-id": "acme"}])
def test_anonymous_caller_may_not_name_anyone(headers: dict[str, str]) -> None:
    with pytest.raises(UnauthorizedError, match="needs a login"):
        apply_headers(make_anonymous(), headers)


def test_service_acts_for_users_of_its_tenant() -> None:
    caller = apply_headers(SERVICE, {"x-user-id": "sarah@example.com"})
    assert (caller.id, caller.tenant_id, caller.email) == (SARAH.id, "acme", "sarah@example.com")
    assert not caller.has_role(Role.ADMIN)
    with pytest.raises(ForbiddenError):
        apply_headers(SERVICE, {"x-user-id": "sarah@example.com", "x-tenant-id": "other"})


def test_service_for_all_tenants_names_one() -> None:
    service = replace(SERVICE, tenant_id=ANY_TENANT)
    assert apply_headers(service, {"x-tenant-id": "other"}).tenant_id == "other"
    assert apply_headers(service, {}).tenant_id == "default"


def test_admin_needs_the_scope_too() -> None:
    admin = replace(SARAH, role=Role.ADMIN)
    assert admin.has_role(Role.ADMIN)
    assert not replace(admin, scopes=frozenset(("read", "write"))).has_role(Role.ADMIN)
    assert not SARAH.has_role(Role.ADMIN)


@pytest.mark.parametrize(
    ("scopes", "method", "path", "allowed"),
    [
        ({"read"}, "GET", "/api/v1/sessions", True),
        ({"read"}, "POST", "/api/v1/query", True),
        ({"read"}, "POST", "/api/v1/query/", True),
        ({"read"}, "POST", "/api/v1/sessions", False),
        ({"read"}, "DELETE", "/api/v1/query", False),
        ({"read"}, "POST", "/api/v1/chat/completions", False),
        ({"chat"}, "POST", "/api/v1/chat/completions", True),
        ({"chat"}, "POST", "/v1/chat/completions", True),
        ({"chat"}, "GET", "/api/v1/sessions", False),
        ({"write"}, "POST", "/api/v1/chat/completions", True),
        ({"write"}, "PATCH", "/api/v1/anything/new", True),
        ({"admin"}, "PATCH", "/api/v1/anything/new", False),
    ],
)
def test_methods_that_change_something_need_write(scopes: set[str], method: str, path: str, allowed: bool) -> None:
    caller = replace(SARAH, scopes=frozenset(scopes))
    if allowed:
        check_access(caller, method, path)
    else:
        with pytest.raises(ForbiddenError, match="scope"):
            check_access(caller, method, path)


def test_anonymous_caller_reads_and_chats() -> None:
    check_access(make_anonymous(), "GET", "/api/v1/sessions")
    check_access(make_anonymous(), "POST", "/api/v1/chat/completions")
    with pytest.raises(UnauthorizedError):
        check_access(make_anonymous(), "POST", "/api/v1/files")


@pytest.mark.parametrize(
    ("path", "public"),
    [
        ("/health", True),
        ("/health/live", True),
        ("/healthy", False),
        ("/api/auth/google/login", True),
        ("/api/auth/oauth/token", True),
        ("/api/auth/me", False),
        ("/api/auth/keys/x", False),
        ("/api/auth/keysx/login", True),
        ("/api/dev/token", True),
        ("/api/dev/tokens", False),
        ("/api/v1/sessions", False),
        ("/", True),
        ("/api", False),
        ("/.well-known/oauth-protected-resource/api/v1/mcp", True),
        ("/docs", True),
        ("/openapi.json", True),
    ],
)
def test_paths_that_need_no_login(path: str, public: bool) -> None:
    assert is_public(path) is public

"""`/api/auth`: log in and out, renew tokens, manage one's API keys; and `/api/dev/token`."""

from __future__ import annotations

from asyncio import to_thread
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from urllib.parse import quote, unquote
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import RedirectResponse
from loguru import logger
from pydantic import BaseModel, ConfigDict, Field

from rem.api.authentication import get_base_url
from rem.api.dependencies import IdentityDep, JsonBody, RemDep, SettingsDep
from rem.api.handshake import LIFETIME_SECONDS, make_cookie
from rem.api.html_page import make_failed_login_page, prefers_html
from rem.api.openapi_errors import error_responses
from rem.app import Rem
from rem.audit.entry import note_actor, note_row
from rem.auth.access import AUTH_PATH
from rem.auth.accounts import UserAccount
from rem.auth.api_keys import DEFAULT_SCOPES, MAX_NAME_CHARS, ApiKey, check_scopes
from rem.auth.authenticator import DEV_EMAIL, DEV_NAME, DEV_USER_ID, SESSION_COOKIE, Authenticator, make_dev_token
from rem.auth.headers import read_cookie
from rem.auth.identity import ALL_SCOPES, Identity, Role
from rem.auth.logins import TokenPair
from rem.auth.providers import LoginProviders, VerifiedPerson, choose_tenant
from rem.context import Scope, parse_uuid
from rem.errors import ForbiddenError, InvalidInputError, NotFoundError, RemError, UnauthorizedError
from rem.models import User
from rem.settings import Settings
from rem.settings.effective_settings import read_default_user

router = APIRouter(prefix=AUTH_PATH, tags=["auth"])
dev_router = APIRouter(prefix="/api/dev", tags=["auth"])
DEFAULT_NEXT = f"{AUTH_PATH}/me"
NEXT_COOKIE = "rem_next"
"""Where to return to after the login. It has a cookie of its own, because browsers keep 4,096 bytes of each."""
MAX_NEXT_CHARS = 3900
MAX_KEY_DAYS = 3650
NO_STORE = {"Cache-Control": "no-store"}


async def _get_authenticator(request: Request) -> Authenticator:
    authenticator: Authenticator = request.app.state.authenticator
    return authenticator


async def _get_providers(request: Request) -> LoginProviders:
    providers: LoginProviders | None = request.app.state.login_providers
    if providers is None:
        raise NotFoundError("No login is configured: set AUTH__ENABLED=true and the client id of a provider.")
    return providers


async def _require_person(identity: IdentityDep) -> Identity:
    """Return a caller that is a logged-in person. A key or a limited token must not make itself a stronger one."""
    if identity.id is None or not identity.is_authenticated:
        raise UnauthorizedError
    # A service acts for the user that a header names: it must not keep a credential of that user.
    if identity.method == "api_key" or identity.role is Role.SERVICE or not identity.scopes >= ALL_SCOPES:
        raise ForbiddenError("This needs a login of the person: an API key or a token with fewer scopes cannot do it.")
    return identity


AuthenticatorDep = Annotated[Authenticator, Depends(_get_authenticator)]
ProvidersDep = Annotated[LoginProviders, Depends(_get_providers)]
PersonDep = Annotated[Identity, Depends(_require_person)]


class Caller(BaseModel):
    """Who calls, as REM sees it."""

    id: str | None = Field(description="The user id; null for an anonymous caller.")
    email: str | None
    name: str | None
    tenant_id: str
    role: str
    tier: str
    scopes: list[str]
    method: str = Field(description="`cookie`, `token`, `api_key`, `dev`; `header` and `none` prove nothing.")


class ProviderList(BaseModel):
    """The logins that are configured, and whether callers need one."""

    providers: list[str]
    login_urls: dict[str, str]
    is_required: bool = Field(description="Whether callers prove who they are; if not, `X-User-Id` is trusted.")
    allows_anonymous: bool = Field(description="Whether requests without a login are admitted.")
    has_dev_token: bool = Field(description="Whether `/api/dev/token` has a token to try things out.")
    default_user: str | None = Field(description="The user of a client that names none (REM_USER); null: none.")


class Tokens(BaseModel):
    """An access token, and the refresh token that renews it once."""

    access_token: str
    refresh_token: str
    token_type: str = "Bearer"  # noqa: S105  # the name of a scheme
    expires_in: int = Field(description="Seconds until the access token expires.")
    scope: str

    @classmethod
    def of(cls, pair: TokenPair) -> Tokens:
        """Return the response for a pair of tokens."""
        scope = " ".join(sorted(pair.scopes))
        return cls(
            access_token=pair.access_token, refresh_token=pair.refresh_token, expires_in=pair.expires_in, scope=scope
        )


class RefreshBody(BaseModel):
    """A refresh token."""

    model_config = ConfigDict(extra="forbid")

    refresh_token: str = Field(max_length=500)


class NewKeyBody(BaseModel):
    """A new API key."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=MAX_NAME_CHARS, pattern=r"\S", examples=["backup script"])
    scopes: list[str] = Field(default=list(DEFAULT_SCOPES), description="Some of `read`, `write`, `chat`, `admin`.")
    expires_in_days: int | None = Field(default=90, ge=1, le=MAX_KEY_DAYS, description="null: never.")


class KeyInfo(BaseModel):
    """An API key, without the key itself."""

    id: UUID
    prefix: str
    name: str
    scopes: list[str]
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None

    @classmethod
    def of(cls, key: ApiKey) -> KeyInfo:
        """Return what the owner of a key sees of it."""
        return cls(**{name: getattr(key, name) for name in cls.model_fields if name != "scopes"}, scopes=[*key.scopes])


class KeyList(BaseModel):
    """The API keys of a user."""

    data: list[KeyInfo]


class CreatedKey(BaseModel):
    """A new API key. It is shown only here."""

    key: str
    info: KeyInfo


class LoginInfo(BaseModel):
    """A login that has not ended."""

    id: UUID
    kind: str = Field(description="`cookie` (a browser), `token` (a program) or `mcp` (an MCP client).")
    provider: str | None
    client_id: str | None
    scopes: list[str]
    created_at: datetime
    expires_at: datetime


class LoginList(BaseModel):
    """The logins of a user."""

    data: list[LoginInfo]


class DevUser(BaseModel):
    """The user of the development token."""

    id: str
    email: str
    name: str


class DevToken(BaseModel):
    """The development token."""

    token: str
    type: str
    user: DevUser
    usage: str
    warning: str


@router.get("/providers", summary="List the logins")
async def list_providers(request: Request, settings: SettingsDep) -> ProviderList:
    """List the providers that people can log in with, and say whether a login is needed."""
    providers: LoginProviders | None = request.app.state.login_providers
    names = providers.names if providers else []
    is_required = settings.auth.enabled
    return ProviderList(
        providers=names,
        login_urls={name: f"{AUTH_PATH}/{name}/login" for name in names},
        is_required=is_required,
        allows_anonymous=settings.allows_anonymous,
        has_dev_token=is_required and not settings.is_production,
        # Whoever must log in learns nothing about the operator.
        default_user=None if is_required else await to_thread(read_default_user, settings),
    )


@router.get("/me", summary="Show the caller")
async def show_caller(identity: IdentityDep) -> Caller:
    """Return who the caller is, and what its credential may do."""
    return Caller(
        id=identity.id,
        email=identity.email,
        name=identity.name,
        tenant_id=identity.tenant_id,
        role=identity.role,
        tier=identity.tier,
        scopes=sorted(identity.scopes),
        method=identity.method,
    )


@router.get("/{provider}/login", status_code=302, response_class=Response, include_in_schema=False)
async def log_in(
    request: Request,
    provider: str,
    providers: ProvidersDep,
    settings: SettingsDep,
    authenticator: AuthenticatorDep,
    then: Annotated[str | None, Query(alias="next", max_length=MAX_NEXT_CHARS)] = None,
) -> Response:
    """Send the browser to the provider. `next` is the path to return to after the login."""
    path = quote(then) if then and is_local_path(then) else ""
    if len(path) > MAX_NEXT_CHARS:
        raise InvalidInputError("`next` is too long for a cookie: use a shorter address.")
    try:
        response = await providers.start(request, provider, _callback_url(request, settings, provider))
    except RemError as error:
        return _show_failure(request, error, provider, unquote(path))
    _set_next_cookie(request, response, authenticator, path)
    return response


@router.get("/{provider}/callback", status_code=302, response_class=Response, include_in_schema=False)
async def finish_login(
    request: Request,
    provider: str,
    providers: ProvidersDep,
    authenticator: AuthenticatorDep,
    settings: SettingsDep,
    rem: RemDep,
) -> Response:
    """Take the answer of the provider, and log the person in with a session cookie."""
    name = authenticator.name_cookie(NEXT_COOKIE)
    then = unquote(read_cookie(request.headers.get("cookie", ""), name) or "")
    then = then if is_local_path(then) else ""
    try:
        account = await _admit_person(await providers.finish(request, provider), authenticator, settings)
    except RemError as error:
        return _show_failure(request, error, provider, then)
    await _record_user(rem, account)
    value, seconds = await authenticator.logins.create_cookie(account.user_id, account.tenant_id, provider)
    request.session.clear()
    response = RedirectResponse(then or DEFAULT_NEXT, 302, NO_STORE)
    response.headers.append("set-cookie", _session_cookie(authenticator, value, seconds))
    _set_next_cookie(request, response, authenticator, "")
    return response


@router.post("/logout", status_code=204, summary="Log out", responses=error_responses(403))
async def log_out(
    response: Response,
    identity: IdentityDep,
    authenticator: AuthenticatorDep,
    everywhere: Annotated[bool, Query(description="End all logins of the user, on all devices.")] = False,
) -> None:
    """End the login of the cookie or token that the request carries. API keys are not logins: revoke them.

    A token with fewer scopes, such as that of an MCP client, ends only its own login.
    """
    if everywhere and identity.is_authenticated:
        await _require_person(identity)
    if identity.method in ("cookie", "token") and identity.id and identity.credential_id:
        if everywhere:
            await authenticator.logins.revoke_all(identity.id, identity.tenant_id)
        else:
            await authenticator.logins.revoke(UUID(identity.credential_id))
        authenticator.cache.clear()
    response.headers.append("set-cookie", _session_cookie(authenticator, "", 0))


@router.post("/tokens", status_code=201, summary="Create tokens", responses=error_responses(401, 403))
async def create_tokens(response: Response, identity: PersonDep, authenticator: AuthenticatorDep) -> Tokens:
    """Create an access token and a refresh token for a program of the person who is logged in."""
    if identity.method not in ("cookie", "token") or identity.id is None:
        raise ForbiddenError("Tokens are for people who logged in: the development user has none.")
    response.headers.update(NO_STORE)
    return Tokens.of(await authenticator.logins.create_tokens(identity.id, identity.tenant_id))


@router.post("/refresh", summary="Renew tokens", dependencies=[JsonBody], responses=error_responses(401))
async def renew_tokens(response: Response, body: RefreshBody, authenticator: AuthenticatorDep) -> Tokens:
    """Return new tokens for a refresh token, which is used up.

    A refresh token that is used a second time has been stolen from somebody: the whole login ends.
    """
    response.headers.update(NO_STORE)
    try:
        pair = await authenticator.logins.refresh(body.refresh_token)
    except UnauthorizedError:
        authenticator.cache.clear()
        raise
    note_actor(pair.user_id, pair.tenant_id)
    return Tokens.of(pair)


@router.get("/keys", summary="List API keys", responses=error_responses(401, 403))
async def list_keys(identity: PersonDep, authenticator: AuthenticatorDep) -> KeyList:
    """List the caller's API keys, newest first. The keys themselves are not stored."""
    keys = await authenticator.keys.list(identity.id, identity.tenant_id)
    return KeyList(data=[KeyInfo.of(key) for key in keys])


@router.post(
    "/keys", status_code=201, summary="Create an API key", dependencies=[JsonBody], responses=error_responses(401, 403)
)
async def create_key(
    response: Response, body: NewKeyBody, identity: PersonDep, authenticator: AuthenticatorDep
) -> CreatedKey:
    """Create an API key for the caller. The answer is the only place where it is shown."""
    response.headers.update(NO_STORE)
    days = body.expires_in_days
    expires_at = None if days is None else datetime.now(UTC) + timedelta(days=days)
    owner = identity.email if identity.method != "dev" and identity.email else identity.id
    key, info = await authenticator.keys.create(
        body.name, owner, identity.tenant_id, scopes=check_scopes(body.scopes), expires_at=expires_at
    )
    note_row("api_keys", info.id)
    return CreatedKey(key=key, info=KeyInfo.of(info))


@router.delete("/keys/{key}", status_code=204, summary="Revoke an API key", responses=error_responses(401, 403, 404))
async def revoke_key(key: str, identity: PersonDep, authenticator: AuthenticatorDep) -> None:
    """Revoke one of the caller's API keys, by its id or prefix. Other processes refuse it within 5 seconds."""
    revoked = await authenticator.keys.revoke(key, identity.id, identity.tenant_id)
    note_row("api_keys", revoked.id)
    authenticator.cache.clear()


@router.get("/logins", summary="List logins", responses=error_responses(401, 403))
async def list_logins(identity: PersonDep, authenticator: AuthenticatorDep) -> LoginList:
    """List the caller's logins: browsers, programs and MCP clients."""
    logins = await authenticator.logins.list(str(identity.id), identity.tenant_id)
    return LoginList(data=[LoginInfo(**login) for login in logins])


@router.delete("/logins/{login}", status_code=204, summary="End a login", responses=error_responses(401, 403, 404))
async def end_login(login: str, identity: PersonDep, authenticator: AuthenticatorDep) -> None:
    """End one of the caller's logins, by its id."""
    login_id = parse_uuid(login)
    own = {row["id"] for row in await authenticator.logins.list(str(identity.id), identity.tenant_id)}
    if login_id is None or login_id not in own:
        raise NotFoundError("There is no such login.")
    await authenticator.logins.revoke(login_id)
    authenticator.cache.clear()


@dev_router.get("/token", summary="Get the development token", responses=error_responses(404))
async def get_dev_token(request: Request, settings: SettingsDep, authenticator: AuthenticatorDep) -> DevToken:
    """Return a Bearer token of a test user, an administrator. In production there is none."""
    if settings.is_production:
        raise NotFoundError("There is no development token in production.")
    base = get_base_url(settings, request)
    return DevToken(
        token=make_dev_token(authenticator.signer),
        type="Bearer",
        user=DevUser(id=DEV_USER_ID, email=DEV_EMAIL, name=DEV_NAME),
        usage=f'curl -H "Authorization: Bearer dev_..." {base}/api/v1/...',
        warning="This token is for development/testing only and will not work in production.",
    )


def is_local_path(path: str) -> bool:
    """Return True if a path leads nowhere but to this server. Browsers read `\\` as `/`, and `//` as a host."""
    is_plain = path.isascii() and path.isprintable() and " " not in path
    return path.startswith("/") and not path.startswith("//") and "\\" not in path and is_plain


def _show_failure(request: Request, error: RemError, provider: str, then: str) -> Response:
    """Return a page about a failed login to a browser. Raise the error for a program, which gets it as JSON."""
    if not prefers_html(request):
        raise error
    return make_failed_login_page(error, provider, then)


async def _admit_person(person: VerifiedPerson, authenticator: Authenticator, settings: Settings) -> UserAccount:
    """Return the account of who logged in. Raise ForbiddenError if they may not log in."""
    tenant = choose_tenant(settings.auth, person.email)
    is_admin = person.email.lower() in settings.auth.admin_emails
    account = await authenticator.accounts.log_in(person.email, person.name, tenant, is_admin=is_admin)
    note_actor(account.user_id, account.tenant_id)
    if account.disabled_at is not None:
        raise ForbiddenError("This account is disabled: ask the administrator of this server.")
    return account


def _callback_url(request: Request, settings: Any, provider: str) -> str:
    return f"{get_base_url(settings, request)}{AUTH_PATH}/{provider}/callback"


def _session_cookie(authenticator: Authenticator, value: str, seconds: int) -> str:
    return make_cookie(authenticator, SESSION_COOKIE, value, seconds)


def _set_next_cookie(request: Request, response: Response, authenticator: Authenticator, path: str) -> None:
    """Let the browser remember a path during the login; an empty one removes what it remembers."""
    if path or NEXT_COOKIE in request.headers.get("cookie", ""):
        seconds = LIFETIME_SECONDS if path else 0
        response.headers.append("set-cookie", make_cookie(authenticator, NEXT_COOKIE, path, seconds, AUTH_PATH))


async def _record_user(rem: Rem, account: UserAccount) -> None:
    """Write the person into their own memory, so that agents know them. A failure does not prevent the login."""
    store = rem.for_user(Scope(account.tenant_id, account.user_id)).store
    known = {"role": str(account.role), "tier": str(account.tier), "last_active_at": account.last_login_at}
    try:
        rows = await store.lookup(account.email, table="users")
        own = next((row for row in rows if isinstance(row, User) and row.user_id == account.user_id), None)
        if own is not None:
            await store.modify(User, own.id, lambda row: row.model_copy(update=known))
        else:
            await store.upsert(
                User.model_validate({**known, "name": account.name or account.email, "email": account.email})
            )
    except RemError as error:
        logger.warning("The profile of a person who logged in could not be stored: {}", error.code)

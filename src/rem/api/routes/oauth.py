"""`/api/auth/oauth` and `/.well-known`: the login of MCP clients."""

from __future__ import annotations

import hmac
from html import escape
from urllib.parse import quote, urlsplit

from mcp.server.auth.handlers.authorize import AuthorizationHandler
from mcp.server.auth.handlers.register import RegistrationHandler
from mcp.server.auth.handlers.token import TokenHandler
from mcp.server.auth.middleware.client_auth import ClientAuthenticator
from mcp.server.auth.settings import ClientRegistrationOptions
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from rem.api.authentication import get_base_url
from rem.api.html_page import make_page
from rem.auth.access import AUTH_PATH
from rem.auth.identity import ALL_SCOPES, Identity, Role
from rem.auth.providers import LoginProviders
from rem.errors import ForbiddenError, InvalidInputError, NotFoundError
from rem.mcp.http import MCP_PATH
from rem.mcp.oauth_server import CLIENT_SCOPES, CONSENT_PATH, OAUTH_PATH, OAuthServer

NO_STORE = {"Cache-Control": "no-store"}
PUBLIC_JSON_HEADERS = {"Access-Control-Allow-Origin": "*", **NO_STORE}
SCOPE_TEXTS = {
    "read": "read your memory and what is shared with you",
    "write": "add, change and delete what is in your memory",
    "chat": "talk to agents in your name",
}


def make_oauth_routes() -> list[Route]:
    """Return the routes of the authorization server and of its metadata."""
    resource = "/.well-known/oauth-protected-resource"
    # An OPTIONS request of a browser is answered by the handlers of the metadata, and elsewhere by CORS.
    return [
        Route("/.well-known/oauth-authorization-server", describe_server, methods=["GET"]),
        Route(resource, describe_resource, methods=["GET"]),
        Route(f"{resource}{MCP_PATH}", describe_resource, methods=["GET"]),
        Route(f"{OAUTH_PATH}/authorize", authorize, methods=["GET", "POST"]),
        Route(f"{OAUTH_PATH}/token", exchange_token, methods=["POST"]),
        Route(f"{OAUTH_PATH}/register", register_client, methods=["POST"]),
        Route(f"{OAUTH_PATH}/revoke", revoke_token, methods=["POST"]),
        Route(CONSENT_PATH, ask_person, methods=["GET"]),
        Route(CONSENT_PATH, take_answer, methods=["POST"]),
    ]


async def describe_server(request: Request) -> Response:
    """Return the metadata of the authorization server."""
    return JSONResponse(_get_server(request).describe_server(), headers=PUBLIC_JSON_HEADERS)


async def describe_resource(request: Request) -> Response:
    """Return the metadata of MCP as a protected resource."""
    return JSONResponse(_get_server(request).describe_resource(), headers=PUBLIC_JSON_HEADERS)


async def authorize(request: Request) -> Response:
    """Check what a client asks for, and send the browser to the question."""
    return await AuthorizationHandler(_get_server(request)).handle(request)


async def exchange_token(request: Request) -> Response:
    """Return tokens for a code or a refresh token."""
    server = _get_server(request)
    response: Response = await TokenHandler(server, ClientAuthenticator(server)).handle(request)
    return response


async def register_client(request: Request) -> Response:
    """Register a client."""
    options = ClientRegistrationOptions(enabled=True, valid_scopes=CLIENT_SCOPES, default_scopes=CLIENT_SCOPES)
    return await RegistrationHandler(_get_server(request), options).handle(request)


async def revoke_token(request: Request) -> Response:
    """Revoke a token and its login (RFC 7009). An unknown token is revoked already.

    The library's own handler demands a secret, which our clients do not have.
    """
    server = _get_server(request)
    form = await request.form()
    client = await server.get_client(str(form.get("client_id", "")))
    if client is None:
        return JSONResponse({"error": "invalid_client"}, 401, NO_STORE)
    text = str(form.get("token", ""))
    token = await server.load_access_token(text) or await server.load_refresh_token(client, text)
    if token is not None and token.client_id == client.client_id:
        await server.revoke_token(token)
    return Response(status_code=200, headers=NO_STORE)


async def ask_person(request: Request) -> Response:
    """Ask the person whether the client may act for them, after the login."""
    server = _get_server(request)
    signed = request.query_params.get("request", "")
    asked = server.read_consent(signed)
    person = _get_person(request)
    if person is None:
        return _offer_login(_get_providers(request), f"{CONSENT_PATH}?request={quote(signed)}")
    allowed = "".join(f"<li>{escape(SCOPE_TEXTS.get(scope, scope))}</li>" for scope in asked.scopes)
    target = urlsplit(asked.redirect_uri)
    place = f"{target.scheme}://{target.netloc}" if target.netloc else f"{target.scheme}:"
    name = escape(person.email or str(person.id))
    body = f"""<p><b>{escape(asked.client_name)}</b> asks to act for {name}. It may:</p>
<ul>{allowed}</ul><p>You return to <b>{escape(place)}</b>. The program chose its name itself: allow this only if you
started it.</p><form method="post" action="{CONSENT_PATH}">
<input type="hidden" name="request" value="{escape(signed)}">
<input type="hidden" name="proof" value="{server.make_proof(person, signed)}">
<button name="answer" value="allow">Allow</button><button name="answer" value="deny">Deny</button></form>"""
    return make_page("Allow access to your memory?", body)


async def take_answer(request: Request) -> Response:
    """Take the person's answer, and send the browser back to the client."""
    server = _get_server(request)
    form = await request.form()
    signed, proof, answer = (str(form.get(name, "")) for name in ("request", "proof", "answer"))
    asked = server.read_consent(signed)
    person = _get_person(request)
    if person is None or not hmac.compare_digest(server.make_proof(person, signed).encode(), proof.encode()):
        raise ForbiddenError("This answer does not belong to the question in this browser: start the login again.")
    if answer not in ("allow", "deny"):
        raise InvalidInputError("The answer is allow or deny.")
    address = await server.allow(person, asked) if answer == "allow" else server.deny(asked)
    return RedirectResponse(address, 302, NO_STORE)


def _offer_login(providers: LoginProviders, then: str) -> Response:
    addresses = {name: f"{AUTH_PATH}/{name}/login?next={quote(then, safe='')}" for name in providers.names}
    if len(addresses) == 1:
        return RedirectResponse(next(iter(addresses.values())), 302, NO_STORE)
    links = "".join(f'<p><a href="{escape(url)}">Log in with {escape(name)}</a></p>' for name, url in addresses.items())
    return make_page("Log in", links)


def _get_person(request: Request) -> Identity | None:
    """Return the person who is logged in with this browser."""
    identity = getattr(request.state, "user", None)
    if not isinstance(identity, Identity) or identity.role is Role.SERVICE:
        return None
    return identity if identity.method == "cookie" and identity.scopes >= ALL_SCOPES else None


def _get_server(request: Request) -> OAuthServer:
    _get_providers(request)
    return OAuthServer(request.app.state.authenticator, get_base_url(request.app.state.settings, request))


def _get_providers(request: Request) -> LoginProviders:
    providers: LoginProviders | None = request.app.state.login_providers
    if providers is None:
        raise NotFoundError("No login is configured here: use an API key.")
    return providers

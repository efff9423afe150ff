"""Log people in with Google, Microsoft or any other OpenID Connect provider."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from loguru import logger

from rem.context import parse_uuid
from rem.errors import ForbiddenError, LoginProviderError, NotFoundError, UnauthorizedError
from rem.settings import AuthSettings, MicrosoftSettings, OAuthClientSettings, get_domain

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

GOOGLE_METADATA = "https://accounts.google.com/.well-known/openid-configuration"
WELL_KNOWN = "/.well-known/openid-configuration"
SIGNATURE_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures that only the provider can make. Without this list, a provider's metadata could allow `none` or HS256."""
DIRECTORY_PLACEHOLDER = "{tenantid}"
"""Stands for the directory of the person in the issuer of Microsoft's logins for many directories."""
MICROSOFT_CONSUMERS = "9188040d-6c67-4c5b-b112-36a304b66dad"
"""The directory of personal Microsoft accounts. Microsoft itself verifies their e-mail addresses."""
TIMEOUT_SECONDS = 10.0
MAX_EMAIL_CHARS = 320
MAX_NAME_CHARS = 200


@dataclass(frozen=True, slots=True)
class VerifiedPerson:
    """A person, as the login provider knows them."""

    provider: str
    subject: str
    email: str
    name: str | None


class LoginProviders:
    """The providers in the settings."""

    def __init__(self, settings: AuthSettings) -> None:
        from authlib.integrations.starlette_client import OAuth

        self._settings = settings
        self._oauth = OAuth()
        self._names: list[str] = []
        microsoft = settings.microsoft
        self._register("google", settings.google, GOOGLE_METADATA)
        self._register("microsoft", microsoft, f"{microsoft.authority}/{microsoft.tenant}/v2.0{WELL_KNOWN}")
        self._register(settings.oidc.name, settings.oidc, f"{(settings.oidc.issuer or '').rstrip('/')}{WELL_KNOWN}")

    def _register(self, name: str, client: OAuthClientSettings, metadata_url: str) -> None:
        if not self._settings.enabled or client.client_id is None or client.client_secret is None:
            return
        self._names.append(name)
        self._oauth.register(
            name,
            client_id=client.client_id,
            client_secret=client.client_secret.get_secret_value(),
            server_metadata_url=metadata_url,
            client_kwargs={
                "scope": "openid email profile",
                "code_challenge_method": "S256",
                "timeout": TIMEOUT_SECONDS,
            },
        )

    @property
    def names(self) -> list[str]:
        """The names of the providers, which are in the paths of their logins."""
        return list(self._names)

    async def start(self, request: Request, name: str, callback_url: str) -> Response:
        """Return the redirect to the provider. State, nonce and the secret of PKCE are in `request.session`."""
        client = self._get(name)
        with _translate_errors(name):
            await _load_metadata(client)
            response: Response = await client.authorize_redirect(request, callback_url)
        return response

    async def finish(self, request: Request, name: str) -> VerifiedPerson:
        """Return who logged in, when the provider sends the browser back.

        Raise UnauthorizedError if the answer does not belong to a login that this browser started, or is not signed by
        the provider for us, and ForbiddenError if the e-mail address is not verified.
        """
        client = self._get(name)
        if request.query_params.get("error") == "access_denied":
            raise UnauthorizedError(f"The login with {name} was cancelled, or {name} refused it: start it again.")
        with _translate_errors(name):
            metadata = await _load_metadata(client)
            foreign = UnauthorizedError(f"The answer is not from the login provider {name}: start the login again.")
            named_issuer = request.query_params.get("iss")
            # Before the code is sent on: another provider must not let REM send it a code of this one, or the reverse.
            if named_issuer is not None and not _may_name(str(metadata.get("issuer")), named_issuer):
                raise foreign
            token = await client.authorize_access_token(request, claims_options=self._issuer_rule(name, metadata))
            claims = token.get("userinfo")
            if not claims:
                raise UnauthorizedError(f"The login provider {name} sent no ID token.")
            if named_issuer not in (None, claims.get("iss")):
                raise foreign
            if not claims.get("email") and metadata.get("userinfo_endpoint"):
                claims = await _add_user_info(client, token, claims)
        return self._to_person(name, claims)

    def _get(self, name: str) -> Any:
        if name not in self._names:
            raise NotFoundError(f"There is no login with {name!r}: /api/auth/providers lists all.")
        return self._oauth.create_client(name)

    def _issuer_rule(self, name: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Return the rule for the issuer of an ID token. Microsoft's has the directory of the person in it."""
        issuer = str(metadata.get("issuer") or "")
        if name == "microsoft":
            microsoft = self._settings.microsoft
            return {"iss": {"essential": True, "validate": partial(_is_microsoft_issuer, microsoft, issuer)}}
        return {"iss": {"essential": True, "values": [issuer]}}

    def _to_person(self, name: str, claims: Mapping[str, Any]) -> VerifiedPerson:
        given_email = claims.get("email")
        email = given_email.strip() if isinstance(given_email, str) else ""
        subject = str(claims.get("sub") or "")
        is_address = "@" in email and email.isprintable() and " " not in email and len(email) <= MAX_EMAIL_CHARS
        if not is_address or not subject or _has_other_forms(email):
            raise ForbiddenError(f"The account at {name} has no valid e-mail address, and REM needs one.")
        if not self._is_verified(name, claims):
            raise ForbiddenError(f"The e-mail address is not verified at {name}: verify it there, and log in again.")
        given = "".join(character for character in str(claims.get("name") or "") if character.isprintable()).strip()
        return VerifiedPerson(name, subject, email, given[:MAX_NAME_CHARS] or None)

    def _is_verified(self, name: str, claims: Mapping[str, Any]) -> bool:
        """Return True if the provider checked that the address belongs to the person.

        In a Microsoft directory its administrator may write any address into an account. So only one's own directory,
        personal accounts, and Microsoft's own word (xms_edov) count.
        """
        if name != "microsoft":
            return claims.get("email_verified") in (True, "true")
        is_vouched_for = claims.get("xms_edov") in (True, 1, "1", "true")
        return self._settings.microsoft.has_own_directory or is_vouched_for or claims.get("tid") == MICROSOFT_CONSUMERS


def choose_tenant(settings: AuthSettings, email: str) -> str:
    """Return the tenant of a new account. Raise ForbiddenError if the address may not log in."""
    if not settings.admits(email):
        raise ForbiddenError("Addresses of this domain may not log in here: ask the administrator of this server.")
    return settings.tenants_by_domain.get(get_domain(email), settings.tenant)


def _has_other_forms(email: str) -> bool:
    """Return whether an address has characters that stand for others.

    The user id is that of the address in lower case, and the Kelvin sign in lower case is a plain `k`: the owner of
    such an address would be taken for the owner of the plain one.
    """
    return unicodedata.normalize("NFKC", email) != email


async def _load_metadata(client: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = await client.load_server_metadata()
    offered = metadata.get("id_token_signing_alg_values_supported") or ["RS256"]
    metadata["id_token_signing_alg_values_supported"] = [name for name in offered if name in SIGNATURE_ALGORITHMS]
    return metadata


async def _add_user_info(client: Any, token: Any, claims: Mapping[str, Any]) -> dict[str, Any]:
    """Return the claims with those of the provider's user info, which some providers need for the address."""
    info = await client.userinfo(token=token)
    if info.get("sub") != claims.get("sub"):
        raise UnauthorizedError("The login provider gave information about another person.")
    return {**info, **{name: value for name, value in claims.items() if value is not None}}


def _is_microsoft_issuer(settings: MicrosoftSettings, issuer: str, claims: Mapping[str, Any], value: object) -> bool:
    """Return whether an ID token is of the directory that it names, and of the own one if the settings name one.

    `issuer` is that of the metadata. Only where many directories may log in, it may have a placeholder.
    """
    directory = str(claims.get("tid") or "")
    if not _is_directory_id(directory) or (_is_directory_id(settings.tenant) and directory != settings.tenant):
        return False
    named = issuer if settings.has_own_directory else issuer.replace(DIRECTORY_PLACEHOLDER, directory)
    return value == named == f"{settings.authority}/{directory}/v2.0"


def _is_directory_id(text: str) -> bool:
    parsed = parse_uuid(text)
    return parsed is not None and str(parsed) == text


def _may_name(issuer: str, named: str) -> bool:
    """Return whether an answer may name an issuer. Which directory it is, only the ID token says."""
    before, placeholder, after = issuer.partition(DIRECTORY_PLACEHOLDER)
    if not placeholder:
        return named == issuer
    directory = named.removeprefix(before).removesuffix(after)
    return _is_directory_id(directory) and named == f"{before}{directory}{after}"


class _translate_errors:  # noqa: N801  # reads as a statement
    """Turns errors of the login libraries into errors of REM. Their texts are for the log."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        import httpx2
        from authlib.common.errors import AuthlibBaseError
        from joserfc.errors import JoseError

        if isinstance(error, httpx2.HTTPError | OSError):
            logger.warning("The login provider {} does not answer: {}", self._name, type(error).__name__)
            raise LoginProviderError(f"The login provider {self._name} cannot be reached: try again later.") from error
        if isinstance(error, AuthlibBaseError | JoseError | ValueError | KeyError | RuntimeError | TypeError):
            logger.warning("A login with {} failed: {}", self._name, type(error).__name__)
            raise UnauthorizedError(
                f"The login with {self._name} failed, or was started in another browser: start it again."
            ) from error

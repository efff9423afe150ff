"""The groups AUTH, AUDIT, ENCRYPTION and PRIVACY: who may do what, what is logged, encrypted and not stored."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, TypeAlias
from uuid import UUID

from pydantic import Field, SecretStr, field_validator

from rem.settings.group import SettingsGroup

MIN_SECRET_CHARS = 32
MULTI_TENANT_NAMES = ("common", "organizations", "consumers")
"""What Microsoft's login calls the accounts of many directories."""
MAX_DOMAIN_CHARS = 253
_DOMAIN_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
PrivacyAction: TypeAlias = Literal["keep", "mask", "refuse"]


class OAuthClientSettings(SettingsGroup):
    """REM as a client of a login provider."""

    client_id: str | None = Field(
        default=None,
        min_length=1,
        description="Client id of REM at the provider. Without it, this login is off.",
    )
    client_secret: SecretStr | None = Field(default=None, description="Client secret of REM at the provider.")


class MicrosoftSettings(OAuthClientSettings):
    """Login with Microsoft."""

    tenant: str = Field(
        default="common",
        description=(
            "Directory whose accounts may log in: its id or domain; or `common`, `organizations` or `consumers`."
        ),
    )
    authority: str = Field(
        default="https://login.microsoftonline.com",
        pattern=r"^https?://[^\s/?#]+$",
        description="Address of Microsoft's login; national clouds have another.",
    )

    @property
    def has_own_directory(self) -> bool:
        """Return True if only the accounts of one directory may log in."""
        return self.tenant not in MULTI_TENANT_NAMES

    @field_validator("tenant")
    @classmethod
    def _check_tenant(cls, value: str) -> str:
        tenant = value.strip().lower()
        if tenant in MULTI_TENANT_NAMES or _is_uuid(tenant) or _is_domain(tenant):
            return tenant
        names = ", ".join(MULTI_TENANT_NAMES)
        raise ValueError(f"{value!r} is not a directory of Microsoft: write its id (a UUID), its domain, or {names}")

    @field_validator("authority")
    @classmethod
    def _lower_authority(cls, value: str) -> str:
        return value.lower()


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


def _is_domain(text: str) -> bool:
    labels = text.split(".")
    # An IP address is no domain.
    is_name = len(labels) > 1 and not labels[-1].isdigit()
    return is_name and len(text) <= MAX_DOMAIN_CHARS and all(map(_DOMAIN_LABEL.fullmatch, labels))


class OidcSettings(OAuthClientSettings):
    """Login with any other OpenID Connect provider."""

    issuer: str | None = Field(
        default=None,
        pattern=r"^https?://\S+$",
        description="Address of the provider; `/.well-known/openid-configuration` is below it.",
    )
    name: str = Field(
        default="oidc",
        pattern=r"^[a-z][a-z0-9-]{0,30}$",
        description="Name of the provider in the address of its login: `/api/auth/{name}/login`.",
    )


class AuthSettings(SettingsGroup):
    """Authentication ([guide](authentication.md))."""

    enabled: bool = Field(
        default=False,
        description="Callers must prove who they are. With `false`, REM trusts `X-User-Id` and `X-Tenant-Id`.",
    )
    allow_anonymous: bool | None = Field(
        default=None,
        description=(
            "Serve requests without a login; they read only what the tenant shares. Without a value: `true`, but "
            "`false` in production."
        ),
    )
    mcp_requires_auth: bool = Field(
        default=True, description="Refuse anonymous MCP requests even if others are served. Only with `AUTH__ENABLED`."
    )
    session_secret: SecretStr | None = Field(
        default=None,
        description=(
            f"Secret that signs cookies and tokens, at least {MIN_SECRET_CHARS} characters. Production needs it; "
            "elsewhere REM creates one in `REM_HOME`."
        ),
    )
    previous_secrets: list[SecretStr] = Field(
        default=[],
        description=(
            "Earlier values of `AUTH__SESSION_SECRET`, as a JSON list. What they signed stays valid until it expires."
        ),
    )
    public_url: str | None = Field(
        default=None,
        pattern=r"^https?://[^\s/?#]+$",
        description=(
            "Address under which people and MCP clients reach this server, such as `https://rem.example.com`. Without "
            "it, the address of each request."
        ),
    )
    tenant: str = Field(
        default="default",
        min_length=1,
        max_length=255,
        description="Tenant of those who log in and of anonymous callers.",
    )
    tenants_by_domain: dict[str, str] = Field(
        default={},
        description='Tenants by the domain of the e-mail address, as a JSON object: `{"acme.com": "acme"}`.',
    )
    allowed_domains: list[str] = Field(
        default=[],
        description=(
            "Domains of the e-mail addresses that may log in, as a JSON list. Without it, everyone with an account at "
            "a login provider."
        ),
    )
    admin_emails: list[str] = Field(
        default=[], description="E-mail addresses that get the role `admin` when they log in, as a JSON list."
    )
    access_token_minutes: int = Field(default=15, ge=1, le=1440, description="Lifetime of an access token.")
    refresh_token_days: int = Field(
        default=30, ge=1, le=365, description="Time without use after which a refresh token expires."
    )
    session_hours: int = Field(
        default=168, ge=1, le=8760, description="Time after which people must log in again in the browser."
    )
    google: OAuthClientSettings = OAuthClientSettings()
    microsoft: MicrosoftSettings = MicrosoftSettings()
    oidc: OidcSettings = OidcSettings()

    @property
    def has_login(self) -> bool:
        """Return True if people can log in with a provider."""
        return self.enabled and any(provider.client_id for provider in (self.google, self.microsoft, self.oidc))

    def admits(self, email: str) -> bool:
        """Return True if the owner of an e-mail address may log in."""
        domain = get_domain(email)
        is_listed = email.lower() in self.admin_emails or domain in self.tenants_by_domain
        return is_listed or not self.allowed_domains or domain in self.allowed_domains

    @field_validator("session_secret", "previous_secrets")
    @classmethod
    def _check_secrets(cls, value: SecretStr | list[SecretStr] | None) -> SecretStr | list[SecretStr] | None:
        for secret in value if isinstance(value, list) else [value] if value is not None else []:
            if len(secret.get_secret_value()) < MIN_SECRET_CHARS:
                raise ValueError(
                    f"a secret has at least {MIN_SECRET_CHARS} characters; `openssl rand -hex 32` prints one"
                )
        return value

    @field_validator("allowed_domains", "admin_emails")
    @classmethod
    def _lower_all(cls, value: list[str]) -> list[str]:
        return [item.strip().lower() for item in value]

    @field_validator("tenants_by_domain")
    @classmethod
    def _lower_domains(cls, value: dict[str, str]) -> dict[str, str]:
        return {domain.strip().lower(): tenant for domain, tenant in value.items()}


def get_domain(email: str) -> str:
    """Return the domain of an e-mail address in lower case."""
    return email.rpartition("@")[2].lower()


class AuditSettings(SettingsGroup):
    """The audit log ([guide](administration.md))."""

    enabled: bool | None = Field(
        default=None, description="Log who read, wrote and deleted what. Without a value: as `AUTH__ENABLED`."
    )
    retention_days: int | None = Field(
        default=365, ge=1, le=36_500, description="Age at which entries are deleted; `null` in the YAML file: never."
    )


class EncryptionSettings(SettingsGroup):
    """Encryption of stored texts ([guide](encryption.md))."""

    enabled: bool = Field(default=False, description="Encrypt the texts that are stored from now on.")
    keys: SecretStr | None = Field(
        default=None,
        description=(
            "Keys as `id:key`, separated by commas; a key is 32 random bytes in base64. The first one encrypts, the "
            "others only decrypt."
        ),
    )
    keys_file: Path | None = Field(default=None, description="File with such keys, one on each line.")


class PrivacySettings(SettingsGroup):
    """Secrets and personal data in texts that are stored ([guide](privacy.md))."""

    credentials: PrivacyAction = Field(
        default="mask",
        description=(
            "API keys, tokens, private keys and passwords in URLs: `keep`, `mask` or `refuse`. They are known by their "
            "format."
        ),
    )
    card_numbers: PrivacyAction = Field(
        default="mask", description="Numbers of payment cards, checked by their last digit: `keep`, `mask` or `refuse`."
    )
    emails: PrivacyAction = Field(
        default="keep", description="E-mail addresses in texts: `keep`, `mask` or `refuse`. Names and keys keep them."
    )
    phones: PrivacyAction = Field(
        default="keep", description="Phone numbers in texts: `keep`, `mask` or `refuse`. Names and keys keep them."
    )

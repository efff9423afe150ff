"""`rem keys`: create, list and revoke API keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from rem.cli.runtime import JsonOption, UserOption, run_with_rem
from rem.cli.terminal_text import echo

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from rem.app import Rem
    from rem.auth.api_keys import ApiKey

RoleName: TypeAlias = Literal["admin", "user", "service"]
TierName: TypeAlias = Literal["free", "basic", "pro"]

app = typer.Typer(help="Create, list and revoke API keys.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="What the key is for, such as the name of a program.")],
    user: UserOption = None,
    tenant: Annotated[str, typer.Option("--tenant", help="The tenant.")] = "default",
    role: Annotated[
        RoleName | None,
        typer.Option(
            help="The role. A service acts for the users that X-User-Id names. Default: that of the user's account."
        ),
    ] = None,
    tier: Annotated[TierName | None, typer.Option(help="The tier. Default: that of the user's account.")] = None,
    scopes: Annotated[
        str,
        typer.Option(
            help="What the key may do, separated by commas: read; write, which is all of the user's memory; chat, "
            "which is only to talk with agents; admin, which is what the role admin may."
        ),
    ] = "read,write,chat",
    expires: Annotated[str, typer.Option(metavar="SPAN", help="When the key expires: 90d, 12h, 1y, or never.")] = "90d",
    all_tenants: Annotated[
        bool, typer.Option("--all-tenants", help="A service may name any tenant in X-Tenant-Id, instead of one.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Create an API key and print it. It is stored as a hash, so this is the only time that it is shown."""
    from rem.auth.api_keys import ApiKeys
    from rem.auth.headers import ANY_TENANT
    from rem.auth.identity import Role, Tier
    from rem.cli.output import print_json
    from rem.cli.runtime import print_to_stderr

    expires_at = _parse_expiry(expires)

    async def work(rem: Rem) -> tuple[str, ApiKey]:
        return await ApiKeys(rem.database).create(
            name,
            user,
            ANY_TENANT if all_tenants else tenant,
            role=None if role is None else Role(role),
            tier=None if tier is None else Tier(tier),
            scopes=scopes.split(","),
            expires_at=expires_at,
        )

    key, info = run_with_rem(work)
    if as_json:
        print_json({"key": key, **_to_dict(info)})
        return
    echo(key)
    print_to_stderr(f"Keep it: it cannot be shown again. To revoke it: rem keys revoke {info.prefix}")


@app.command("list")
def list_keys(
    user: UserOption = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only keys of this tenant.")] = None,
    all_users: Annotated[bool, typer.Option("--all", help="The keys of all users, although REM_USER is set.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List API keys, newest first: of --user, or of all users. The keys themselves are not stored."""
    from rem.auth.api_keys import ApiKeys
    from rem.cli.output import print_json, print_table

    async def work(rem: Rem) -> Sequence[ApiKey]:
        return await ApiKeys(rem.database).list(None if all_users else user, tenant)

    keys = run_with_rem(work)
    if as_json:
        print_json([_to_dict(key) for key in keys])
    elif keys:
        columns = ["prefix", "name", "user", "tenant", "role", "scopes", "expires", "last used", "state"]
        print_table(columns, [_to_row(key) for key in keys])
    else:
        echo("There are no API keys.")


@app.command()
def revoke(
    keys: Annotated[list[str], typer.Argument(help="The prefixes or ids of the keys, from `rem keys list`.")],
    as_json: JsonOption = False,
) -> None:
    """Revoke API keys. Running servers refuse them after 5 seconds at the latest."""
    from rem.auth.api_keys import ApiKeys
    from rem.cli.output import print_json

    async def work(rem: Rem) -> list[ApiKey]:
        return [await ApiKeys(rem.database).revoke(key) for key in keys]

    revoked = run_with_rem(work)
    if as_json:
        print_json([_to_dict(key) for key in revoked])
        return
    for key in revoked:
        echo(f"{key.prefix} ({key.name}) is revoked.")


def _parse_expiry(text: str) -> datetime | None:
    from datetime import UTC, datetime

    from rem.forget.expiry import parse_duration

    return None if text.strip().lower() == "never" else datetime.now(UTC) + parse_duration(text)


def _to_dict(key: ApiKey) -> dict[str, Any]:
    names = ("id", "prefix", "name", "user_id", "email", "tenant_id", "role", "tier", "scopes")
    times = ("created_at", "expires_at", "last_used_at", "revoked_at")
    return {name: getattr(key, name) for name in (*names, *times)}


def _to_row(key: ApiKey) -> list[str]:
    from datetime import UTC, datetime

    is_expired = key.expires_at is not None and key.expires_at <= datetime.now(UTC)
    state = "revoked" if key.revoked_at else "expired" if is_expired else "valid"
    times = [_format(key.expires_at, "never"), _format(key.last_used_at, "never")]
    owner = key.email or key.user_id or "-"
    return [key.prefix, key.name, owner, key.tenant_id, key.role or "-", " ".join(key.scopes), *times, state]


def _format(time: datetime | None, otherwise: str) -> str:
    return otherwise if time is None else time.strftime("%Y-%m-%d %H:%M")

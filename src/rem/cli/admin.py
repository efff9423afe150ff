"""`rem admin`: the users, sessions and statistics of a tenant."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from rem.cli.runtime import JsonOption, TenantOption, audited, run_with_rem
from rem.cli.terminal_text import echo

if TYPE_CHECKING:
    from rem.administration import SessionSummary, TenantStatistics, UserSummary
    from rem.app import Rem

RoleName: TypeAlias = Literal["admin", "user", "service"]
TierName: TypeAlias = Literal["free", "basic", "pro"]
LimitOption = Annotated[int, typer.Option(min=1, max=100_000, help="The maximum number of lines.")]
OffsetOption = Annotated[int, typer.Option(min=0, help="The number of lines to skip.")]

app = typer.Typer(help="Manage the users of a tenant.", no_args_is_help=True, rich_markup_mode=None)


@app.command("users")
def list_users(
    limit: LimitOption = 100, offset: OffsetOption = 0, tenant: TenantOption = "default", as_json: JsonOption = False
) -> None:
    """List the users of a tenant.

    These are the users with an account, and those who only own rows.
    """
    from rem.administration import Administration
    from rem.cli.output import print_json, print_table

    async def work(rem: Rem) -> list[UserSummary]:
        return await Administration(rem.database, tenant, rem.settings.auth).list_users(limit, offset)

    users = run_with_rem(work)
    if as_json:
        print_json(users)
    elif users:
        columns = ["user", "role", "tier", "sessions", "messages", "last active", "state", "id"]
        print_table(columns, [_to_line(user) for user in users])
    else:
        echo(f"The tenant {tenant} has no users.")


@app.command("set-user")
def set_user(
    user: Annotated[str, typer.Argument(metavar="USER", help="The user's e-mail address or id.")],
    role: Annotated[RoleName | None, typer.Option(help="The role.")] = None,
    tier: Annotated[TierName | None, typer.Option(help="The tier, which decides the rate limit.")] = None,
    disabled: Annotated[
        bool | None, typer.Option("--disable/--enable", help="Refuse all logins and keys of the user, or allow them.")
    ] = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Set the role and tier of a user. An e-mail address without an account gets one."""
    from rem.administration import Administration
    from rem.auth.identity import Role, Tier
    from rem.cli.output import print_json

    async def work(rem: Rem) -> UserSummary:
        changed = await Administration(rem.database, tenant, rem.settings.auth).set_user(
            user,
            create=True,
            role=None if role is None else Role(role),
            tier=None if tier is None else Tier(tier),
            disabled=disabled,
        )
        entry.subject = changed.user_id
        await rem.audit_log.record(entry)
        return changed

    with audited("admin set-user", tenant, "admin") as entry:
        changed = run_with_rem(work)
    if as_json:
        print_json(changed)
        return
    state = "" if changed.disabled_at is None else ", disabled"
    echo(f"{changed.email or changed.user_id}: role {changed.role}, tier {changed.tier}{state}")


@app.command("sessions")
def list_sessions(
    user: Annotated[str | None, typer.Option("--user", "-u", help="Only sessions of this user.")] = None,
    limit: LimitOption = 100,
    offset: OffsetOption = 0,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """List the sessions of a tenant, without names and content.

    The most recently used sessions come first.
    """
    from rem.administration import Administration
    from rem.cli.output import print_json, print_table

    async def work(rem: Rem) -> list[SessionSummary]:
        return await Administration(rem.database, tenant, rem.settings.auth).list_sessions(user, limit, offset)

    sessions = run_with_rem(work)
    if as_json:
        print_json(sessions)
    elif sessions:
        lines = [
            (
                str(row.id),
                row.user_id,
                row.message_count,
                row.total_tokens,
                row.readers,
                f"{row.updated_at:%Y-%m-%d %H:%M}",
            )
            for row in sessions
        ]
        print_table(["session", "owner", "messages", "tokens", "readers", "last used"], lines)
    else:
        echo("There are no such sessions.")


@app.command("stats")
def show_statistics(tenant: TenantOption = "default", as_json: JsonOption = False) -> None:
    """Count the rows of a tenant, and the requests of the last day."""
    from rem.administration import Administration
    from rem.cli.output import print_json, print_table

    async def work(rem: Rem) -> TenantStatistics:
        return await Administration(rem.database, tenant, rem.settings.auth).statistics()

    statistics = run_with_rem(work)
    if as_json:
        print_json(asdict(statistics))
        return
    echo(
        f"{statistics.accounts} accounts ({statistics.disabled_accounts} disabled), {statistics.active_users} active "
        f"users in 30 days, {statistics.tokens} tokens in messages"
    )
    rows = [(name, count.live, count.deleted, count.shared) for name, count in sorted(statistics.tables.items())]
    print_table(["table", "rows", "deleted", "shared"], rows)
    if statistics.actions:
        print_table(["action in the last day", "entries"], sorted(statistics.actions.items()))


def _to_line(user: UserSummary) -> tuple[str | int, ...]:
    return (
        user.email or "",
        user.role or "(no account)",
        user.tier or "",
        user.sessions,
        user.messages,
        "" if user.last_active_at is None else f"{user.last_active_at:%Y-%m-%d %H:%M}",
        "" if user.disabled_at is None else "disabled",
        user.user_id,
    )

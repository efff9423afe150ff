"""Shared by all commands: common options, the event loop, an open REM, messages on standard error, logging."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from rem.cli.terminal_text import echo, escape_control_characters

if TYPE_CHECKING:
    from rem.app import Rem
    from rem.audit.entry import AuditEntry
    from rem.settings import Settings

R = TypeVar("R")

SHARED = "-"
"""The value of --user for the rows that the tenant shares, if there is a default user."""
NO_USER_HINT = (
    "No user is set, so only this session finds what you say here. To find it from everywhere, add "
    "--user you@example.com, or once for all commands: rem config set user you@example.com"
)
"""What somebody is told who says something without a user."""


def resolve_user(context: typer.Context, user: str | None) -> str | None:
    """Return the user that --user names, or else the default user (REM_USER); None for the shared rows."""
    if context.resilient_parsing or user is not None:
        return None if user == SHARED else user
    return get_default_user()


def get_default_user() -> str | None:
    """Return the user of commands without --user, from REM_USER or the configuration file."""
    from rem.settings import get_settings

    return get_settings().rem_user


def load_settings() -> Settings:
    """Return the settings of a command. Unlike a server, it uses the time zone of the machine by default."""
    from rem.settings import LOCAL_ZONE, describe_ignored_files, get_settings

    for warning in describe_ignored_files():
        print_to_stderr(warning)
    settings = get_settings()
    return settings if settings.rem_time_zone else settings.model_copy(update={"rem_time_zone": LOCAL_ZONE})


def require_user(user: str | None) -> str:
    """Return the user. Raise InvalidInputError that says how to name one if there is none."""
    from rem.errors import InvalidInputError

    if user is None:
        raise InvalidInputError(
            "This needs a user: add --user you@example.com, or say once who you are with `rem config set user "
            "you@example.com` (or the variable REM_USER)."
        )
    return user


UserOption = Annotated[
    str | None,
    typer.Option(
        "--user",
        "-u",
        callback=resolve_user,
        help="The owner of the memory: an e-mail address, or the owner's id (not the id of a row in users). "
        "Default: REM_USER, or else the rows that the tenant shares with all its users. If REM_USER is set, --user - "
        "chooses these shared rows.",
    ),
]
TenantOption = Annotated[str, typer.Option("--tenant", help="The tenant.")]
UrlOption = Annotated[
    str | None, typer.Option("--url", envvar="REM_URL", help="A REM server. Default: the memory of this machine.")
]
ApiKeyOption = Annotated[
    str | None, typer.Option("--api-key", envvar="REM_API_KEY", help="The API key for the server.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
ExpireInOption = Annotated[
    str | None, typer.Option("--in", metavar="SPAN", help="Expire after this time: 30d, 12h, 2w.")
]
ExpireAtOption = Annotated[
    str | None,
    typer.Option(
        "--at", metavar="TIME", help="Expire at this time: 2026-12-01, 2026-12-01T18:00 (in the zone REM_TIME_ZONE)."
    ),
]
ExpireNeverOption = Annotated[bool, typer.Option("--never", help="Never expire.")]


def run_async(work: Callable[[], Awaitable[R]]) -> R:
    """Run the coroutine of a command, and return its result."""

    async def main() -> R:
        return await work()

    return asyncio.run(main())


def run_with_rem(work: Callable[[Rem], Awaitable[R]]) -> R:
    """Open REM, run the coroutine of a command with it, close it, and return the result."""

    async def main() -> R:
        from loguru import logger

        from rem.app import Rem

        async with Rem.open(load_settings(), on_progress=print_to_stderr) as rem:
            logger.debug("Opened {}, PostgreSQL {}", rem.database.describe_address(), rem.database.server_info.version)
            return await work(rem)

    return asyncio.run(main())


@contextmanager
def audited(command: str, tenant: str, action: str = "delete") -> Iterator[AuditEntry]:
    """Make an entry of the audit log for a command of the person at this machine, for the calls in the block."""
    import getpass
    import os

    from rem.audit.entry import Action, AuditEntry, audit_scope

    try:
        account = getpass.getuser()
    except (KeyError, OSError):
        # A container may run as a number without a name.
        account = str(os.getuid())
    with audit_scope(AuditEntry(Action(action), f"rem {command}", tenant, account, via="cli")) as entry:
        yield entry


def print_to_stderr(message: str) -> None:
    """Print a message for people on standard error, because standard output is for data."""
    echo(message, err=True)


def confirm(question: str) -> None:
    """Ask a yes/no question on standard error. Raise typer.Abort unless the answer is yes."""
    try:
        is_confirmed = typer.confirm(escape_control_characters(question), err=True)
    except typer.Abort:
        # Without an answer, the line of the question has no end yet.
        print_to_stderr("")
        raise
    if not is_confirmed:
        raise typer.Abort


def choose_numbers(question: str, count: int) -> list[int] | None:
    """Ask which items of a numbered list are meant. Return their numbers, or None for all of them.

    Raise typer.Abort unless the answer is yes or numbers of the list. Another answer is asked for again.
    """
    from rem.errors import InvalidInputError

    while True:
        try:
            answer = typer.prompt(
                f"{question} [y/N, or numbers such as 1 3]", default="n", show_default=False, err=True
            )
        except typer.Abort:
            print_to_stderr("")
            raise
        try:
            return parse_numbers(answer, count)
        except InvalidInputError as error:
            print_to_stderr(str(error))


def parse_numbers(answer: str, count: int) -> list[int] | None:
    """Return the numbers in an answer to a numbered list; None for yes. Raise typer.Abort for no."""
    from rem.errors import InvalidInputError

    words = answer.lower().replace(",", " ").split()
    if words in (["y"], ["yes"], ["all"]):
        return None
    if words in ([], ["n"], ["no"], ["none"]):
        raise typer.Abort
    if not all(word.isdecimal() and 1 <= int(word) <= count for word in words):
        raise InvalidInputError(f"Answer y for all, n for none, or numbers from 1 to {count}.")
    return sorted({int(word) for word in words})


def set_up_logging(verbose: bool) -> None:
    """Log to standard error, without the values of variables in tracebacks."""
    from loguru import logger

    from rem.log_scrubber import scrub_record

    logger.remove()
    logger.configure(patcher=scrub_record)
    # A failed answer is an error of the command as well, which prints it with its reason.
    levels: dict[str | None, str | int | bool] = (
        {"": "DEBUG"} if verbose else {"": "WARNING", "rem.agents.answer_stream": "ERROR"}
    )
    logger.add(sys.stderr, level=0, filter=levels, diagnose=False, format="{level}: {message}")

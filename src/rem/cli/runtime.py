"""What every command needs: the event loop, an open REM, errors as one clear paragraph and an exit code."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

if TYPE_CHECKING:
    from rem.app import Rem

R = TypeVar("R")

UserOption = Annotated[
    str | None,
    typer.Option(
        "--user",
        "-u",
        help="Whose memory: an e-mail address, which stands for its UUID5, or any other text, which is the owner's id "
        "itself (not that of a row in users). Without it: what the tenant shares.",
    ),
]
TenantOption = Annotated[str, typer.Option("--tenant", help="The workspace.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
ExpireInOption = Annotated[str | None, typer.Option("--in", metavar="SPAN", help="Lapse after so long: 30d, 12h, 2w.")]
ExpireAtOption = Annotated[
    str | None, typer.Option("--at", metavar="TIME", help="Lapse then: 2026-12-01, 2026-12-01T18:00 (UTC).")
]
ExpireNeverOption = Annotated[bool, typer.Option("--never", help="Do not lapse any more.")]


def run_async(work: Callable[[], Awaitable[R]]) -> R:
    """Run a command's coroutine."""

    async def main() -> R:
        return await work()

    return asyncio.run(main())


def run_with_rem(work: Callable[[Rem], Awaitable[R]]) -> R:
    """Open REM, run a command's coroutine on it, close it."""

    async def main() -> R:
        from loguru import logger

        from rem.app import Rem

        async with Rem.open(on_progress=print_to_stderr) as rem:
            logger.debug("Opened {}, PostgreSQL {}", rem.database.describe_address(), rem.database.server_info.version)
            return await work(rem)

    return asyncio.run(main())


def print_to_stderr(message: str) -> None:
    """Say what is going on, beside the data: on standard error."""
    typer.echo(message, err=True)


def confirm(question: str) -> None:
    """Ask on standard error, and go no further without a yes."""
    try:
        is_meant = typer.confirm(question, err=True)
    except typer.Abort:
        # Nobody answered, so nobody ended the line of the question.
        print_to_stderr("")
        raise
    if not is_meant:
        raise typer.Abort


def set_up_logging(verbose: bool) -> None:
    """Logs go to standard error; variables in tracebacks stay out of them."""
    from loguru import logger

    logger.remove()
    logger.add(sys.stderr, level="DEBUG" if verbose else "WARNING", diagnose=False, format="{level}: {message}")

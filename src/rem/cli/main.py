"""The `rem` command: all sub-commands, standard streams and errors.

Only modules that `--help` needs are imported here; each command imports the rest when it runs.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.main import get_command

from rem.cli import (
    admin,
    agents,
    approvals,
    ask,
    audit,
    config,
    db,
    delete,
    demo,
    doctor,
    dreaming,
    encryption,
    forget,
    ingest,
    jobs,
    keys,
    lookup,
    mcp,
    models,
    query,
    remember,
    serve,
    sessions,
    worker,
)
from rem.cli import eval as evaluation
from rem.cli.chat import command as chat
from rem.cli.terminal_text import echo
from rem.errors import RemError

app = typer.Typer(
    name="rem",
    help="REM: a memory for AI agents. It stores documents, knowledge and events under human-readable keys.\n\n"
    "Set REM_USER to your e-mail address, and you can leave --user out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("query")(query.query)
app.command("ask")(ask.ask)
app.command("chat")(chat.chat)
app.command("lookup")(lookup.lookup)
app.command("remember")(remember.remember)
app.command("correct")(remember.correct)
app.command("delete")(delete.delete)
app.command("restore")(delete.restore)
app.command("expire")(forget.expire)
app.command("forget")(forget.forget)
app.command("erase-user")(forget.erase_user)
app.command("sweep")(forget.sweep)
app.command("parse")(query.parse)
app.command("serve")(serve.serve)
app.command("worker")(worker.worker)
app.command("demo")(demo.demo)
app.command("doctor")(doctor.doctor)
app.add_typer(ingest.app, name="ingest")
app.add_typer(config.app, name="config")
app.add_typer(db.app, name="db")
app.add_typer(agents.app, name="agents")
app.add_typer(models.app, name="models")
app.add_typer(evaluation.app, name="eval")
app.add_typer(sessions.app, name="sessions")
app.add_typer(approvals.app, name="approvals")
app.add_typer(dreaming.app, name="dreaming")
app.add_typer(mcp.app, name="mcp")
app.add_typer(jobs.app, name="jobs")
app.add_typer(keys.app, name="keys")
app.add_typer(admin.app, name="admin")
app.add_typer(audit.app, name="audit")
app.add_typer(encryption.app, name="encryption")


@app.callback(invoke_without_command=True)
def options(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more, on standard error.")] = False,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="The YAML file with settings. Default: REM_CONFIG."),
    ] = None,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Handle the options of all commands."""
    if version:
        from importlib.metadata import version as installed_version

        echo(installed_version("remstack"))
        raise typer.Exit
    from rem.cli.runtime import set_up_logging

    set_up_logging(verbose)
    if config is not None:
        # In the environment, because server processes read the settings again.
        os.environ["REM_CONFIG"] = str(config)


@cache
def build_command() -> Callable[..., Any]:
    """Return the command with all its sub-commands. Building it takes longer than most commands, so do it once."""
    return get_command(app)


def run() -> None:
    """Run the console script. Print errors of REM as one paragraph, without a traceback, and exit with their code."""
    set_up_streams()
    try:
        build_command()()
    except RemError as error:
        echo(f"Error: {error}", err=True)
        sys.exit(error.exit_code)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        discard_output()
        echo(f"Error: the output cannot be written: {error.strerror}.", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        echo("Interrupted.", err=True)
        sys.exit(130)


def set_up_streams() -> None:
    """Write UTF-8 in every locale, because memories hold every script. Discard the output if it is closed (`>&-`)."""
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def discard_output() -> None:
    """Discard buffered output that could not be written. Otherwise the interpreter would fail on it again at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)

"""`rem sessions`: list, read, search, export, import, rename, expire and delete sessions."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from rem.cli.runtime import (
    ExpireAtOption,
    ExpireInOption,
    ExpireNeverOption,
    JsonOption,
    TenantOption,
    UserOption,
    YesOption,
    audited,
    confirm,
    load_settings,
    print_to_stderr,
    require_user,
    run_with_rem,
)
from rem.cli.terminal_text import echo

if TYPE_CHECKING:
    from rem.app import Rem
    from rem.models import Message, Session
    from rem.sessions.export_import import ImportReport
    from rem.sessions.manager import MemoryManager

app = typer.Typer(help="List, read, search, export, import and delete sessions.", no_args_is_help=True)

SessionArgument = Annotated[str, typer.Argument(metavar="SESSION", help="The id or the name of a session.")]
MAX_PRINTED_NOTES = 10
MAX_PRINTED_CHARS = 200
TITLE_INDENT = "    "
SESSION_COLUMNS_WIDTH = 66
"""Width of a line of `rem sessions list` without the title."""


@app.command("list")
def list_sessions(
    limit: Annotated[int, typer.Option(help="The maximum number of sessions.")] = 20,
    offset: Annotated[int, typer.Option(help="The number of sessions to skip.")] = 0,
    shared: Annotated[
        bool, typer.Option("--shared", help="List the sessions that others share with the user.")
    ] = False,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """List the user's sessions, most recently used first."""
    from rem.cli.output import get_output_width, print_json, shorten

    async def work(rem: Rem) -> tuple[list[Session], dict[UUID, str]]:
        memory = _open_memory(rem, user, tenant)
        sessions = await (memory.list_shared_sessions if shared else memory.list_sessions)(limit, offset)
        return sessions, await memory.get_titles([session.id for session in sessions])

    sessions, titles = run_with_rem(work)
    if as_json:
        print_json([{**session.model_dump(mode="json"), "title": titles.get(session.id)} for session in sessions])
    elif not sessions:
        print_to_stderr("There are no sessions.")
    else:
        # Not a table: that would wrap the ids, and users copy them.
        echo(f"{'session':<36}  {'last written':<16}  messages  about")
        width = get_output_width() or shutil.get_terminal_size().columns
        max_chars = min(MAX_PRINTED_CHARS, width - len(TITLE_INDENT))
        for session in sessions:
            title = titles.get(session.id) or session.name or ""
            line = f"{session.id}  {session.updated_at:%Y-%m-%d %H:%M}  {session.message_count:>8}"
            is_short = len(title) <= width - SESSION_COLUMNS_WIDTH
            echo(f"{line}  {title}" if is_short else f"{line}\n{TITLE_INDENT}{shorten(title, max_chars)}")


@app.command()
def show(
    session: SessionArgument, user: UserOption = None, tenant: TenantOption = "default", as_json: JsonOption = False
) -> None:
    """Show a session with all its messages, word for word."""
    from rem.cli.output import print_json

    async def work(rem: Rem) -> tuple[Session, list[Message]]:
        memory = _open_memory(rem, user, tenant)
        with _name_in_errors(session):
            session_id = await memory.resolve_session_id(session)
            return await memory.get_session(session_id), await memory.load_session(session_id, create_session=False)

    row, messages = run_with_rem(work)
    if as_json:
        print_json(
            {**row.model_dump(mode="json"), "messages": [message.model_dump(mode="json") for message in messages]}
        )
        return
    created_at = row.created_at.astimezone(load_settings().time_zone)
    echo(f"{row.name or row.id}, {created_at:%Y-%m-%d %H:%M} ({created_at.tzname()})")
    if row.system_prompt is not None:
        echo(f"System prompt: {row.system_prompt}")
    for message in messages:
        said_at = message.created_at.astimezone(created_at.tzinfo)
        echo(f"\n[{message.message_index}] {_speaker(message)}, {said_at:%H:%M:%S}")
        echo(message.content or _describe_call(message))


@app.command("export")
def export_sessions(
    sessions: Annotated[
        list[str] | None, typer.Argument(metavar="SESSION", help="Ids or names of sessions. Default: all.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file. Default: standard output.")] = None,
    user: UserOption = None,
    tenant: TenantOption = "default",
) -> None:
    """Write sessions as JSON lines for `rem sessions import`."""
    from rem.cli.output import format_count, progress_bar

    async def work(rem: Rem) -> int:
        from rem.sessions.export_import import export_sessions as write_sessions

        memory = _open_memory(rem, user, tenant)
        session_ids = [await _require_session_id(memory, name) for name in sessions] if sessions else None
        with progress_bar("Exporting") as on_rows, _open_output(output) as stream:
            return await write_sessions(memory, stream, session_ids, on_rows)

    print_to_stderr(f"Exported {format_count(run_with_rem(work), 'session')}.")


@app.command("import")
def import_sessions(
    path: Annotated[
        Path, typer.Argument(metavar="FILE", help="JSON lines from `rem sessions export`, or an SQLite memory.")
    ],
    skip_broken: Annotated[
        bool, typer.Option("--skip-broken", help="SQLite: skip unreadable rows instead of their whole session.")
    ] = False,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Import sessions into the user's memory.

    Each session is imported completely or not at all. Importing it again changes nothing.
    """
    from rem.cli.indexing import index_new_rows
    from rem.cli.output import print_json, progress_bar

    async def work(rem: Rem) -> ImportReport:
        memory = _open_memory(rem, user, tenant)
        with progress_bar("Importing") as on_rows:
            report = await _import_file(memory, path, on_rows, skip_broken)
        await index_new_rows(rem, user=user, tenant=tenant)
        return report

    report = run_with_rem(work)
    if as_json:
        print_json({"counts": report.counts, "messages": report.messages, "sessions": report.sessions})
    else:
        _print_import_report(report)
    if report.counts["failed"]:
        raise typer.Exit(1)


@app.command()
def delete(
    sessions: Annotated[list[str], typer.Argument(metavar="SESSION", help="Ids or names of sessions.")],
    erase: Annotated[
        bool, typer.Option("--erase", help="Erase them for good. Without it, they can be restored.")
    ] = False,
    yes: YesOption = False,
    user: UserOption = None,
    tenant: TenantOption = "default",
) -> None:
    """Delete sessions with their messages."""
    from rem.cli.output import format_command

    async def work(rem: Rem) -> list[UUID]:
        memory = _open_memory(rem, user, tenant)
        session_ids = [await memory.resolve_session_id(name) for name in sessions]
        if erase and not yes:
            confirm(f"Erase {', '.join(sessions)} for good?")
        for name, session_id in zip(sessions, session_ids, strict=True):
            with _name_in_errors(name):
                await memory.delete_session(session_id, erase=erase)
            entry.add_target("sessions", session_id)
        await rem.audit_log.record(entry)
        return session_ids

    with audited("sessions delete", tenant) as entry:
        deleted = run_with_rem(work)
    for session_id in deleted:
        restore_command = format_command("restore", "sessions", str(session_id), user=user, tenant=tenant)
        echo(f"Erased {session_id}." if erase else f"Deleted {session_id}; `{restore_command}` restores it.")


@app.command()
def prune(
    days: Annotated[int, typer.Option(help="Sessions that were not used for this many days.")] = 30,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be deleted.")] = False,
    yes: YesOption = False,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Delete the user's old sessions and what dreams derived from them. They can be restored."""
    from rem.cli.output import print_json
    from rem.sessions.prune import list_idle_sessions

    async def work(rem: Rem) -> int | list[Session]:
        memory = _open_memory(rem, user, tenant)
        if dry_run:
            return await list_idle_sessions(memory, days)
        if not yes:
            _print_idle(await list_idle_sessions(memory, days), err=True)
            confirm(f"Delete all sessions that are idle for more than {days} days?")
        return await memory.prune_old_sessions(days)

    result = run_with_rem(work)
    if isinstance(result, int):
        _print_pruned(result, as_json)
    elif as_json:
        print_json({"would_delete": [session.model_dump(mode="json") for session in result]})
    else:
        _print_idle(result)


@app.command("expire")
def expire_session(
    session: SessionArgument,
    within: ExpireInOption = None,
    at: ExpireAtOption = None,
    never: ExpireNeverOption = False,
    user: UserOption = None,
    tenant: TenantOption = "default",
) -> None:
    """Set when a session and all its messages expire."""
    from rem.cli.forget import format_expiry
    from rem.forget.expiry import expire, parse_expiry

    expires_at = parse_expiry(within, at, never, now=load_settings().now())

    async def work(rem: Rem) -> UUID:
        memory = _open_memory(rem, user, tenant)
        with _name_in_errors(session):
            row = await memory.get_session(await memory.resolve_session_id(session))
        await expire(memory.store, [row], expires_at)
        return row.id

    echo(f"{run_with_rem(work)} {format_expiry(expires_at)}.")


@app.command()
def clear(
    session: SessionArgument, yes: YesOption = False, user: UserOption = None, tenant: TenantOption = "default"
) -> None:
    """Delete the messages of a session, and keep the session."""
    from rem.cli.output import format_count

    async def work(rem: Rem) -> int:
        memory = _open_memory(rem, user, tenant)
        session_id = await memory.resolve_session_id(session)
        if not yes:
            confirm(f"Delete all messages of {session}?")
        with _name_in_errors(session):
            return await memory.clear_session(session_id)

    echo(f"Deleted {format_count(run_with_rem(work), 'message')}.")


@app.command()
def rename(
    session: SessionArgument,
    name: Annotated[str, typer.Argument(help="The new name. It must be unique among the user's sessions.")],
    user: UserOption = None,
    tenant: TenantOption = "default",
) -> None:
    """Rename a session."""

    async def work(rem: Rem) -> Session:
        memory = _open_memory(rem, user, tenant)
        with _name_in_errors(session):
            return await memory.rename_session(await memory.resolve_session_id(session), name)

    renamed = run_with_rem(work)
    echo(f"{renamed.id} is called {renamed.name} (key {renamed.key}).")


@app.command()
def prompt(
    session: SessionArgument,
    text: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="The new system prompt; - reads it from standard input.")
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the system prompt.")] = False,
    user: UserOption = None,
    tenant: TenantOption = "default",
) -> None:
    """Show or set the instructions of a session.

    If TEXT is given and the session does not exist, it is created.
    """
    from rem.context import parse_uuid
    from rem.errors import InvalidInputError, NotFoundError

    if remove and text is not None:
        raise InvalidInputError("Give a text or --remove, not both.")
    new_prompt = sys.stdin.read() if text == "-" else text

    async def work(rem: Rem) -> Session:
        memory = _open_memory(rem, user, tenant)
        session_id = await memory.resolve_session_id(session)
        try:
            if new_prompt is None and not remove:
                return await memory.get_session(session_id)
            return await memory.set_system_prompt(session_id, new_prompt)
        except NotFoundError as error:
            if new_prompt is None:
                raise NotFoundError(f"There is no session {session} of this user.") from error
        name = None if parse_uuid(session) else session
        return await memory.create_session(new_prompt, session_id=session_id, name=name)

    row = run_with_rem(work)
    if row.system_prompt is not None:
        echo(row.system_prompt)
    else:
        print_to_stderr(f"The session {session} has no system prompt.")


@app.command()
def search(
    text: Annotated[str, typer.Argument(help="The search text.")],
    session: Annotated[str | None, typer.Option(help="Only in this session, by id or name.")] = None,
    limit: Annotated[int, typer.Option(help="The maximum number of messages.")] = 5,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Search messages by meaning and by words."""
    from rem.cli.output import print_json

    async def work(rem: Rem) -> list[Message]:
        memory = _open_memory(rem, user, tenant)
        session_id = None if session is None else await memory.resolve_session_id(session)
        return await memory.search_similar(text, limit, session_id)

    messages = run_with_rem(work)
    if as_json:
        print_json([message.model_dump(mode="json") for message in messages])
        return
    for message in messages:
        text = " ".join(message.content.split())[:MAX_PRINTED_CHARS]
        echo(f"{message.key}  {message.created_at:%Y-%m-%d}  {_speaker(message)}: {text}")
    if not messages:
        print_to_stderr("No messages.")


def _print_idle(sessions: Sequence[Session], *, err: bool = False) -> None:
    """Print the sessions that `prune` would delete."""
    from rem.cli.output import format_count

    for session in sessions:
        count = format_count(session.message_count, "message")
        echo(f"{session.id}  {session.updated_at:%Y-%m-%d}  {count}  {session.name or ''}".rstrip(), err=err)
    echo(f"Would delete {format_count(len(sessions), 'session')}.", err=err)


def _open_memory(rem: Rem, user: str | None, tenant: str) -> MemoryManager:
    return rem.for_user(require_user(user), tenant=tenant).sessions


@contextmanager
def _name_in_errors(name: str) -> Iterator[None]:
    """Raise NotFoundError with the name that the user typed, instead of the id."""
    from rem.errors import NotFoundError

    try:
        yield
    except NotFoundError as error:
        raise NotFoundError(f"There is no session {name} of this user.") from error


async def _require_session_id(memory: MemoryManager, name: str) -> UUID:
    with _name_in_errors(name):
        return (await memory.get_session(await memory.resolve_session_id(name))).id


def _print_pruned(pruned: int, as_json: bool) -> None:
    from rem.cli.output import format_count, print_json

    if as_json:
        print_json({"deleted": pruned})
    else:
        echo(f"Deleted {format_count(pruned, 'session')}.")


async def _import_file(memory: MemoryManager, path: Path, on_rows: Any, skip_broken: bool) -> ImportReport:
    from rem.errors import InvalidInputError
    from rem.sessions.export_import import check_export_lines, import_sessions
    from rem.sessions.sqlite_import import import_sqlite, is_sqlite

    try:
        if is_sqlite(path):
            return await import_sqlite(memory, path, on_rows, skip_broken=skip_broken)
        with path.open("rb") as lines:
            check_export_lines(lines, str(path))
        with path.open("rb") as lines:
            return await import_sessions(memory, lines, on_rows)
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror}.") from error


@contextmanager
def _open_output(path: Path | None) -> Iterator[IO[bytes]]:
    """Open a file, or standard output, for bytes."""
    from rem.errors import InvalidInputError

    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        stream = path.open("wb")
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be written: {error.strerror}.") from error
    with stream:
        yield stream


def _print_import_report(report: ImportReport) -> None:
    from rem.cli.output import format_count

    remaining = MAX_PRINTED_NOTES
    for session in report.sessions:
        if remaining > 0 and session.notes:
            print_to_stderr(f"{session.source}: {session.outcome}")
            for note in session.notes[:remaining]:
                print_to_stderr(f"  {note}")
        remaining -= len(session.notes)
    if remaining < 0:
        print_to_stderr(f"and {-remaining} more: --json lists them all.")
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(report.counts.items())) or "none"
    echo(f"Sessions: {counts}. Added {format_count(report.messages, 'message')}.")


def _speaker(message: Message) -> str:
    return f"tool {message.tool_name}" if message.tool_name else message.role.value


def _describe_call(message: Message) -> str:
    import orjson

    arguments = message.metadata.get("tool_arguments") or [call.get("arguments") for call in message.tool_calls]
    return f"called with {orjson.dumps(arguments).decode()}"

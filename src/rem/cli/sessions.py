"""`rem sessions`: the conversations that REM remembers."""

from __future__ import annotations

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
    confirm,
    print_to_stderr,
    run_with_rem,
)

if TYPE_CHECKING:
    from rem.app import Rem
    from rem.memory.manager import MemoryManager
    from rem.memory.transfer import ImportReport
    from rem.models import Message, Session

app = typer.Typer(help="Conversations: list, read, export, import and forget them.", no_args_is_help=True)

Which = Annotated[str, typer.Argument(metavar="SESSION", help="The id or the name of a session.")]
_MOST_PROBLEMS = 10
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@app.command("list")
def list_sessions(
    limit: Annotated[int, typer.Option(help="How many, the newest first.")] = 20,
    offset: Annotated[int, typer.Option(help="How many of the newest to leave out.")] = 0,
    shared: Annotated[bool, typer.Option("--shared", help="Those that others share with the user.")] = False,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """List the user's sessions, those that were written to last first."""
    from rem.cli.output import print_json

    async def work(rem: Rem) -> tuple[list[Session], dict[UUID, str]]:
        memory = _memory(rem, user, tenant)
        sessions = await (memory.list_shared_sessions if shared else memory.list_sessions)(limit, offset)
        return sessions, await memory.get_titles([session.id for session in sessions])

    sessions, titles = run_with_rem(work)
    if as_json:
        print_json([{**session.model_dump(mode="json"), "title": titles.get(session.id)} for session in sessions])
    elif not sessions:
        print_to_stderr("There are no sessions.")
    else:
        # Not a table, which would break the ids to fit: they are there to be copied.
        typer.echo(f"{'session':<36}  {'last written':<16}  messages  about")
        for session in sessions:
            title = titles.get(session.id) or session.name or ""
            typer.echo(f"{session.id}  {session.updated_at:%Y-%m-%d %H:%M}  {session.message_count:>8}  {title}")


@app.command()
def show(which: Which, user: UserOption = None, tenant: TenantOption = "default", as_json: JsonOption = False) -> None:
    """Show a session with all its messages, exactly as they were said."""
    from rem.cli.output import print_json

    async def work(rem: Rem) -> tuple[Session, list[Message]]:
        memory = _memory(rem, user, tenant)
        with _called(which):
            session_id = await memory.resolve_session_id(which)
            return await memory.get_session(session_id), await memory.load_session(session_id)

    session, messages = run_with_rem(work)
    if as_json:
        print_json({**session.model_dump(mode="json"), "messages": [row.model_dump(mode="json") for row in messages]})
        return
    typer.echo(f"{session.name or session.id}, {session.created_at:%Y-%m-%d %H:%M} (UTC)")
    for message in messages:
        typer.echo(f"\n[{message.message_index}] {_speaker(message)}, {message.created_at:%H:%M:%S}")
        typer.echo(message.content or _call_text(message))


@app.command("export")
def export(
    which: Annotated[
        list[str] | None, typer.Argument(metavar="[SESSION]...", help="Ids or names; all if none.")
    ] = None,
    to: Annotated[Path | None, typer.Option("--output", "-o", help="A file; standard output if not given.")] = None,
    user: UserOption = None,
    tenant: TenantOption = "default",
) -> None:
    """Write sessions as JSON lines, one a session, that `rem sessions import` reads back exactly."""
    from rem.cli.output import format_count, progress_bar

    async def work(rem: Rem) -> int:
        from rem.memory.transfer import export_sessions

        memory = _memory(rem, user, tenant)
        chosen = [await _existing(memory, name) for name in which] if which else None
        with progress_bar("Exporting") as on_rows, _output(to) as stream:
            return await export_sessions(memory, stream, chosen, on_rows)

    print_to_stderr(f"Exported {format_count(run_with_rem(work), 'session')}.")


@app.command("import")
def import_(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines of `export`, or an SQLite memory.")],
    skip_broken: Annotated[
        bool, typer.Option("--skip-broken", help="SQLite: leave out rows that cannot be read, not their whole session.")
    ] = False,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Read sessions into the user's memory, each as a whole or not at all. A second time changes nothing."""
    from rem.cli.indexing import index_new_rows
    from rem.cli.output import print_json, progress_bar

    async def work(rem: Rem) -> ImportReport:
        memory = _memory(rem, user, tenant)
        with progress_bar("Importing") as on_rows:
            report = await _import_file(memory, path, on_rows, skip_broken)
        await index_new_rows(rem, user=user, tenant=tenant)
        return report

    report = run_with_rem(work)
    if as_json:
        print_json({"counts": report.counts, "messages": report.messages, "sessions": report.sessions})
    else:
        _print_report(report)
    if report.counts["failed"]:
        raise typer.Exit(1)


@app.command()
def delete(
    which: Annotated[list[str], typer.Argument(metavar="SESSION...", help="Ids or names of sessions.")],
    erase: Annotated[bool, typer.Option("--erase", help="For good; otherwise they can be restored.")] = False,
    yes: Yes = False,
    user: UserOption = None,
    tenant: TenantOption = "default",
) -> None:
    """Delete sessions with their messages."""
    from rem.cli.output import format_command

    async def work(rem: Rem) -> list[UUID]:
        memory = _memory(rem, user, tenant)
        chosen = [await memory.resolve_session_id(name) for name in which]
        if erase and not yes:
            confirm(f"Erase {', '.join(which)} for good?")
        for name, session_id in zip(which, chosen, strict=True):
            with _called(name):
                await memory.delete_session(session_id, erase=erase)
        return chosen

    for session_id in run_with_rem(work):
        back = format_command("restore", "sessions", str(session_id), user=user, tenant=tenant)
        typer.echo(f"Erased {session_id}." if erase else f"Deleted {session_id}; `{back}` brings it back.")


@app.command()
def prune(
    days: Annotated[int, typer.Option(help="Sessions that nobody has written to for so many days.")] = 30,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    yes: Yes = False,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Delete the user's old sessions, and what was dreamt from them. They can be restored."""
    from rem.cli.output import print_json
    from rem.memory.prune import list_idle_sessions

    async def work(rem: Rem) -> int | list[Session]:
        memory = _memory(rem, user, tenant)
        if dry_run:
            return await list_idle_sessions(memory, days)
        if not yes:
            _show_idle(await list_idle_sessions(memory, days), err=True)
            confirm(f"Delete all sessions that are idle for over {days} days?")
        return await memory.prune_old_sessions(days)

    done = run_with_rem(work)
    if isinstance(done, int):
        _print_pruned(done, as_json)
    elif as_json:
        print_json({"would_delete": [session.model_dump(mode="json") for session in done]})
    else:
        _show_idle(done)


@app.command("expire")
def expire_session(
    which: Which,
    within: ExpireInOption = None,
    at: ExpireAtOption = None,
    never: ExpireNeverOption = False,
    user: UserOption = None,
    tenant: TenantOption = "default",
) -> None:
    """Let a session lapse, with all its messages, also those that are written later."""
    from rem.cli.forget import format_expiry
    from rem.forgetting.expiry import expire, parse_expiry

    moment = parse_expiry(within, at, never)

    async def work(rem: Rem) -> UUID:
        memory = _memory(rem, user, tenant)
        with _called(which):
            session = await memory.get_session(await memory.resolve_session_id(which))
        await expire(memory.store, [session], moment)
        return session.id

    typer.echo(f"{run_with_rem(work)} {format_expiry(moment)}.")


@app.command()
def clear(which: Which, yes: Yes = False, user: UserOption = None, tenant: TenantOption = "default") -> None:
    """Delete the messages of a session, not the session."""
    from rem.cli.output import format_count

    async def work(rem: Rem) -> int:
        memory = _memory(rem, user, tenant)
        session_id = await memory.resolve_session_id(which)
        if not yes:
            confirm(f"Delete all messages of {which}?")
        with _called(which):
            return await memory.clear_session(session_id)

    typer.echo(f"Deleted {format_count(run_with_rem(work), 'message')}.")


@app.command()
def rename(
    which: Which,
    name: Annotated[str, typer.Argument(help="The new name, which no other session of the user has.")],
    user: UserOption = None,
    tenant: TenantOption = "default",
) -> None:
    """Give a session a name, by which it is found from then on."""

    async def work(rem: Rem) -> Session:
        memory = _memory(rem, user, tenant)
        with _called(which):
            return await memory.rename_session(await memory.resolve_session_id(which), name)

    session = run_with_rem(work)
    typer.echo(f"{session.id} is called {session.name} (key {session.key}).")


@app.command()
def search(
    text: Annotated[str, typer.Argument(help="What it was about.")],
    session: Annotated[str | None, typer.Option(help="Only in this session, by id or name.")] = None,
    limit: Annotated[int, typer.Option(help="How many messages.")] = 5,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Find what was said, by meaning and by words."""
    from rem.cli.output import print_json

    async def work(rem: Rem) -> list[Message]:
        memory = _memory(rem, user, tenant)
        within = None if session is None else await memory.resolve_session_id(session)
        return await memory.search_similar(text, limit, within)

    found = run_with_rem(work)
    if as_json:
        print_json([message.model_dump(mode="json") for message in found])
        return
    for message in found:
        typer.echo(f"{message.key}  {_speaker(message)}: {' '.join(message.content.split())[:200]}")
    if not found:
        print_to_stderr("Nothing was found.")


def _show_idle(sessions: Sequence[Session], *, err: bool = False) -> None:
    """What `prune` would delete."""
    from rem.cli.output import format_count

    for session in sessions:
        count = format_count(session.message_count, "message")
        typer.echo(f"{session.id}  {session.updated_at:%Y-%m-%d}  {count}  {session.name or ''}".rstrip(), err=err)
    typer.echo(f"Would delete {format_count(len(sessions), 'session')}.", err=err)


def _memory(rem: Rem, user: str | None, tenant: str) -> MemoryManager:
    from rem.errors import InvalidInputError

    if user is None:
        raise InvalidInputError("Conversations have an owner: say whose with --user.")
    return rem.memory(user, tenant=tenant)


@contextmanager
def _called(which: str) -> Iterator[None]:
    """Say that there is no such session by what was typed, not by the id that it stands for."""
    from rem.errors import NotFoundError

    try:
        yield
    except NotFoundError as error:
        raise NotFoundError(f"There is no session {which} of this user.") from error


async def _existing(memory: MemoryManager, which: str) -> UUID:
    with _called(which):
        return (await memory.get_session(await memory.resolve_session_id(which))).id


def _print_pruned(pruned: int, as_json: bool) -> None:
    from rem.cli.output import format_count, print_json

    if as_json:
        print_json({"deleted": pruned})
    else:
        typer.echo(f"Deleted {format_count(pruned, 'session')}.")


async def _import_file(memory: MemoryManager, path: Path, on_rows: Any, skip_broken: bool) -> ImportReport:
    from rem.errors import InvalidInputError
    from rem.memory.sqlite_import import import_sqlite, is_sqlite
    from rem.memory.transfer import check_export_lines, import_sessions

    try:
        if is_sqlite(path):
            return await import_sqlite(memory, path, on_rows, skip_broken=skip_broken)
        with path.open("rb") as lines:
            check_export_lines(lines, str(path))
        with path.open("rb") as lines:
            return await import_sessions(memory, lines, on_rows)
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror}.") from error


class _output:  # noqa: N801  # reads as a statement
    """A file, or standard output, for bytes."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def __enter__(self) -> IO[bytes]:
        from rem.errors import InvalidInputError

        try:
            self._stream = sys.stdout.buffer if self._path is None else self._path.open("wb")
        except OSError as error:
            raise InvalidInputError(f"{self._path} cannot be written: {error.strerror}.") from error
        return self._stream

    def __exit__(self, *_error: object) -> None:
        if self._path is None:
            self._stream.flush()
        else:
            self._stream.close()


def _print_report(report: ImportReport) -> None:
    from rem.cli.output import format_count

    left = _MOST_PROBLEMS
    for session in report.sessions:
        if left > 0 and session.notes:
            print_to_stderr(f"{session.source}: {session.outcome}")
            for note in session.notes[:left]:
                print_to_stderr(f"  {note}")
        left -= len(session.notes)
    if left < 0:
        print_to_stderr(f"and {-left} more: --json lists them all.")
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(report.counts.items())) or "none"
    typer.echo(f"Sessions: {counts}. Added {format_count(report.messages, 'message')}.")


def _speaker(message: Message) -> str:
    return f"tool {message.tool_name}" if message.tool_name else message.role.value


def _call_text(message: Message) -> str:
    import orjson

    arguments = message.metadata.get("tool_arguments") or [call.get("arguments") for call in message.tool_calls]
    return f"called with {orjson.dumps(arguments).decode()}"

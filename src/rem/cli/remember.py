"""The commands `rem remember` and `rem correct`, and the confirmation of a change in a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rem.cli.runtime import (
    JsonOption,
    TenantOption,
    UserOption,
    YesOption,
    choose_numbers,
    confirm,
    print_to_stderr,
    require_user,
    run_with_rem,
)
from rem.cli.terminal_text import echo

if TYPE_CHECKING:
    from rem.app import Rem
    from rem.forget.change_requests import ChangeReport, ChangeRequest, ChangeRequests
    from rem.models import Resource

IN_TERMINAL = "user in a terminal"


def remember(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A statement, or - to read it from standard input.")],
    name: Annotated[
        str | None, typer.Option(help="A name, which gives the key. Default: the date and the first words.")
    ] = None,
    tags: Annotated[list[str] | None, typer.Option("--tag", help="A tag; may be repeated.")] = None,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Store a statement as a note, and print its key. Queries, chat and dreams use it from then on."""
    from rem.cli.output import print_json
    from rem.message_kinds import classify_message
    from rem.models.message import MessageKind

    owner = require_user(user)
    statement = sys.stdin.read() if text == "-" else text

    async def work(rem: Rem) -> tuple[Resource, list[str]]:
        stored = await rem.for_user(owner, tenant=tenant).remember(statement, name=name, tags=tags)
        return stored, rem.database.privacy.list_masked([statement])

    stored, masked = run_with_rem(work)
    if classify_message(statement) is MessageKind.QUESTION:
        print_to_stderr("This reads like a question. It is stored as it is; `rem ask` answers questions.")
    if masked:
        from rem.privacy.policy import describe_masked

        print_to_stderr(describe_masked(masked))
    if as_json:
        print_json({"table": "resources", "key": stored.key, "id": stored.id, "text": stored.content})
    else:
        echo(stored.key or "")


def correct(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="What is wrong: a key, or words such as 'my flight'.")],
    to: Annotated[str, typer.Option("--to", metavar="TEXT", help="The statement that is true now.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be corrected.")] = False,
    yes: YesOption = False,
    only: Annotated[
        list[int] | None,
        typer.Option("--only", metavar="NUMBER", help="Correct only the text with this number; may be repeated."),
    ] = None,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Show what is stored about a topic, then replace it.

    If several texts match, answer with the numbers of those that you mean. Notes, entities and moments change and keep
    their old text. Messages and files stay, and are marked as replaced.
    """

    async def work(rem: Rem) -> tuple[ChangeRequest, ChangeReport | None]:
        changes = rem.for_user(user, tenant=tenant).changes
        request = await changes.request_correction(topic, to)
        return request, await ask_and_confirm(changes, request, dry_run=dry_run, yes=yes, as_json=as_json, only=only)

    print_change(*run_with_rem(work), as_json=as_json)


async def ask_and_confirm(
    changes: ChangeRequests,
    request: ChangeRequest,
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    only: list[int] | None = None,
) -> ChangeReport | None:
    """Show a request, ask the person at the terminal, and carry it out. Return None for a dry run.

    Of several texts, the person chooses some by their numbers, or `only` has these.
    """
    from rem.cli.output import print_wrapped
    from rem.cli.terminal_text import escape_control_characters

    numbers = only or None
    try:
        if not as_json or not (yes or dry_run):
            print_wrapped(escape_control_characters(request.preview), indent="   ", err=as_json)
        if dry_run:
            await changes.reject(request.code, by=IN_TERMINAL)
            return None
        if not yes:
            numbers = _ask_for_numbers(request, numbers)
    except typer.Abort:
        await changes.reject(request.code, by=IN_TERMINAL)
        raise
    return await changes.confirm(request.code, by=IN_TERMINAL, numbers=numbers)


def _ask_for_numbers(request: ChangeRequest, numbers: list[int] | None) -> list[int] | None:
    """Ask for a confirmation, and which of several texts are meant. Return their numbers, or None for all."""
    is_forget = request.kind == "forget"
    if numbers is None and len(request.rows) > 1:
        count = len(request.rows)
        return choose_numbers(f"Forget all {count} for good?" if is_forget else f"Correct all {count}?", count)
    shown = "this" if numbers is None else f"number {', '.join(map(str, numbers))}"
    confirm(f"Forget {shown} for good?" if is_forget else f"Correct {shown}?")
    return numbers


def print_change(request: ChangeRequest, report: ChangeReport | None, *, as_json: bool) -> None:
    """Print the result of a change: a sentence, or JSON with every row."""
    from rem.cli.output import print_json, print_wrapped

    if not as_json:
        if report is not None:
            print_wrapped(report.summary.replace("`", ""))
        return
    result: dict[str, Any] = {
        "rows": [
            {"table": row.table, "key": row.key, "id": row.id, "date": row.happened_at, "text": row.text}
            for row in request.rows
        ],
        "total": request.change.total,
        "report": None,
    }
    if report is not None:
        result["report"] = {
            "erased": dict(report.erased),
            "changed": report.changed,
            "replaced": report.replaced,
            "key": report.key,
        }
    print_json(result)

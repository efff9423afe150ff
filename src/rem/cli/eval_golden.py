"""`rem eval golden`: check golden sets, and make them from sessions and feedback."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rem.cli.runtime import JsonOption, TenantOption, UserOption, print_to_stderr, require_user, run_with_rem
from rem.cli.terminal_text import echo

if TYPE_CHECKING:
    from rem.app import Rem
    from rem.evals.golden_sets import GoldenCase

app = typer.Typer(
    help="Check golden sets, and make them from sessions and feedback.", no_args_is_help=True, rich_markup_mode=None
)
FileOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="A .jsonl or .yaml file.  [default: JSON lines on standard output]"),
]


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="A .yaml, .jsonl or .csv file.")], as_json: JsonOption = False
) -> None:
    """Check a golden set and print the number of its cases. An error names the line."""
    from rem.cli.output import format_count, print_json
    from rem.evals.golden_sets import read_golden_set

    golden_set = read_golden_set(file)
    without = sum(case.reference is None for case in golden_set.cases)
    if as_json:
        values = {"name": golden_set.name, "cases": len(golden_set.cases), "without_reference": without}
        print_json({**values, "data_hash": golden_set.data_hash})
        return
    note = f", {without} without a reference" if without else ""
    echo(f"{golden_set.name}: {format_count(len(golden_set.cases), 'case')}{note}")


@app.command()
def from_session(
    session: Annotated[str, typer.Argument(metavar="SESSION", help="The id or the name of a session.")],
    output: FileOption = None,
    history: Annotated[bool, typer.Option(help="Give each case the messages before it.")] = True,
    user: UserOption = None,
    tenant: TenantOption = "default",
) -> None:
    """Make a golden set from a session: one case for each answered message, with the answer as reference.

    Read the references before you use them: they are what the agent said at that time.
    """
    from rem.context import Scope
    from rem.errors import NotFoundError
    from rem.evals.golden_sets import golden_from_session

    scope = Scope.for_user(require_user(user), tenant)

    async def work(rem: Rem) -> list[GoldenCase]:
        memory = rem.for_user(scope).sessions
        session_id = await memory.resolve_session_id(session)
        try:
            await memory.get_session(session_id)
        except NotFoundError as error:
            raise NotFoundError(f"There is no session {session!r}: `rem sessions list` shows yours.") from error
        return await golden_from_session(rem, scope, session_id, with_history=history)

    _write(run_with_rem(work), output)


@app.command()
def from_feedback(
    rating: Annotated[
        Literal["positive", "negative", "all"],
        typer.Option(help="positive: praised answers, as references. negative: answers that were not, without one."),
    ] = "positive",
    output: FileOption = None,
    user: UserOption = None,
    tenant: TenantOption = "default",
) -> None:
    """Make a golden set from the answers that the user rated."""
    from rem.context import Scope
    from rem.evals.golden_sets import golden_from_feedback

    scope = Scope.for_user(require_user(user), tenant)

    async def work(rem: Rem) -> list[GoldenCase]:
        return await golden_from_feedback(rem, scope, rating=rating)

    _write(run_with_rem(work), output)


def _write(cases: list[GoldenCase], output: Path | None) -> None:
    from rem.cli.output import format_count
    from rem.evals.golden_sets import format_jsonl, write_golden_set

    if output is None:
        echo(format_jsonl(cases), nl=False)
        return
    write_golden_set(cases, output)
    print_to_stderr(f"Wrote {format_count(len(cases), 'case')} to {output}.")

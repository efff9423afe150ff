"""`rem query`: the answer to a query in REM's language, to a question in plain language, or to a plan."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from rem.cli.runtime import JsonOption, TenantOption, UserOption, print_to_stderr, run_with_rem

if TYPE_CHECKING:
    from rem.app import Rem
    from rem.query.result import QueryResult

Mode: TypeAlias = Literal["rem-dialect", "natural-language"]


def query(
    text: Annotated[
        str,
        typer.Argument(
            metavar="QUERY", help="A query, such as 'FUZZY \"sara\" THRESHOLD 0.7'; - reads it from standard input."
        ),
    ] = "",
    mode: Annotated[
        Mode,
        typer.Option("--mode", help="Whether the query is in REM's language, or plain language such as 'sarah chen'."),
    ] = "rem-dialect",
    plan: Annotated[
        Path | None,
        typer.Option("--plan", help="Run the stages of a plan in a JSON file instead; - reads it from standard input."),
    ] = None,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Also show how the query is understood and how long each step took.")
    ] = False,
) -> None:
    """Ask in the query language (docs/query-language.md): LOOKUP, FUZZY, SEARCH, TRAVERSE, SQL.

    Or ask in plain language (--mode natural-language), or several queries that feed each other (--plan).
    """
    from rem.cli.output import print_json

    if plan is not None:
        from rem.cli.query_plan import query_plan

        query_plan(plan, text, user=user, tenant=tenant, as_json=as_json, explain=explain)
        return
    if text == "-":
        text = sys.stdin.read()
    # A mistake in the query is told before a server is started for it.
    tree = _tree(text) if mode == "rem-dialect" else None

    async def work(rem: Rem) -> QueryResult:
        return await (rem.query if tree else rem.ask)(text, user=user, tenant=tenant)

    result = run_with_rem(work)
    if as_json:
        print_json(({"tree": tree} if explain and tree else {}) | result.as_json(explain=explain))
        return
    if explain:
        _print_explanation(tree or {}, result)
    _print_rows(result)
    for note in result.notes:
        print_to_stderr(f"Note: {note}")


def _tree(text: str) -> dict[str, object]:
    from rem.query.language.parser import parse_query
    from rem.query.tree import to_json as tree_as_json

    return tree_as_json(parse_query(text))


def _print_rows(result: QueryResult) -> None:
    from rem.cli.query_table import print_rows

    if result.results:
        print_rows(result)
    else:
        print_to_stderr("No rows.")


def _print_explanation(tree: dict[str, object], result: QueryResult) -> None:
    from rem.cli.output import print_table
    from rem.cli.parse import outline

    for line in outline(tree) if tree else ():
        typer.echo(line)
    typer.echo()
    steps = [[step.name, f"{step.milliseconds:.1f}", step.rows, step.detail] for step in result.steps]
    print_table(["step", "ms", "rows", ""], steps)

"""`rem query`: run a query, a question in natural language, or a plan; `rem parse`: print the tree of a query."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from rem.cli.runtime import JsonOption, TenantOption, UserOption, print_to_stderr, run_with_rem
from rem.cli.terminal_text import echo

if TYPE_CHECKING:
    from rem.app import Rem
    from rem.query.plans.plan import PlanResult, StageResult
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
        typer.Option("--mode", help="The language of the query: REM's own, or natural language such as 'sarah chen'."),
    ] = "rem-dialect",
    plan: Annotated[
        Path | None,
        typer.Option("--plan", help="Run the plan in this JSON file instead; - reads it from standard input."),
    ] = None,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Also print the syntax tree and the duration of each step.")
    ] = False,
) -> None:
    """Run a query: LOOKUP, FUZZY, SEARCH, TRAVERSE or SQL.

    docs/query-language.md describes the language. --mode natural-language takes a name or a
    question in plain words, such as 'what did I do last week?'. --plan runs several queries that
    can use each other's results.
    """
    from rem.cli.output import print_json
    from rem.query.language.parser import parse_query
    from rem.query.syntax_tree import to_json

    if plan is not None:
        run_plan(plan, text, user=user, tenant=tenant, as_json=as_json, explain=explain)
        return
    if text == "-":
        text = sys.stdin.read()
    # Here, to report a syntax error before a server is started.
    parsed = parse_query(text) if mode == "rem-dialect" else None

    async def work(rem: Rem) -> QueryResult:
        if parsed is None:
            return await rem.ask(text, user=user, tenant=tenant)
        return await rem.query(parsed, text=text, user=user, tenant=tenant)

    result = run_with_rem(work)
    tree = None if parsed is None else to_json(parsed)
    if as_json:
        print_json(({"tree": tree} if explain and tree else {}) | result.as_json(explain=explain))
        return
    if explain:
        _print_explanation(tree, result)
    _print_rows(result)
    for note in result.notes:
        print_to_stderr(f"Note: {note}")


def parse(
    query: Annotated[str, typer.Argument(help="A query, such as 'SEARCH \"machine learning\" FROM resources'.")],
    as_json: JsonOption = False,
) -> None:
    """Print the syntax tree of a query, or its error."""
    from rem.cli.output import print_json
    from rem.query.language.parser import parse_query
    from rem.query.language.printer import print_query
    from rem.query.syntax_tree import to_json

    tree = parse_query(query)
    if as_json:
        print_json(to_json(tree))
        return
    for line in outline_tree(to_json(tree)):
        echo(line)
    echo(f"\nIn short: {print_query(tree)}")


def run_plan(path: Path, query: str, *, user: str | None, tenant: str, as_json: bool, explain: bool) -> None:
    """Run the plan in a file and print its result. Exit with code 1 if a stage failed."""
    from rem.cli.output import print_json
    from rem.errors import InvalidInputError
    from rem.query.plans.plan import Plan, check_plan

    if query:
        raise InvalidInputError("Give a query or --plan, not both.")
    plan = Plan.parse(_read_plan(path))
    # Report an invalid plan before a server is started.
    check_plan(plan)

    async def work(rem: Rem) -> PlanResult:
        return await rem.run_plan(plan, user=user, tenant=tenant)

    result = run_with_rem(work)
    if as_json:
        print_json(result.as_json(explain=explain))
    else:
        _print_plan_result(result)
    if any(stage.status == "failed" for stage in result.stages):
        raise typer.Exit(1)


def outline_tree(tree: dict[str, Any], label: str = "") -> Iterator[str]:
    """Yield the syntax tree as indented lines, without options that are not set."""
    yield f"{label}{tree['type']}"
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from (f"  {line}" for line in outline_tree(value, f"{name}: "))
        elif name != "type" and value not in (None, []):
            yield f"  {name}: {', '.join(value) if isinstance(value, list) else value}"


def _print_rows(result: QueryResult) -> None:
    from rem.cli.query_table import print_rows

    if result.results:
        print_rows(result)
    else:
        print_to_stderr("No rows.")


def _print_explanation(tree: dict[str, object] | None, result: QueryResult) -> None:
    from rem.cli.output import print_table

    for line in outline_tree(tree) if tree else ():
        echo(line)
    echo()
    steps = [[step.name, f"{step.milliseconds:.1f}", step.rows, step.detail] for step in result.steps]
    print_table(["step", "ms", "rows", ""], steps)


def _read_plan(path: Path) -> str:
    from rem.errors import InvalidInputError

    if str(path) == "-":
        return sys.stdin.read()
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"The plan {path} cannot be read: {error}.") from error


def _print_plan_result(result: PlanResult) -> None:
    """Print each stage with its notes on standard error, and the rows of the answer on standard output."""
    from rem.cli.terminal_text import escape_control_characters

    for stage in result.stages:
        print_to_stderr(escape_control_characters(f"{stage.id}: {_describe_stage(stage)}: {stage.query}"))
        for note in stage.result.notes:
            print_to_stderr(escape_control_characters(f"  Note: {note}"))
    if result.results:
        _print_rows(result[result.answer].result)
    else:
        print_to_stderr("No rows.")


def _describe_stage(stage: StageResult) -> str:
    from rem.cli.output import format_count

    if stage.status == "done":
        return format_count(stage.result.count, "row")
    return stage.status if stage.error is None else f"{stage.status} ({stage.error})"

"""`rem query`: run a query or a question in natural language; `rem parse`: print the tree of a query."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from rem.cli.runtime import JsonOption, TenantOption, UserOption, print_to_stderr, run_with_rem
from rem.cli.terminal_text import echo

if TYPE_CHECKING:
    from rem.app import Rem
    from rem.models.results import Result

Mode: TypeAlias = Literal["rem-dialect", "natural-language"]


def query(
    text: Annotated[
        str,
        typer.Argument(
            metavar="QUERY", help="A query, such as 'FUZZY \"sara\" THRESHOLD 0.7'; - reads it from standard input."
        ),
    ],
    mode: Annotated[
        Mode,
        typer.Option("--mode", help="The language of the query: REM's own, or natural language such as 'sarah chen'."),
    ] = "rem-dialect",
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Also print the syntax tree and the duration of each step.")
    ] = False,
) -> None:
    """Run a query: LOOKUP, FUZZY, SEARCH, TRAVERSE or SQL.

    docs/query-language.md describes the language. --mode natural-language takes a name or a
    question in plain words, such as 'what did I do last week?'.
    """
    from rem.cli.output import print_json
    from rem.query.parser import parse_query
    from rem.query.tree import to_json

    if text == "-":
        text = sys.stdin.read()
    # Here, to report a syntax error before a server is started.
    parsed = parse_query(text) if mode == "rem-dialect" else None

    async def work(rem: Rem) -> Result:
        if parsed is None:
            return await rem.for_user(user, tenant=tenant).find(text)
        return await rem.for_user(user, tenant=tenant).query(parsed, text=text)

    result = run_with_rem(work)
    tree = None if parsed is None else to_json(parsed)
    if as_json:
        print_json(({"tree": tree} if explain and tree else {}) | result.as_json(explain=explain))
        return
    if explain:
        _print_explanation(tree, result)
    _print_rows(result)
    for note in result.notes:
        print_to_stderr(f"Note: {note.text}")


def parse(
    query: Annotated[str, typer.Argument(help="A query, such as 'SEARCH \"machine learning\" FROM resources'.")],
    as_json: JsonOption = False,
) -> None:
    """Print the syntax tree of a query, or its error."""
    from rem.cli.output import print_json
    from rem.query.parser import parse_query
    from rem.query.printer import print_query
    from rem.query.tree import to_json

    tree = parse_query(query)
    if as_json:
        print_json(to_json(tree))
        return
    for line in outline_tree(to_json(tree)):
        echo(line)
    echo(f"\nIn short: {print_query(tree)}")


def outline_tree(tree: dict[str, Any], label: str = "") -> Iterator[str]:
    """Yield the syntax tree as indented lines, without options that are not set."""
    yield f"{label}{tree['type']}"
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from (f"  {line}" for line in outline_tree(value, f"{name}: "))
        elif name != "type" and value not in (None, []):
            yield f"  {name}: {', '.join(value) if isinstance(value, list) else value}"


def _print_rows(result: Result) -> None:
    from rem.cli.query_table import print_rows

    if result.count:
        print_rows(result)
    else:
        print_to_stderr("No rows.")


def _print_explanation(tree: dict[str, object] | None, result: Result) -> None:
    from rem.cli.output import print_table

    for line in outline_tree(tree) if tree else ():
        echo(line)
    echo()
    steps = [[step.name, f"{step.milliseconds:.1f}", step.rows, step.detail] for step in result.steps]
    print_table(["step", "ms", "rows", ""], steps)

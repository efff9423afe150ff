"""`rem parse`: what a query means, without running it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from rem.cli.runtime import JsonOption


def parse(
    query: Annotated[str, typer.Argument(help="A query, such as 'SEARCH \"machine learning\" FROM resources'.")],
    as_json: JsonOption = False,
) -> None:
    """Show the syntax tree of a query, or what is wrong with it."""
    from rem.cli.output import print_json
    from rem.query.language.parser import parse_query as parse_query
    from rem.query.language.printer import print_query
    from rem.query.tree import to_json as tree_as_json

    tree = parse_query(query)
    if as_json:
        print_json(tree_as_json(tree))
        return
    for line in outline(tree_as_json(tree)):
        typer.echo(line)
    typer.echo(f"\nIn short: {print_query(tree)}")


def outline(tree: dict[str, Any], label: str = "") -> Iterator[str]:
    """The tree as indented lines; what is not said in the query and has no default is left out."""
    yield f"{label}{tree['type']}"
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from (f"  {line}" for line in outline(value, f"{name}: "))
        elif name != "type" and value not in (None, []):
            yield f"  {name}: {', '.join(value) if isinstance(value, list) else value}"

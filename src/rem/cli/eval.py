"""`rem eval`: run agents and queries on golden sets, judge their outputs, and compare the results."""

from __future__ import annotations

import typer

from rem.cli.runtime import JsonOption, TenantOption, UserOption

app = typer.Typer(
    help="Run agents and queries on golden sets, judge their outputs, and compare the results.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def evaluators(user: UserOption = None, tenant: TenantOption = "default", as_json: JsonOption = False) -> None:
    """List the evaluators, and invalid definitions with the reason.

    `rem agents show`, `validate`, `save` and `delete` also work with evaluators.
    """
    from rem.cli.agents import print_catalog
    from rem.context import Scope

    print_catalog("evaluator", Scope.for_user(user, tenant), as_json=as_json)

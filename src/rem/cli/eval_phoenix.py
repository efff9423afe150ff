"""`rem eval phoenix`: send golden sets, runs and feedback to Arize Phoenix, and get them from there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rem.cli.runtime import (
    TenantOption,
    UserOption,
    load_settings,
    print_to_stderr,
    require_user,
    run_async,
    run_with_rem,
)
from rem.cli.terminal_text import echo

if TYPE_CHECKING:
    from rem.app import Rem
    from rem.evals.golden_sets import GoldenSet

app = typer.Typer(
    help="Exchange golden sets, runs and feedback with Phoenix.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def push(
    label: Annotated[
        str, typer.Argument(metavar="RUN", help="A run: its name for the latest, name#number, or its id.")
    ],
    user: UserOption = None,
    tenant: TenantOption = "default",
) -> None:
    """Store a run in Phoenix: its golden set as a data set, its outputs and scores as an experiment."""
    from rem.context import Scope
    from rem.evals.experiment_store import ExperimentStore
    from rem.evals.phoenix import open_phoenix

    async def work(rem: Rem) -> str:
        store = ExperimentStore(rem.database, Scope.for_user(user, tenant))
        run = await store.get(label)
        async with open_phoenix(rem.settings.phoenix) as phoenix:
            return await phoenix.upload_run(run, await store.load_cases(run))

    echo(f"Stored as experiment {run_with_rem(work)} in Phoenix.")


@app.command()
def pull(
    name: Annotated[str, typer.Argument(metavar="DATASET", help="The name of a data set in Phoenix.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="A .jsonl or .yaml file for the golden set.")],
) -> None:
    """Write a data set of Phoenix as a golden set."""
    from rem.cli.output import format_count
    from rem.evals.golden_sets import write_golden_set
    from rem.evals.phoenix import open_phoenix

    async def work() -> GoldenSet:
        async with open_phoenix(load_settings().phoenix) as phoenix:
            return await phoenix.download_golden_set(name)

    golden_set = run_async(work)
    write_golden_set(golden_set.cases, output)
    print_to_stderr(f"Wrote {format_count(len(golden_set.cases), 'case')} to {output}.")


@app.command()
def feedback(user: UserOption = None, tenant: TenantOption = "default") -> None:
    """Send the user's ratings of traced answers to Phoenix, and store what people wrote about these answers there."""
    from rem.cli.output import format_count
    from rem.context import Scope
    from rem.evals.phoenix import open_phoenix, pull_feedback, push_feedback

    scope = Scope.for_user(require_user(user), tenant)

    async def work(rem: Rem) -> tuple[int, int]:
        async with open_phoenix(rem.settings.phoenix) as phoenix:
            return await push_feedback(rem, scope, phoenix), await pull_feedback(rem, scope, phoenix)

    sent, received = run_with_rem(work)
    echo(f"Sent {format_count(sent, 'rating')}, and stored {format_count(received, 'new rating')}.")

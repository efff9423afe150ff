"""`python -m bench`: measure the speed of REM, and how well it finds and answers."""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from typing import Annotated

import typer

from rem.cli.runtime import set_up_logging
from rem.cli.terminal_text import echo
from rem.errors import RemError

SPEED = (
    *("startup", "parse", "bulk_load", "lookup", "fuzzy", "traverse", "search", "embedder", "chat", "jobs"),
    *("reranker", "ingest", "dreaming", "http", "attacks", "encryption", "partitions", "web"),
)
SPEED_ON_REQUEST = ("processes", "tenants", "backup", "search_large", "crashes", "notes")
"""Those that need root, or minutes and gigabytes."""
QUALITY = {
    "longmemeval": "bench.quality.commands",
    "locomo": "bench.quality.commands",
    "beam": "bench.quality.commands",
    "own": "bench.quality.commands",
    "documents": "bench.quality.commands",
    "week": "bench.quality.week.command",
    "month": "bench.quality.month.command",
    "memory": "bench.quality.memory.command",
    "answers": "bench.quality.answers.command",
}
"""The module of each command. It has a function of the same name."""
EPILOG = """\b
How well REM finds and answers (each with --help):
  python -m bench longmemeval FILE   find the sessions that answer a question
  python -m bench locomo FILE        find the messages that answer a question
  python -m bench beam FILE          the same in long chats with an assistant
  python -m bench own CORPUS QUESTIONS
                                     find the answers in your own texts
  python -m bench documents FOLDER   find documents, beside plain BM25
  python -m bench week [FILE]        live through a week, and ask about it
  python -m bench month [FOLDER]     ask about a month of two people, and score what the reader sees
  python -m bench memory             all of it in one report, compared with the last one
  python -m bench answers DATASET FILE
                                     answers of a language model, judged by another
"""


def check_names(names: list[str] | None) -> list[str] | None:
    """Refuse a name that no benchmark has."""
    known = (*SPEED, *SPEED_ON_REQUEST)
    for name in names or ():
        if name not in known:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(known)}.")
    return names


def speed(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            callback=check_names,
            help=f"{', '.join(SPEED)}; and, if named: {', '.join(SPEED_ON_REQUEST)}.",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller sizes, to see that it works.")] = False,
    gigabytes: Annotated[float | None, typer.Option(help="The size of the database of `backup`.")] = None,
    rounds: Annotated[int | None, typer.Option(help="The kills of each operation of `crashes`.")] = None,
) -> None:
    """Measure speed as ratios to bare baselines.

    Prints JSON on standard output. The exit code is 1 if a limit is missed.
    """
    from bench.speed import measure_speed

    if not measure_speed(names or SPEED, quick, gigabytes, rounds):
        raise typer.Exit(1)


def main() -> None:
    """Run the command that the first argument names, or else the benchmarks of speed."""
    name, *rest = sys.argv[1:] or [""]
    app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None, add_completion=False)
    if name not in QUALITY:
        app.command(epilog=EPILOG)(speed)
        app(prog_name="python -m bench")
    set_up_logging(verbose=False)
    # As in the command `rem`.
    gc.set_threshold(20_000, 20, 20)
    app.command()(getattr(import_module(QUALITY[name]), name))
    try:
        app(rest, prog_name=f"python -m bench {name}")
    except RemError as error:
        echo(f"Error: {error}", err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()

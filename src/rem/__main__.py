"""`python -m rem` is `rem`."""

from rem.cli.main import run

run()

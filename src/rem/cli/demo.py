"""`rem demo`: the sample workspace, and what to try with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from rem.cli.runtime import Json, Tenant, run_with_rem

if TYPE_CHECKING:
    from rem.app import Rem
    from rem.db.load import LoadReport

_TRY = """
The sample workspace is loaded. Try:

  rem lookup sarah-chen                  a person, by her key
  rem lookup "Quarterly Report"          the same key however you write it; its edges point at her
  rem lookup users/sarah@example.com     by e-mail address, in one table
  rem db status                          what is stored, and where
  rem db dump -o workspace.yaml          all of it as YAML; `rem db load` reads it back
"""


def demo(tenant: Tenant = "default", as_json: Json = False) -> None:
    """Load a small, linked sample workspace and show what to try with it. Loading it again changes nothing."""
    from rem.cli.db import print_load_report
    from rem.cli.output import print_json, progress_bar

    async def work(rem: Rem) -> LoadReport:
        with progress_bar("Loading") as on_rows:
            return await rem.load_demo(tenant=tenant, on_rows=on_rows)

    report = run_with_rem(work)
    if as_json:
        print_json(report)
        return
    print_load_report(report)
    typer.echo(_TRY)

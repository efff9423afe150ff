"""`rem dreaming`: derive moments, entities, relations and profiles from memories, and see to it that they hold."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from rem.cli.runtime import JsonOption, TenantOption, UserOption, print_to_stderr, run_with_rem

if TYPE_CHECKING:
    from rem.app import Rem
    from rem.context import Scope
    from rem.dreaming.audit import AuditReport
    from rem.dreaming.dreamer import DreamReport
    from rem.dreaming.history import StatementRecord

app = typer.Typer(
    help="Derive moments, entities, relations and profiles from memories; each with where it came from.",
    no_args_is_help=True,
)

Everyone = Annotated[bool, typer.Option("--all", help="For everyone in the tenant, one after the other.")]
Again = Annotated[
    bool,
    typer.Option(
        "--again",
        help="Look at everything, not only at what is new, also at what was undone. What you deleted or corrected "
        "stays so.",
    ),
]

_SOURCES_SHOWN = 5
_DREAMS = {
    "entities": "People, organisations and projects that were named, each under one key with its aliases.",
    "moments": "Episodes from conversations and texts: when, who, about what.",
    "affinity": "Edges between memories that belong together, for TRAVERSE.",
    "ontology": "Structured knowledge from new files, by the extraction agents that ontology_configs choose.",
    "profiles": "What a user works on, is interested in, and prefers.",
    "full": "All of them, in the order in which one builds on the other.",
}


def _add_command(name: str, text: str) -> None:
    def command(
        user: UserOption = None,
        tenant: TenantOption = "default",
        everyone: Everyone = False,
        again: Again = False,
        as_json: JsonOption = False,
    ) -> None:
        _dream(None if name == "full" else [name], user, tenant, everyone, again, as_json)

    app.command(name, help=text)(command)


for _name, _text in _DREAMS.items():
    _add_command(_name, _text)


def _dream(names: list[str] | None, user: str | None, tenant: str, everyone: bool, again: bool, as_json: bool) -> None:
    from rem.cli.output import print_json
    from rem.errors import InvalidInputError

    if everyone and user is not None:
        raise InvalidInputError("--all means everyone: leave --user out, or --all.")

    async def work(rem: Rem) -> list[tuple[Scope, DreamReport]]:
        from rem.agents.service import Agents
        from rem.context import Scope
        from rem.settings import get_settings

        agents = Agents(rem, get_settings())
        try:
            dreamer = rem.dreamer(agents.extraction_model, agents.output_schemas)
            scopes = (
                [Scope(*owner) for owner in await dreamer.list_owners(tenant)]
                if everyone
                else [Scope.for_user(user, tenant)]
            )
            return [(scope, await _with_progress(dreamer, scope, names, again, user)) for scope in scopes]
        finally:
            await agents.close()

    reports = run_with_rem(work)
    if as_json:
        print_json([_as_json(scope, report) for scope, report in reports])
        return
    for scope, report in reports:
        _print(_whose(scope, user), report)


async def _with_progress(
    dreamer: Any, scope: Scope, names: list[str] | None, again: bool, user: str | None
) -> DreamReport:
    from rem.cli.output import progress_bar

    with progress_bar("Dreaming") as bar:

        def on_progress(dream: str, done: int, of: int) -> None:
            bar(done, of)

        report: DreamReport = await dreamer.dream(scope, names, again=again, address=user, on_progress=on_progress)
    return report


def _as_json(scope: Scope, report: DreamReport) -> dict[str, Any]:
    return {
        "tenant_id": scope.tenant_id,
        "user_id": scope.user_id,
        "run_id": report.run_id,
        "model": report.model,
        "changes": report.changes,
        "notes": report.notes,
    }


def _whose(scope: Scope, user: str | None) -> str:
    return user or scope.user_id or "what the tenant shares"


def _print(whose: str, report: DreamReport) -> None:
    for note in report.notes:
        print_to_stderr(note)
    if report.run_id is None:
        typer.echo(f"{whose}: nothing new.")
        return
    typer.echo(f"{whose}: run {report.run_id}{f', by {report.model}' if report.model else ''}")
    for dream, changes in report.changes.items():
        refused = f", {changes.refused} left out because you took them back" if changes.refused else ""
        typer.echo(f"  {dream}: {changes.said} said, {changes.ended} ended, {changes.unchanged} unchanged{refused}")


@app.command()
def runs(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many, the latest first.")] = 20,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """The dreams that happened."""
    from rem.cli.output import print_json

    async def work(rem: Rem) -> list[Any]:
        from rem.dreaming.history import list_runs

        return await list_runs(rem.store(user, tenant=tenant), limit)

    found = run_with_rem(work)
    if as_json:
        print_json(found)
    elif not found:
        print_to_stderr("There are no dreams yet: `rem dreaming full` makes one.")
    for run in found if not as_json else ():
        typer.echo(f"{run.id}  {run.started_at:%Y-%m-%d %H:%M}  {run.state:<7}  {', '.join(run.dreams)}")


@app.command()
def undo(
    run: Annotated[UUID, typer.Argument(metavar="RUN", help="The id of a dream, from `rem dreaming runs`.")],
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Take back what a dream said, and let stand again what it had replaced; --again would dream it anew."""
    from rem.cli.output import format_count, print_json

    async def work(rem: Rem) -> int:
        return await rem.dreamer().undo(rem.store(user, tenant=tenant).scope, run)

    undone = run_with_rem(work)
    if as_json:
        print_json({"run_id": run, "statements": undone})
    else:
        typer.echo(f"Took back {format_count(undone, 'statement')}.")


@app.command()
def statements(
    key: Annotated[str | None, typer.Argument(help="What they are about; everything if not given.")] = None,
    at: Annotated[
        datetime | None,
        typer.Option(formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"], help="What was believed at that time (UTC)."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many.")] = 100,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """What dreams said, with its sources; the newest that is valid first, and what was believed before."""
    from datetime import UTC

    from rem.cli.output import print_json

    async def work(rem: Rem) -> list[Any]:
        from rem.dreaming.history import list_statements

        when = at.replace(tzinfo=UTC) if at else None
        return await list_statements(rem.store(user, tenant=tenant), key, at=when, limit=limit)

    found = run_with_rem(work)
    if as_json:
        print_json(found)
    elif not found:
        print_to_stderr("No dream has said anything of it.")
    else:
        _print_statements(found)


def _print_statements(found: list[StatementRecord]) -> None:
    """What was said, once if several sources say the same."""
    same: dict[tuple[str, str, datetime | None], list[StatementRecord]] = {}
    for statement in found:
        state = "evidence" if statement.is_evidence else statement.state
        line = f"[{state}] {statement.entity_type}/{statement.key}{_saying(statement)}"
        same.setdefault((line, statement.dream, statement.valid_to or statement.ended_at), []).append(statement)
    for (line, dream, until), said in same.items():
        since = min(statement.valid_from or statement.stated_at for statement in said)
        held = f"{since:%Y-%m-%d}{f' to {until:%Y-%m-%d}' if until else ''}"
        sources = list(dict.fromkeys(source for statement in said for source in statement.sources))
        more = len(sources) - _SOURCES_SHOWN
        shown = ", ".join(sources[:_SOURCES_SHOWN]) + (f" and {more} more (--json)" if more > 0 else "")
        typer.echo(f"{line}\n    {dream}, {held}, from {shown}")


def _saying(statement: StatementRecord) -> str:
    if statement.kind == "edge":
        return f" {statement.name}"
    value = statement.value
    if statement.kind == "field":
        return f" {statement.name}: {value}"
    said = next((text for name in ("summary", "content", "name") if (text := value.get(name))), "")
    return f": {' '.join(said.split())}" if said else ""


@app.command()
def audit(
    mend: Annotated[bool, typer.Option("--mend", help="Remove what is wrong.")] = False,
    user: UserOption = None,
    tenant: TenantOption = "default",
    everyone: Everyone = False,
    as_json: JsonOption = False,
) -> None:
    """Look for duplicates, statements without source, edges to nothing, stale profiles; exit code 1 if any is left."""
    from rem.cli.output import print_json

    async def work(rem: Rem) -> list[tuple[Scope, AuditReport]]:
        from rem.context import Scope

        dreamer = rem.dreamer()
        scopes = (
            [Scope(*owner) for owner in await dreamer.list_owners(tenant)]
            if everyone
            else [Scope.for_user(user, tenant)]
        )
        return [(scope, await dreamer.audit(scope, mend=mend)) for scope in scopes]

    reports = run_with_rem(work)
    if as_json:
        print_json(
            [
                {"user_id": scope.user_id, "counts": report.counts, "mended": report.mended, **report.findings}
                for scope, report in reports
            ]
        )
    else:
        for scope, report in reports:
            _print_audit(_whose(scope, user), report)
    if any(not report.is_clean and not report.mended for _, report in reports):
        raise typer.Exit(1)


def _print_audit(whose: str, report: AuditReport) -> None:
    typer.echo(f"{whose}:")
    for check, found in report.findings.items():
        typer.echo(f"  {check.replace('_', ' ')}: {len(found)}")
        for finding in found[:5]:
            typer.echo(f"    {finding.key}{f' ~ {finding.other}' if finding.other else ''}")
    if report.mended:
        typer.echo(f"  mended: {report.mended}")

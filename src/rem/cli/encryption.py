"""`rem encryption`: encrypt stored texts, and change their key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rem.cli.runtime import JsonOption, YesOption, audited, confirm, run_with_rem
from rem.cli.terminal_text import echo

if TYPE_CHECKING:
    from rem.app import Rem
    from rem.db.rotation import KeyUse

app = typer.Typer(help="Encrypt stored texts, and change their key.", no_args_is_help=True, rich_markup_mode=None)


@app.command("new-key")
def new_key(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The id of the key: letters, digits, hyphens.")] = "k1",
) -> None:
    """Print a new random key.

    It is for ENCRYPTION__KEYS, or for a line of ENCRYPTION__KEYS_FILE, and is stored nowhere.
    """
    import base64
    import os

    from rem.encryption.key_ring import KEY_BYTES, KEY_ID
    from rem.errors import InvalidInputError

    if not KEY_ID.match(key_id):
        raise InvalidInputError("The id of a key has up to 32 lower-case letters, digits and hyphens: choose another.")
    echo(f"{key_id}:{base64.b64encode(os.urandom(KEY_BYTES)).decode()}")


@app.command("status")
def status(as_json: JsonOption = False) -> None:
    """Show how many stored texts each key encrypts.

    A key that encrypts none can be removed.
    """
    from rem.cli.output import format_count, print_json, print_table

    async def work(rem: Rem) -> dict[str, Any]:
        from rem.db.rotation import count_key_uses, count_remaining

        uses, sealer = await count_key_uses(rem.database), rem.database.sealer
        return {
            "enabled": sealer is not None and sealer.is_sealing,
            "sealing_key": sealer.keys.sealing_id if sealer is not None and sealer.is_sealing else None,
            "keys": [] if sealer is None else list(sealer.keys.ids),
            "texts": [_to_json(use) for use in uses],
            "remaining": count_remaining(uses, sealer),
            "unused_keys": [] if sealer is None else _list_unused(sealer.keys.ids, uses, sealer.keys.sealing_id),
        }

    report = run_with_rem(work)
    if as_json:
        print_json(report)
        return
    rows = [(use["table"], use["column"], use["key"] or "(not encrypted)", use["texts"]) for use in report["texts"]]
    if rows:
        print_table(["table", "column", "key", "texts"], rows)
    how = f"encrypted with {report['sealing_key']}" if report["enabled"] else "not encrypted"
    echo(f"New texts are {how}.")
    if report["remaining"]:
        echo(f"{format_count(report['remaining'], 'text')} still to be changed: `rem encryption rotate` does it.")
    if report["unused_keys"]:
        echo(f"No text uses these keys, which can be removed: {', '.join(report['unused_keys'])}")


@app.command("rotate")
def rotate(yes: YesOption = False, as_json: JsonOption = False) -> None:
    """Encrypt all stored texts with the first key.

    With ENCRYPTION__ENABLED=false, decrypt them.

    It works in batches while others read and write. If it is interrupted, start it again.
    """
    from rem.cli.output import format_count, print_json, progress_bar

    async def work(rem: Rem) -> int:
        from rem.db.rotation import count_key_uses, count_remaining, rotate

        sealer = rem.database.sealer
        remaining = count_remaining(await count_key_uses(rem.database), sealer)
        if sealer is not None and not sealer.is_sealing and remaining and not yes:
            confirm(f"Store {format_count(remaining, 'text')} without encryption?")
        with progress_bar("texts") as on_progress:
            changed = await rotate(rem.database, on_progress)
        await rem.audit_log.record(entry)
        return changed

    with audited("encryption rotate", "default", "admin") as entry:
        changed = run_with_rem(work)
    if as_json:
        print_json({"changed": changed})
    else:
        echo(f"Changed {format_count(changed, 'text')}." if changed else "There is nothing to change.")


def _to_json(use: KeyUse) -> dict[str, Any]:
    return {"table": use.table, "column": use.column, "key": use.key_id, "texts": use.texts}


def _list_unused(ids: tuple[str, ...], uses: list[KeyUse], sealing_id: str) -> list[str]:
    used = {use.key_id for use in uses}
    return [key_id for key_id in ids if key_id not in used and key_id != sealing_id]

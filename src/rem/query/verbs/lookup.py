"""LOOKUP: find entities by their exact keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from rem.context import resolve_user_id
from rem.models.results import Hit, Note, Result, Steps
from rem.query.file_text import MAX_FILE_TEXT_CHARS, read_file_texts
from rem.query.syntax_errors import quote

if TYPE_CHECKING:
    from rem.db.store import Match, Store
    from rem.query.tree import Lookup


async def require_table(store: Store, table: str | None) -> None:
    """Raise an error if there is no such table. A table that another process has just created is learnt first."""
    if table is None or table in store.types.models:
        return
    async with store.executor.connection() as connection:
        await store.types.refresh(connection)
    store.types.get_model(table)


USERS_PREFIX = "users/"
MAX_SHOWN_KEYS = 5
MAX_SHOWN_KEY_CHARS = 80


async def run_lookup(store: Store, query: Lookup, *, with_texts: bool = True) -> Result:
    """Return one hit for each match, in the order of the keys, own rows before shared ones. A note lists the misses.

    The record of a file also has its text, as `content`, unless `with_texts` is false.
    """
    await require_table(store, query.table)
    steps = Steps()
    with steps.measure("lookup") as step:
        matches = await store.find_matches(query.keys, query.table)
        matches += await _find_users_by_address(store, query, matches)
        step.rows = len(matches)
    hints = await _add_file_texts(store, matches, steps) if with_texts else []
    models = store.types.models
    hits = [Hit(match.table, match.record["key"], match.record, asked=match.key, models=models) for match in matches]
    matched_keys = {match.key for match in matches}
    missing_keys = [key for key in query.keys if key not in matched_keys]
    return Result("LOOKUP", hits, notes=(*_explain_missing(missing_keys), *hints), steps=tuple(steps))


async def _find_users_by_address(store: Store, query: Lookup, matches: Sequence[Match]) -> list[Match]:
    """Return the users whose id is derived from an e-mail address that no row has as its key."""
    known = {match.key for match in matches}
    missing = [key for key in query.keys if "@" in key and key not in known]
    addresses = {resolve_user_id(key.removeprefix(USERS_PREFIX)): key for key in missing}
    if not addresses or query.table not in (None, "users"):
        return []
    users = await store.find_matches(list(addresses), "users")
    return [match._replace(key=addresses[match.key]) for match in users]


async def _add_file_texts(store: Store, matches: Sequence[Match], steps: Steps) -> list[Note]:
    """Add the text of each file to its record as `content`. Return a note for each text that is cut."""
    records = {UUID(match.record["id"]): match.record for match in matches if match.table == "files"}
    if not records:
        return []
    with steps.measure("read files") as step:
        # Many files at once are hardly meant to be read completely.
        texts = await read_file_texts(store, list(records), MAX_FILE_TEXT_CHARS // len(records))
        step.rows = len(texts)
    for match in matches:
        if match.table == "files" and (text := texts.get(UUID(match.record["id"]))):
            match.record["content"] = text.text
    return [
        Note("text_cut", f"{records[file_id]['name']}: {text.hint}") for file_id, text in texts.items() if text.hint
    ]


def _explain_missing(keys: list[str]) -> tuple[Note, ...]:
    if not keys:
        return ()
    shown = [_shorten(key) for key in keys[:MAX_SHOWN_KEYS]]
    more = f" and {len(keys) - MAX_SHOWN_KEYS} more" if len(keys) > MAX_SHOWN_KEYS else ""
    text = f"No match for {', '.join(shown)}{more}. FUZZY {quote(shown[0])} finds similar keys."
    return (Note("missing_key", text),)


def _shorten(key: str) -> str:
    return key if len(key) <= MAX_SHOWN_KEY_CHARS else f"{key[:MAX_SHOWN_KEY_CHARS]}…"

"""SQL: run a SELECT of a user in the sandbox."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rem.encryption.sealed_values import PREFIX
from rem.models.results import JsonRow, Note, Result, Step
from rem.query.file_text import read_file_texts

ENCRYPTED = "[encrypted]"
ENCRYPTED_NOTE = Note("encrypted", "SQL does not read encrypted texts: LOOKUP and SEARCH do.")
MAX_LISTED_CHARS = 300
_PART = re.compile(r"rem1:[a-z0-9-]*+(?::[A-Za-z0-9_-]*+){0,2}")
"""An encrypted text, or its beginning."""

if TYPE_CHECKING:
    from rem.db.sandbox import SqlSandbox
    from rem.db.store import Store
    from rem.query.tree import Sql


async def run_sql(sandbox: SqlSandbox, store: Store, query: Sql, *, limit: int | None = None) -> Result:
    """Return the rows of a SELECT in the scope of a store. It does not see an open transaction of the store."""
    selection = await sandbox.select(store.scope, query.statement, limit=limit)
    notes = []
    if selection.is_cut_off:
        text = f"Only the first {len(selection.rows)} rows are here: narrow with WHERE, or page with LIMIT and OFFSET."
        notes.append(Note("rows_cut", text))
    step = Step("select", selection.milliseconds, len(selection.rows))
    rows = selection.rows
    # Without a key, too: texts may have been encrypted since this process was started.
    if store.executor.sealer is not None or _has_encrypted_texts(rows):
        rows, has_encrypted = await _show_encrypted(store, rows)
        notes += [ENCRYPTED_NOTE] if has_encrypted else []
    return Result("SQL", rows=rows, notes=tuple(notes), steps=(step,))


def _has_encrypted_texts(rows: list[JsonRow]) -> bool:
    return any(isinstance(value, str) and value.startswith(PREFIX) for row in rows for value in row.values())


async def _show_encrypted(store: Store, rows: list[JsonRow]) -> tuple[list[JsonRow], bool]:
    """Replace encrypted texts by their contents in rows that name their table and key, and by a mark in others."""
    names = {
        f"{row['table']}/{row['key']}"
        for row in rows
        if isinstance(row.get("content"), str)
        and row["content"].startswith(PREFIX)
        and isinstance(row.get("table"), str)
        and isinstance(row.get("key"), str)
    }
    found = await _fetch_texts(store, names)
    shown: list[JsonRow] = []
    has_encrypted = False
    for row in rows:
        text = found.get(f"{row.get('table')}/{row.get('key')}")
        if text is not None and str(row.get("content")).startswith(PREFIX):
            row = {**row, "content": text[:MAX_LISTED_CHARS]}
        marked = {name: _mark(value) for name, value in row.items()}
        has_encrypted = has_encrypted or marked != row
        shown.append(marked)
    return shown, has_encrypted


async def _fetch_texts(store: Store, names: set[str]) -> dict[str, str]:
    """Return the texts of rows by table and key; of a file, its beginning."""
    matches = await store.find_matches(sorted(names)) if names else []
    files = {UUID(match.record["id"]): match.key for match in matches if match.table == "files"}
    texts = {files[file_id]: text.text for file_id, text in (await read_file_texts(store, list(files))).items()}
    for match in matches:
        text = match.record.get("content") or match.record.get("summary")
        if text and match.key not in texts:
            texts[match.key] = str(text)
    return texts


def _mark(value: Any) -> Any:
    if isinstance(value, str):
        return _PART.sub(ENCRYPTED, value) if PREFIX in value else value
    if isinstance(value, list):
        return [_mark(item) for item in value]
    if isinstance(value, dict):
        return {name: _mark(item) for name, item in value.items()}
    return value

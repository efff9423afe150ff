"""Turn the rows of a query result into flat rows for a model: the text once, its date, its key, and little else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

from rem.query.result import QueryResult
from rem.text import fold_text
from rem.tools.excerpt import pick_excerpt
from rem.tools.trimming import drop_empty_fields

TEXT_FIELDS = ("text", "content", "summary", "description", "body")
"""Fields that hold the text of an entity, the main one first."""
MAX_TEXT_CHARS = 1_200
MIN_TEXT_CHARS = 160
TEXTS_BUDGET_CHARS = 5_600
"""Length of all texts of a result together: with the other fields, ten hits take about 2,000 tokens. It is counted in
bytes of UTF-8, because a character of a script with several bytes takes more tokens than a Latin letter."""
MAX_CONTINUED_CHARS = 240
"""Length of the messages around one that say what it is about."""
MINUTES, DAYS = len("2026-11-14T10:20"), len("2026-11-14")
_WALK_FIELDS = ("depth", "rel_type", "direction", "count", "destinations")
_HIDDEN_FIELDS = frozenset(
    [
        *("id", "key", "created_at", "updated_at", "expires_at", "graph_edges", "origin", "run_id", "kind"),
        *("session_id", "message_index", "token_count", "tool_calls", "tool_call_id", "ordinal"),
    ]
)
"""Columns of a record that a model does not need, or that stand elsewhere in the row."""


def to_flat_rows(result: QueryResult, query_text: str, session_id: str | None = None) -> list[dict[str, Any]]:
    """Return the rows for a model. LOOKUP keeps whole texts and all fields that are set; other verbs keep excerpts.

    A row whose text is an excerpt has `chars`, the length of the whole text.
    """
    max_chars = count_text_chars(result.count)
    rows = []
    for row in result.results:
        record = row.get("record")
        if result.query_type == "SQL" or not isinstance(record, Mapping):
            rows.append(_flatten_sql_row(row))
        elif result.query_type == "LOOKUP" and "passage" not in row:
            rows.append(_flatten_whole_row(row, record, session_id))
        else:
            rows.append(_flatten_hit(row, record, query_text, max_chars, session_id))
    return rows


def count_text_chars(row_count: int) -> int:
    """Return the maximum length of one text in a result with this many rows."""
    return max(MIN_TEXT_CHARS, min(MAX_TEXT_CHARS, TEXTS_BUDGET_CHARS // max(row_count, 1)))


def find_text(record: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the name and the value of the field that holds the text of an entity; None if it has none."""
    texts = ((name, record.get(name)) for name in TEXT_FIELDS)
    return next(((name, text) for name, text in texts if isinstance(text, str) and text.strip()), None)


def find_note_title(row: Mapping[str, Any], key: str, text: str) -> str | None:
    """Return the title of an ingested note, unless its key or its text has it.

    A note about a person may say "she" throughout, and have the name only in its front matter.
    """
    metadata = row.get("metadata")
    title = metadata.get("title") if isinstance(metadata, Mapping) else None
    if not isinstance(title, str) or not title.strip():
        return None
    folded = fold_text(title)
    return None if folded.replace(" ", "-") in key.casefold() or folded in fold_text(text) else title


def _flatten_hit(
    row: Mapping[str, Any], record: Mapping[str, Any], query_text: str, max_chars: int, session_id: str | None
) -> dict[str, Any]:
    flat = dict(_list_common_fields(row, record, session_id))
    _, whole = find_text(record) or ("", "")
    text, passage = whole, row.get("passage")
    if isinstance(passage, Mapping):
        # A session that was found by its name alone has no text.
        text = passage["text"] or ""
        if passage["key"] == row["key"]:
            whole = str(record.get(passage["field"]) or "")
        else:
            # A session is found by a message, and a message may be found by its moment.
            flat["passage_key"] = passage["key"]
    if not text.strip():
        return flat | drop_empty_fields({"name": record.get("name")})
    flat["text"] = pick_excerpt(text.strip(), query_text, max_chars * len(text) // len(text.encode()))
    if title := find_note_title(record, str(row["key"]), flat["text"]):
        flat["title"] = title
    if len(flat["text"]) < len(whole.strip()):
        flat["chars"] = len(whole)
    for name in ("said_before", "said_after"):
        if row.get(name):
            flat[name] = pick_excerpt("\n".join(row[name]), query_text, MAX_CONTINUED_CHARS)
    return flat


def _flatten_whole_row(row: Mapping[str, Any], record: Mapping[str, Any], session_id: str | None) -> dict[str, Any]:
    flat = dict(_list_common_fields(row, record, session_id))
    text_field, text = find_text(record) or ("", "")
    others = {name: value for name, value in record.items() if name not in (*_HIDDEN_FIELDS, *flat, text_field)}
    edges = _group_edges(record.get("graph_edges"))
    return flat | drop_empty_fields({**others, "edges": edges, "text": text})


def _flatten_sql_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a SELECT. Of a whole entity (SELECT *), only those that a model needs."""
    if not {"id", "tenant_id", "created_at", "graph_edges"} <= row.keys():
        return dict(row)
    edges = _group_edges(row["graph_edges"])
    kept = {name: value for name, value in row.items() if name not in _HIDDEN_FIELDS - {"key", "created_at"}}
    return drop_empty_fields({**kept, "edges": edges})


def _list_common_fields(
    row: Mapping[str, Any], record: Mapping[str, Any], session_id: str | None
) -> Iterator[tuple[str, Any]]:
    table, key = row["table"], row["key"]
    yield from (("table", table), ("key", key))
    for name in ("asked", "matched_key"):
        if row.get(name) not in (None, key):
            yield name, row[name]
    if isinstance(row.get("score"), int | float):
        yield "score", round(row["score"], 2)
    if row.get("happened_at"):
        yield "happened_at", str(row["happened_at"])[: MINUTES if table == "messages" else DAYS]
    yield from ((name, row[name]) for name in (*_WALK_FIELDS, "superseded_by") if row.get(name) is not None)
    if row.get("superseded_at"):
        yield "superseded_at", str(row["superseded_at"])[:DAYS]
    path = row.get("path")
    if isinstance(path, list) and len(path) > 1:
        yield "from", path[-2]
        if len(path) > 2:
            yield "path", " > ".join(path)
    if record.get("role"):
        yield "role", record["role"]
    if table == "messages":
        yield from _list_message_fields(record, session_id)


def _list_message_fields(record: Mapping[str, Any], session_id: str | None) -> Iterator[tuple[str, Any]]:
    speaker = (record.get("metadata") or {}).get("speaker")
    if speaker:
        yield "speaker", speaker
    # The key of a message names its session.
    if session_id is not None and UUID(str(record["session_id"])) == UUID(session_id):
        yield "session", "current"


def _group_edges(edges: Any) -> dict[str, list[str]]:
    """Return the edges as the keys that they lead to, by type."""
    grouped: dict[str, list[str]] = defaultdict(list)
    for edge in edges if isinstance(edges, list) else ():
        grouped[edge["rel_type"]].append(edge["dst"])
    return dict(grouped)

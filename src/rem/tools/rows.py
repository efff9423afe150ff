"""Turn the rows of a query result into flat rows for a model: the text once, its date, its key, and little else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any
from uuid import UUID

from rem.models.results import Hit, JsonRow, Ref, Result, Walk
from rem.text import fold_text
from rem.tools.excerpt import pick_excerpt
from rem.tools.trimming import drop_empty_fields

MAX_TEXT_CHARS = 1_200
MIN_TEXT_CHARS = 160
TEXTS_BUDGET_CHARS = 5_600
"""Length of all texts of a result together: with the other fields, ten hits take about 2,000 tokens. It is counted in
bytes of UTF-8, because a character of a script with several bytes takes more tokens than a Latin letter."""
MAX_CONTINUED_CHARS = 240
"""Length of the messages around one that say what it is about."""
MINUTES, DAYS = len("2026-11-14T10:20"), len("2026-11-14")
_HIDDEN_FIELDS = frozenset(
    [
        *("id", "key", "created_at", "updated_at", "expires_at", "graph_edges", "origin", "run_id", "kind"),
        *("session_id", "message_index", "token_count", "tool_calls", "tool_call_id", "ordinal"),
    ]
)
"""Columns of a record that a model does not need, or that stand elsewhere in the row."""


def to_flat_rows(result: Result, query_text: str, session_id: str | None = None) -> list[JsonRow]:
    """Return the rows for a model. LOOKUP keeps whole texts and all fields that are set; other verbs keep excerpts.

    A row whose text is an excerpt has `chars`, the length of the whole text.
    """
    max_chars = count_text_chars(result.count)
    hits = [
        _flatten_whole_hit(hit, session_id)
        if result.verb == "LOOKUP" and hit.passage is None
        else _flatten_hit(hit, query_text, max_chars, session_id)
        for hit in result.hits
    ]
    return [*hits, *map(asdict, result.edges), *map(_flatten_sql_row, result.rows)]


def count_text_chars(row_count: int) -> int:
    """Return the maximum length of one text in a result with this many rows."""
    return max(MIN_TEXT_CHARS, min(MAX_TEXT_CHARS, TEXTS_BUDGET_CHARS // max(row_count, 1)))


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


def _flatten_hit(hit: Hit, query_text: str, max_chars: int, session_id: str | None) -> JsonRow:
    flat = dict(_list_common_fields(hit, session_id))
    # A session that was found by its name alone has no text.
    text, whole = hit.shown_text, hit.text
    if hit.passage is not None and hit.passage.key == hit.key:
        whole = str(hit.record.get(hit.passage.field) or "")
    elif hit.passage is not None:
        # A session is found by a message, and a message may be found by its moment.
        flat["passage_key"] = hit.passage.key
    if not text.strip():
        return flat | drop_empty_fields({"name": hit.record.get("name")})
    flat["text"] = pick_excerpt(text.strip(), query_text, max_chars * len(text) // len(text.encode()))
    if title := find_note_title(hit.record, hit.key, flat["text"]):
        flat["title"] = title
    if len(flat["text"]) < len(whole.strip()):
        flat["chars"] = len(whole)
    said = {"said_before": hit.said_before, "said_after": hit.said_after}
    return flat | {
        name: pick_excerpt("\n".join(texts), query_text, MAX_CONTINUED_CHARS) for name, texts in said.items() if texts
    }


def _flatten_whole_hit(hit: Hit, session_id: str | None) -> JsonRow:
    flat = dict(_list_common_fields(hit, session_id))
    hidden = (*_HIDDEN_FIELDS, *flat, hit.text_field)
    others = {name: value for name, value in hit.record.items() if name not in hidden}
    edges = _group_edges(hit.record.get("graph_edges"))
    return flat | drop_empty_fields({**others, "edges": edges, "text": hit.text})


def _flatten_sql_row(row: Mapping[str, Any]) -> JsonRow:
    """Return the columns of a SELECT. Of a whole entity (SELECT *), only those that a model needs."""
    if not {"id", "tenant_id", "created_at", "graph_edges"} <= row.keys():
        return dict(row)
    edges = _group_edges(row["graph_edges"])
    kept = {name: value for name, value in row.items() if name not in _HIDDEN_FIELDS - {"key", "created_at"}}
    return drop_empty_fields({**kept, "edges": edges})


def _list_common_fields(hit: Hit, session_id: str | None) -> Iterator[tuple[str, Any]]:
    yield from (("table", hit.table), ("key", hit.key))
    for name, given in (("asked", hit.asked), ("matched_key", hit.fuzzy and hit.fuzzy.key)):
        if given not in (None, hit.key):
            yield name, given
    if hit.score is not None:
        yield "score", round(hit.score, 2)
    if hit.happened_at is not None:
        yield "happened_at", hit.happened_at.isoformat()[: MINUTES if hit.table == "messages" else DAYS]
    if hit.replaced_by is not None:
        yield from _list_successor(hit.replaced_by)
    if hit.said_by is not None:
        yield "said_by", hit.said_by
    if hit.walk is not None:
        yield from _list_walk_fields(hit.walk)
    if hit.record.get("role"):
        yield "role", hit.record["role"]
    if hit.table == "messages":
        yield from _list_message_fields(hit.record, session_id)


def _list_successor(newer: Ref) -> Iterator[tuple[str, Any]]:
    yield "superseded_by", newer.key
    if newer.happened_at is not None:
        yield "superseded_at", newer.happened_at.date().isoformat()


def _list_walk_fields(walk: Walk) -> Iterator[tuple[str, Any]]:
    yield from (("depth", walk.depth), ("rel_type", walk.rel_type), ("direction", walk.direction))
    if len(walk.path) > 1:
        yield "from", walk.path[-2]
    if len(walk.path) > 2:
        yield "path", " > ".join(walk.path)


def _list_message_fields(record: Mapping[str, Any], session_id: str | None) -> Iterator[tuple[str, Any]]:
    speaker = (record.get("metadata") or {}).get("speaker")
    if speaker:
        yield "speaker", speaker
    if record.get("model"):
        yield "model", record["model"]
    # The key of a message names its session.
    if session_id is not None and UUID(str(record["session_id"])) == UUID(session_id):
        yield "session", "current"


def _group_edges(edges: Any) -> dict[str, list[str]]:
    """Return the edges as the keys that they lead to, by type."""
    grouped: dict[str, list[str]] = defaultdict(list)
    for edge in edges if isinstance(edges, list) else ():
        grouped[edge["rel_type"]].append(edge["dst"])
    return dict(grouped)

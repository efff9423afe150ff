"""What an agent finds in its memory, without what is being said right now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rem.query.result import QueryResult

_FETCHED = 3
"""So many times as many rows are fetched as are wanted, because some will be left out."""
_MOST_FETCHED = 100


def rows_to_fetch(wanted: int) -> int:
    """How many rows a search over everything needs, so that enough remain."""
    return min(wanted * _FETCHED, max(wanted, _MOST_FETCHED))


def without_this_talk(result: QueryResult, asked: str, session_id: str | None, wanted: int) -> QueryResult:
    """The best rows of a search over everything that are no echo of the question.

    The question is stored before it is answered and fits itself best; who asks the same again has asked it before. The
    model knows the conversation that it is in. At most half of the rows are messages, if there is enough else.
    """
    rows = list(_no_echo(result.results, _plain(asked), session_id))
    others = sum(row["table"] != "messages" for row in rows)
    room = max(wanted // 2, wanted - others)
    kept = []
    for row in rows:
        if row["table"] == "messages":
            room -= 1
            if room < 0:
                continue
        kept.append(row)
    return replace(result, results=kept[:wanted])


def _no_echo(rows: list[dict[str, Any]], asked: str, session_id: str | None) -> Iterator[dict[str, Any]]:
    seen = {asked}
    for row in rows:
        if row.get("table") == "messages":
            record = row["record"]
            said = _plain(str(record.get("content", "")))
            if said in seen or (session_id is not None and record.get("session_id") == session_id):
                continue
            seen.add(said)
        yield row


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()

"""Pick excerpts from a search result, and write the answer of `rem:local` with them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import orjson

from rem.agents.local.plain_markdown import strip_markdown
from rem.query.list_questions import NOTHING_STORED
from rem.query.natural import WEAK_NOTE
from rem.query.verbs.search import WAITING_NOTE
from rem.text import collapse_spaces, shorten_message_key
from rem.tools import excerpt
from rem.tools.rows import find_note_title, find_text

NOTICE = "No language model is configured"
OPENING = "Here is what memory holds on that"
"""Beginning of an answer with excerpts."""
ELSE = "Ask me about anything else that you have stored."
"""End of an answer to small talk."""
NO_CLEAR_ANSWER = "I found nothing that clearly answers this"
NOTHING_FOUND = "I found nothing about that in memory"
CONFIRMATION = "Noted: “"
"""Beginning of the confirmation of a statement, before its text."""
_OWN_PHRASES = (NOTICE, OPENING, ELSE, NO_CLEAR_ANSWER, NOTHING_FOUND, CONFIRMATION)
"""A stored message with one of these is an answer of `rem:local`, which is never quoted."""
_HOW_TO_CHANGE = (
    f"{NOTICE}, so these are excerpts from memory, not a written answer. "
    "Set `LLM__DEFAULT_MODEL` (for example `openai:gpt-4o`) to get one."
)
MAX_EXCERPTS = 5
MAX_EXCERPT_CHARS = 320
MAX_READ_CHARS = 10 * MAX_EXCERPT_CHARS
"""The rest of a text does not matter for its beginning on one line."""
MAX_FIRST_EXCERPT_CHARS = 560
"""Length of the best match, which has the answer more often than all others."""
MAX_LISTED_ROWS = 20
MAX_LISTED_CHARS = 160
"""The number of rows of a list that are shown, and their length."""
MAX_LOOKUP_CHARS = 8_000
"""Length of an excerpt if the user looked up one entity to read it."""
MAX_VALUE_CHARS = 80
WORDS_PER_CHUNK = 4
_KINDS = {
    "resources": "note",
    "moments": "moment",
    "messages": "message",
    "users": "person",
    "sessions": "session",
    "files": "file",
    "ontologies": "knowledge base",
}
"""What a row of a table is called in an answer. Other tables go by their own names."""
_TAG = re.compile(r"<([A-Za-z/!?][^<>]*)(>?)")
"""An HTML tag or an address in angle brackets, but not "a < b" or "->"."""
_CUT_NOTE = re.compile(r"… \[cut: [^\]]*\]\Z")
_WORD_WITH_SPACE = re.compile(r"\S+\s*|\s+")
_VERB_CONFIDENCE = {"LOOKUP": 0.9, "FUZZY": 0.6, "TRAVERSE": 0.8, "SQL": 0.8}
_SINGULARS = {
    "notes": "note",
    "files": "file",
    "messages": "message",
    "sessions": "session",
    "people": "person",
    "moments": "moment",
    "memories": "memory",
}
MIN_SEARCH_CONFIDENCE, DEFAULT_CONFIDENCE, MAX_SEARCH_CONFIDENCE = 0.1, 0.5, 0.8


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The quoted part of one row."""

    key: str | None
    kind: str | None
    """What the row is and when it happened, such as "note, 14 Nov 2026"."""
    text: str
    superseded: str = ""
    """What replaced it, such as "superseded on 14 Nov 2026 by `new-address`"."""


@dataclass(frozen=True, slots=True)
class Excerpts:
    """The excerpts of a search result, best first, or the error of the search."""

    items: tuple[Excerpt, ...] = ()
    confidence: float = 0.0
    error: str | None = None
    is_lookup: bool = False
    """The user looked up one entity, so its text is quoted at length."""
    is_weak: bool = False
    """No row clearly answers the question."""
    is_list: bool = False
    hidden: int = 0
    """Rows of a list that are not shown."""
    remark: str = ""
    """Text for an answer without rows."""
    warning: str = ""
    """What was not searched."""

    @property
    def keys(self) -> list[str]:
        """The keys of the quoted rows, without duplicates."""
        return list(dict.fromkeys(item.key for item in self.items if item.key))


def parse_search_result(content: Any, questions: Sequence[str], *, is_lookup: bool = False) -> Excerpts:
    """Return the excerpts of a tool result. Messages that repeat one of the `questions` are skipped."""
    result = _parse_json(content)
    if not isinstance(result, Mapping):
        return Excerpts(error=shorten(str(result)))
    if result.get("status") == "error" or (result.get("error") and "results" not in result):
        return Excerpts(error=shorten(str(result.get("error", "it failed"))))
    rows = [row for row in _get_rows(result) if not _is_echo(row, questions)]
    is_list = str(result.get("query_type", "")).upper() == "SQL"
    lengths = (MAX_LOOKUP_CHARS if is_lookup else MAX_LISTED_CHARS if is_list else 0) or None
    excerpts = [
        _make_excerpt(row, " ".join(questions), lengths or (MAX_EXCERPT_CHARS if place else MAX_FIRST_EXCERPT_CHARS))
        for place, row in enumerate(rows)
    ]
    quoted = [excerpt for excerpt in excerpts if excerpt.text]
    items = tuple(quoted[: MAX_LISTED_ROWS if is_list else MAX_EXCERPTS])
    notes = [str(note) for note in result.get("notes") or ()]
    return Excerpts(
        items,
        _estimate_confidence(result, rows[0]) if items else 0.0,
        is_lookup=is_lookup,
        is_weak=WEAK_NOTE in notes,
        is_list=is_list,
        hidden=len(quoted) - len(items) if is_list else 0,
        remark=next((note for note in notes if note.startswith(NOTHING_STORED)), ""),
        warning=WAITING_NOTE if WAITING_NOTE in notes else "",
    )


def pick_excerpt(text: str, question: str, max_chars: int = MAX_EXCERPT_CHARS) -> str:
    """Return the text in one line; if it is too long, the sentences with most words of the question."""
    return excerpt.pick_excerpt(_to_plain_line(text), question, max_chars)


def describe_date(time: str, today: date | None = None) -> str:
    """Return the day of an ISO time as people say it: today, yesterday or 14 Nov 2026; "" if it is not a time."""
    try:
        moment = datetime.fromisoformat(time)
    except ValueError:
        return ""
    day, today = moment.date(), today or datetime.now(moment.tzinfo or UTC).date()
    if day in (today, today - timedelta(days=1)):
        return "today" if day == today else "yesterday"
    return f"{day.day} {day:%b %Y}"


def shorten(text: str) -> str:
    """Return the beginning of a text, in one line."""
    text = _to_plain_line(text.lstrip()[:MAX_READ_CHARS])
    return text if len(text) <= MAX_EXCERPT_CHARS else f"{text[:MAX_EXCERPT_CHARS]}…"


def write_answer(excerpts: Excerpts) -> str:
    """Return the answer to a question, in Markdown."""
    answer = _write_body(excerpts)
    return f"{answer}\n\n{excerpts.warning}" if excerpts.warning else answer


def _write_body(excerpts: Excerpts) -> str:
    if excerpts.error is not None:
        return f"The memory could not be searched: {excerpts.error}\n\n{NOTICE} either: set `LLM__DEFAULT_MODEL`."
    if not excerpts.items and excerpts.remark:
        return f"{excerpts.remark}\n\n{NOTICE}: I can only list and quote what is stored."
    if not excerpts.items:
        return (
            f"{NOTHING_FOUND}. Try other words, or `FUZZY` for "
            f"a name that may be spelt differently.\n\n{NOTICE}: I can only quote what is stored. Set "
            "`LLM__DEFAULT_MODEL` to get written answers."
        )
    lines = [
        f"{number}. {_make_label(item)}{item.text}{f' ({item.superseded})' if item.superseded else ''}"
        f"{_hint_at_rest(item, excerpts.is_lookup)}"
        for number, item in enumerate(excerpts.items, start=1)
    ]
    if excerpts.hidden:
        lines.append(f"\n… and {excerpts.hidden} more. Ask for a shorter time, or name a topic, to see fewer.")
    return "\n".join([_open_answer(excerpts), "", *lines, "", _HOW_TO_CHANGE])


def _open_answer(excerpts: Excerpts) -> str:
    if excerpts.is_weak:
        return f"{NO_CLEAR_ANSWER}. The nearest texts in memory:"
    return f"{OPENING}:" if excerpts.is_list else f"{OPENING}, the best match first:"


def explain_missing_tools() -> str:
    """Return the answer of an agent that has no tool to search with."""
    return (
        f"{NOTICE}, and this agent has no tool to search memory with, so it cannot answer. Set `LLM__DEFAULT_MODEL`, "
        "or ask the agent `rem`."
    )


def split_for_streaming(text: str) -> Iterator[str]:
    """Yield the text in chunks of a few words, as a language model streams it."""
    words = _WORD_WITH_SPACE.findall(text)
    for start in range(0, len(words), WORDS_PER_CHUNK):
        yield "".join(words[start : start + WORDS_PER_CHUNK])


def _parse_json(content: Any) -> Any:
    if not isinstance(content, str):
        return content
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        return content


def _get_rows(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    rows = result.get("results")
    if isinstance(rows, Mapping):
        return _get_rows(rows)
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []


def _is_echo(row: Mapping[str, Any], questions: Sequence[str]) -> bool:
    """Return whether a row is a question itself, which is stored before it is answered, or an answer of `rem:local`."""
    if row.get("table") != "messages":
        return False
    text = str(row.get("text", ""))
    if any(phrase in text for phrase in _OWN_PHRASES) or row.get("role") == "tool":
        return True
    return _to_plain_line(text).casefold() in {_to_plain_line(question).casefold() for question in questions}


def _make_excerpt(row: Mapping[str, Any], question: str, max_chars: int) -> Excerpt:
    key = row.get("key")
    return Excerpt(
        key if isinstance(key, str) and key else None,
        _describe_kind(row),
        "; ".join(_list_quotable_parts(row, question, max_chars)),
        _describe_successor(row),
    )


def _describe_kind(row: Mapping[str, Any]) -> str | None:
    """Return what a row is, who said it and when; None for a row of SQL."""
    table = row.get("table")
    if not isinstance(table, str) or not table:
        return None
    kind = _KINDS.get(table, table)
    text = (find_text(row) or ("", ""))[1]
    heading = "" if table == "messages" else strip_markdown(text).title
    title = heading or row.get("title") or find_note_title(row, str(row.get("key", "")), text)
    if isinstance(title, str) and title:
        kind = f"{kind} “{_format_value(title)}”"
    if table == "messages":
        speaker = row.get("speaker") or {"user": "you", "assistant": "the assistant"}.get(str(row.get("role")))
        kind = f"{_format_value(speaker)} said" if speaker else kind
    return ", ".join(part for part in (kind, describe_date(str(row.get("happened_at", "")))) if part)


def _describe_successor(row: Mapping[str, Any]) -> str:
    if not row.get("superseded_by"):
        return ""
    day = describe_date(str(row.get("superseded_at", "")))
    when = f" {day}" if day in ("today", "yesterday") else f" on {day}" if day else ""
    key = _format_value(shorten_message_key(str(row["superseded_by"]))).replace("`", "")
    return f"superseded{when} by `{key}`"


def _list_quotable_parts(row: Mapping[str, Any], question: str, max_chars: int) -> Iterator[str]:
    """Yield the edge, the role and the text of a row; all columns of a row of SQL without a text."""
    field_and_text = find_text(row)
    if count := _describe_count(row):
        yield count
        return
    if field_and_text is None and ("table" not in row or "count" in row):
        yield ", ".join(f"{name}: {_format_value(value)}" for name, value in row.items() if value is not None)
        return
    if row.get("rel_type"):
        is_incoming, start = row.get("direction") == "in", row.get("from", "")
        yield f"{row['rel_type']} {start}" if is_incoming else f"{start} {row['rel_type']}"
    if row.get("role") and row.get("table") != "messages":
        yield _format_value(row["role"])
    if field_and_text is not None:
        text = _CUT_NOTE.sub("…", field_and_text[1])
        # What somebody said is quoted as it was written.
        plain = text if row.get("table") == "messages" else strip_markdown(text).text
        yield pick_excerpt(plain, question, max_chars) + _quote_continued(row)
    elif row.get("name") and row.get("table") != "sessions":
        yield _format_value(row["name"])


def _describe_count(row: Mapping[str, Any]) -> str:
    """Return the answer to a question such as "how many notes do I have?" in words, or "" for any other row."""
    kinds = {name.removeprefix("shared_") for name in row}
    if len(kinds) != 1 or not kinds <= _SINGULARS.keys() or not all(isinstance(value, int) for value in row.values()):
        return ""
    counts = [
        f"{value} {'shared ' if name.startswith('shared_') else ''}{_SINGULARS[kind] if value == 1 else kind}"
        for name, value in row.items()
        if (kind := name.removeprefix("shared_")) == name or value
    ]
    return " and ".join(counts)


def _quote_continued(row: Mapping[str, Any]) -> str:
    """Return the messages around one that belong to it: "He works at the Crown" says little without them."""
    quotes = (("after", row.get("said_before")), ("then", row.get("said_after")))
    return "".join(f" ({name}: “{_to_plain_line(text)}”)" for name, text in quotes if isinstance(text, str))


def _estimate_confidence(result: Mapping[str, Any], best_row: Mapping[str, Any]) -> float:
    """Return the confidence of an answer: fixed for exact verbs, else the score of the best row."""
    confidence = _VERB_CONFIDENCE.get(str(result.get("query_type", "")).upper())
    if confidence is not None:
        return confidence
    score = best_row.get("score")
    if not isinstance(score, int | float):
        return DEFAULT_CONFIDENCE
    return round(min(max(float(score), MIN_SEARCH_CONFIDENCE), MAX_SEARCH_CONFIDENCE), 2)


def _make_label(item: Excerpt) -> str:
    if item.key is None:
        return ""
    key = shorten_message_key(item.key).replace("`", "")
    return f"`{key}` ({item.kind}): " if item.kind else f"`{key}`: "


def _hint_at_rest(item: Excerpt, is_lookup: bool) -> str:
    """Return how to read the rest of a shortened text."""
    if item.key is None or not item.text.endswith("…") or "`" in item.key:
        return ""
    if is_lookup:
        return f" (the rest: `rem lookup {shlex.quote(item.key)}` in a shell)"
    key = item.key.replace("\\", "\\\\").replace('"', '\\"')
    return f' (read on: `LOOKUP "{key}"`)'


def _format_value(value: Any) -> str:
    text = _to_plain_line(value if isinstance(value, str) else orjson.dumps(value, default=str).decode())
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]}…"


def _to_plain_line(text: str) -> str:
    """Return the text in one line. HTML and images, which a client would render or fetch, become plain text."""
    return _TAG.sub(_replace_brackets, collapse_spaces(text).replace("![", "!\\["))


def _replace_brackets(tag: re.Match[str]) -> str:
    return f"‹{tag[1]}{'›' if tag[2] else ''}"

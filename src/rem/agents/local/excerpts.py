"""Pick excerpts from a search result, and write the answer of `rem:local` with them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from rem.text import collapse_spaces, find_sentence_spans

NOTICE = "No language model is configured"
OPENING = "Here is what memory holds on that"
"""Beginning of an answer with excerpts."""
ELSE = "Ask me about anything else that you have stored."
"""End of an answer to small talk."""
_OWN_PHRASES = (NOTICE, OPENING, ELSE)
"""A stored message with one of these is an answer of `rem:local`, which is never quoted."""
_HOW_TO_CHANGE = (
    f"{NOTICE}, so these are excerpts from memory, not a written answer. "
    "Set `LLM__DEFAULT_MODEL` (for example `openai:gpt-4o`) to get one."
)
MAX_EXCERPTS = 5
MAX_EXCERPT_CHARS = 320
MAX_LOOKUP_CHARS = 8_000
"""Length of an excerpt if the user looked up one entity to read it."""
MAX_VALUE_CHARS = 80
WORDS_PER_CHUNK = 4
_TEXT_FIELDS = ("content", "summary", "description", "text", "snippet")
_WORD = re.compile(r"\w{3,}")
_TAG = re.compile(r"<([A-Za-z/!?][^<>]*)(>?)")
"""An HTML tag or an address in angle brackets, but not "a < b" or "->"."""
_CUT_NOTE = re.compile(r"… \[cut: [^\]]*\]\Z")
_WORD_WITH_SPACE = re.compile(r"\S+\s*|\s+")
_VERB_CONFIDENCE = {"LOOKUP": 0.9, "FUZZY": 0.6, "TRAVERSE": 0.8, "SQL": 0.8}
MIN_SEARCH_CONFIDENCE, DEFAULT_CONFIDENCE, MAX_SEARCH_CONFIDENCE = 0.1, 0.5, 0.8


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The quoted part of one row."""

    key: str | None
    table: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Excerpts:
    """The excerpts of a search result, best first, or the error of the search."""

    items: tuple[Excerpt, ...] = ()
    confidence: float = 0.0
    error: str | None = None
    is_lookup: bool = False
    """The user looked up one entity, so its text is quoted at length."""

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
    question, max_chars = " ".join(questions), MAX_LOOKUP_CHARS if is_lookup else MAX_EXCERPT_CHARS
    excerpts = (_make_excerpt(row, question, max_chars) for row in rows)
    items = tuple(excerpt for excerpt in excerpts if excerpt.text)[:MAX_EXCERPTS]
    return Excerpts(items, _estimate_confidence(result, rows[0]) if items else 0.0, is_lookup=is_lookup)


def pick_excerpt(text: str, question: str, max_chars: int = MAX_EXCERPT_CHARS) -> str:
    """Return the text in one line; if it is too long, from the sentence with most words of the question on."""
    text = _to_plain_line(text)
    if len(text) <= max_chars:
        return text
    words = _list_words(question)
    spans = list(find_sentence_spans(text))
    scores = [len(words & _list_words(text[start:end])) for start, end in spans]
    offset = spans[scores.index(max(scores))][0]
    prefix, excerpt = "… " if offset else "", text[offset:]
    if len(excerpt) <= max_chars:
        return prefix + excerpt
    return f"{prefix}{excerpt[:max_chars].rsplit(' ', 1)[0]} …"


def shorten(text: str) -> str:
    """Return the beginning of a text, in one line."""
    text = _to_plain_line(text)
    return text if len(text) <= MAX_EXCERPT_CHARS else f"{text[:MAX_EXCERPT_CHARS]}…"


def write_answer(excerpts: Excerpts) -> str:
    """Return the answer to a question, in Markdown."""
    if excerpts.error is not None:
        return f"The memory could not be searched: {excerpts.error}\n\n{NOTICE} either: set `LLM__DEFAULT_MODEL`."
    if not excerpts.items:
        return (
            'I found nothing about that in memory. Try other words, a key like `LOOKUP "sarah-chen"`, or `FUZZY` for '
            f"a name that may be spelt differently.\n\n{NOTICE}: I can only quote what is stored. Set "
            "`LLM__DEFAULT_MODEL` to get written answers."
        )
    lines = [
        f"{number}. {_make_label(item)}{item.text}{_hint_at_rest(item, excerpts.is_lookup)}"
        for number, item in enumerate(excerpts.items, start=1)
    ]
    return "\n".join([f"{OPENING}, the best match first:", "", *lines, "", _HOW_TO_CHANGE])


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


def _get_record(row: Mapping[str, Any]) -> Mapping[str, Any]:
    record = row.get("record")
    return record if isinstance(record, Mapping) else row


def _is_echo(row: Mapping[str, Any], questions: Sequence[str]) -> bool:
    """Return whether a row is a question itself, which is stored before it is answered, or an answer of `rem:local`."""
    if row.get("table") != "messages":
        return False
    record = _get_record(row)
    content = str(record.get("content", ""))
    if any(phrase in content for phrase in _OWN_PHRASES) or record.get("role") == "tool":
        return True
    return _to_plain_line(content).casefold() in {_to_plain_line(question).casefold() for question in questions}


def _make_excerpt(row: Mapping[str, Any], question: str, max_chars: int) -> Excerpt:
    key, table = row.get("key"), row.get("table")
    return Excerpt(
        key if isinstance(key, str) and key else None,
        table if isinstance(table, str) and table else None,
        "; ".join(_list_quotable_parts(row, question, max_chars)),
    )


def _list_quotable_parts(row: Mapping[str, Any], question: str, max_chars: int) -> Iterator[str]:
    """Yield the edge, the role and the text of a row; all columns of a row of SQL."""
    record = _get_record(row)
    if "record" not in row and not any(name in row for name in _TEXT_FIELDS):
        yield ", ".join(f"{name}: {_format_value(value)}" for name, value in row.items() if value is not None)
        return
    if row.get("rel_type"):
        path = row.get("path")
        start = f"{path[-2]} " if isinstance(path, list) and len(path) > 1 else ""
        yield f"{start}{row['rel_type']}"
    if record.get("role") and row.get("table") != "messages":
        yield _format_value(record["role"])
    passage = row.get("passage")
    texts = [
        passage.get("text") if isinstance(passage, Mapping) else None,
        *(record.get(name) for name in _TEXT_FIELDS),
    ]
    text = next((text for text in texts if isinstance(text, str) and text.strip()), None)
    if text is not None:
        yield pick_excerpt(_CUT_NOTE.sub("…", text), question, max_chars)
    elif record.get("name"):
        yield _format_value(record["name"])


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
    key = item.key.replace("`", "")
    return f"`{key}` ({item.table}): " if item.table else f"`{key}`: "


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


def _list_words(text: str) -> set[str]:
    return {word.casefold() for word in _WORD.findall(text)}


def _to_plain_line(text: str) -> str:
    """Return the text in one line. HTML and images, which a client would render or fetch, become plain text."""
    return _TAG.sub(_replace_brackets, collapse_spaces(text).replace("![", "!\\["))


def _replace_brackets(tag: re.Match[str]) -> str:
    return f"‹{tag[1]}{'›' if tag[2] else ''}"

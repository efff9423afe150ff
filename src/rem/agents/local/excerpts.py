"""What `rem:local` takes from the result of a search: extracts with their keys, best first."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

NOTICE = "No language model is configured"
OPENING = "Here is what memory holds on that"
"""How an answer with extracts begins."""
ELSE = "Ask me about anything else that you have stored."
"""How an answer ends to which there is nothing to say."""
_OWN = (NOTICE, OPENING, ELSE)
"""By these `rem:local` knows its own answers, so as not to quote them."""
MAX_EXCERPTS = 5
_LONGEST_EXTRACT = 320
_LONGEST_WHOLE = 8_000
"""Of what somebody looked up to read it."""
_LONGEST_VALUE = 80
_TEXTS = ("content", "summary", "description", "text", "snippet")
_WORD = re.compile(r"\w{3,}")
_SENTENCE = re.compile(r"(?<=[.!?…])\s+")
_TAG = re.compile(r"<([A-Za-z/!?][^<>]*)(>?)")
"""What could be HTML, or an address in angle brackets; "a < b" and "->" cannot."""
_CUT = re.compile(r"… \[cut: [^\]]*\]\Z")
_CERTAIN = {"LOOKUP": 0.9, "FUZZY": 0.6, "TRAVERSE": 0.8, "SQL": 0.8}


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A row that was found."""

    key: str | None
    table: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Excerpts:
    """What a search gave, or why it gave nothing."""

    items: tuple[Excerpt, ...] = ()
    confidence: float = 0.0
    problem: str | None = None
    is_whole: bool = False
    """Whether texts were asked for as a whole."""

    @property
    def keys(self) -> list[str]:
        """The keys of what is quoted, each once."""
        return list(dict.fromkeys(item.key for item in self.items if item.key))


def parse_search_result(content: Any, asked: Sequence[str], *, is_whole: bool = False) -> Excerpts:
    """What the content of a tool's answer holds that is worth quoting for what was asked; in `is_whole`, at length."""
    answer = _as_json(content)
    if not isinstance(answer, Mapping):
        return Excerpts(problem=shorten(str(answer)))
    if answer.get("status") == "error" or (answer.get("error") and "results" not in answer):
        return Excerpts(problem=shorten(str(answer.get("error", "it failed"))))
    rows = [row for row in _rows(answer) if not _is_of_this_talk(row, asked)]
    question, longest = " ".join(asked), _LONGEST_WHOLE if is_whole else _LONGEST_EXTRACT
    quoted = tuple(item for item in (_finding(row, question, longest) for row in rows) if item.text)[:MAX_EXCERPTS]
    return Excerpts(quoted, _confidence(answer, rows[0]) if quoted else 0.0, is_whole=is_whole)


def pick_excerpt(text: str, question: str, longest: int = _LONGEST_EXTRACT) -> str:
    """The part of a text that has most of a question's words, in one line and not too long."""
    text = _inline(text)
    if len(text) <= longest:
        return text
    sentences = _SENTENCE.split(text)
    words = {word.casefold() for word in _WORD.findall(question)}
    hits = [len(words & {word.casefold() for word in _WORD.findall(sentence)}) for sentence in sentences]
    start = hits.index(max(hits))
    taken = " ".join(sentences[start:])
    before = "… " if start else ""
    if len(taken) <= longest:
        return before + taken
    return f"{before}{taken[:longest].rsplit(' ', 1)[0]} …"


def _as_json(content: Any) -> Any:
    if not isinstance(content, str):
        return content
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        return content


def _rows(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = answer.get("results")
    if isinstance(found, Mapping):
        return _rows(found)
    return [row for row in found if isinstance(row, Mapping)] if isinstance(found, list) else []


def _is_of_this_talk(row: Mapping[str, Any], asked: Sequence[str]) -> bool:
    """Whether a row is the question itself, which is stored before it is answered, or was made by `rem:local`."""
    if row.get("table") != "messages":
        return False
    content = str(_record(row).get("content", ""))
    if any(phrase in content for phrase in _OWN) or _record(row).get("role") == "tool":
        return True
    return _inline(content).casefold() in {_inline(question).casefold() for question in asked}


def _finding(row: Mapping[str, Any], question: str, longest: int) -> Excerpt:
    key, table = row.get("key"), row.get("table")
    return Excerpt(
        key if isinstance(key, str) and key else None,
        table if isinstance(table, str) and table else None,
        "; ".join(_parts(row, question, longest)),
    )


def _parts(row: Mapping[str, Any], question: str, longest: int) -> Iterator[str]:
    record = _record(row)
    if "record" not in row and not any(name in row for name in _TEXTS):
        # A row of SQL has whatever columns were asked for.
        yield ", ".join(f"{name}: {_value(value)}" for name, value in row.items() if value is not None)
        return
    if row.get("rel_type"):
        path = row.get("path")
        start = f"{path[-2]} " if isinstance(path, list) and len(path) > 1 else ""
        yield f"{start}{row['rel_type']}"
    if record.get("role") and row.get("table") != "messages":
        yield _value(record["role"])
    passage = row.get("passage")
    texts = [passage.get("text") if isinstance(passage, Mapping) else None, *(record.get(name) for name in _TEXTS)]
    text = next((text for text in texts if isinstance(text, str) and text.strip()), None)
    if text is not None:
        yield pick_excerpt(_CUT.sub("…", text), question, longest)
    elif record.get("name"):
        yield _value(record["name"])


def _record(row: Mapping[str, Any]) -> Mapping[str, Any]:
    record = row.get("record")
    return record if isinstance(record, Mapping) else row


def _confidence(answer: Mapping[str, Any], best: Mapping[str, Any]) -> float:
    certain = _CERTAIN.get(str(answer.get("query_type", "")).upper())
    score = best.get("score")
    if certain is not None:
        return certain
    return round(min(max(float(score), 0.1), 0.8), 2) if isinstance(score, int | float) else 0.5


def _value(value: Any) -> str:
    text = _inline(value if isinstance(value, str) else orjson.dumps(value, default=str).decode())
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def shorten(text: str) -> str:
    """The beginning of a text, in one line."""
    text = _inline(text)
    return text if len(text) <= _LONGEST_EXTRACT else f"{text[:_LONGEST_EXTRACT]}…"


def _inline(text: str) -> str:
    """The text in one line; HTML and pictures, which a client would show or fetch, become plain text."""
    return _TAG.sub(_in_other_brackets, " ".join(text.split()).replace("![", "!\\["))


def _in_other_brackets(tag: re.Match[str]) -> str:
    return f"‹{tag[1]}{'›' if tag[2] else ''}"


_HOW_TO_CHANGE = (
    f"{NOTICE}, so these are extracts from memory, not a written answer. "
    "Set `LLM__DEFAULT_MODEL` (for example `openai:gpt-4o`) to get one."
)
_PIECE = re.compile(r"\S+\s*|\s+")
_WORDS_IN_A_PIECE = 4


def write_answer(findings: Excerpts) -> str:
    """The answer to a question, in Markdown."""
    if findings.problem is not None:
        return f"The memory could not be searched: {findings.problem}\n\n{NOTICE} either: set `LLM__DEFAULT_MODEL`."
    if not findings.items:
        return (
            'I found nothing about that in memory. Try other words, a key like `LOOKUP "sarah-chen"`, or `FUZZY` for '
            f"a name that may be spelt differently.\n\n{NOTICE}: I can only quote what is stored. Set "
            "`LLM__DEFAULT_MODEL` to get written answers."
        )
    lines = [
        f"{number}. {_label(item.key, item.table)}{item.text}{_rest(item, findings.is_whole)}"
        for number, item in enumerate(findings.items, start=1)
    ]
    return "\n".join([f"{OPENING}, the best match first:", "", *lines, "", _HOW_TO_CHANGE])


def explain_missing_tools() -> str:
    """The answer of an agent that may not search."""
    return (
        f"{NOTICE}, and this agent has no tool to search memory with, so it cannot answer. Set `LLM__DEFAULT_MODEL`, "
        "or ask the agent `rem`."
    )


def split_for_streaming(text: str) -> Iterator[str]:
    """The text in pieces of a few words, as a model writes it."""
    words = _PIECE.findall(text)
    for start in range(0, len(words), _WORDS_IN_A_PIECE):
        yield "".join(words[start : start + _WORDS_IN_A_PIECE])


def _label(key: str | None, table: str | None) -> str:
    if key is None:
        return ""
    return f"`{key.replace('`', '')}` ({table}): " if table else f"`{key.replace('`', '')}`: "


def _rest(item: Excerpt, is_whole: bool) -> str:
    """How to read on, where the text goes on."""
    if item.key is None or not item.text.endswith("…") or "`" in item.key:
        return ""
    if is_whole:
        return f" (the rest: `rem lookup {shlex.quote(item.key)}` in a shell)"
    key = item.key.replace("\\", "\\\\").replace('"', '\\"')
    return f' (read on: `LOOKUP "{key}"`)'

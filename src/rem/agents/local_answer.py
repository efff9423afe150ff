"""What `rem:local` says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from rem.agents.local_findings import NOTICE, OPENING, Finding, Findings

_HOW_TO_CHANGE = (
    f"{NOTICE}, so these are extracts from memory, not a written answer. "
    "Set `LLM__DEFAULT_MODEL` (for example `openai:gpt-4o`) to get one."
)
_PIECE = re.compile(r"\S+\s*|\s+")
_WORDS_IN_A_PIECE = 4


def answer(findings: Findings) -> str:
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


def without_tools() -> str:
    """The answer of an agent that may not search."""
    return (
        f"{NOTICE}, and this agent has no tool to search memory with, so it cannot answer. Set `LLM__DEFAULT_MODEL`, "
        "or ask the agent `rem`."
    )


def pieces(text: str) -> Iterator[str]:
    """The text in pieces of a few words, as a model writes it."""
    words = _PIECE.findall(text)
    for start in range(0, len(words), _WORDS_IN_A_PIECE):
        yield "".join(words[start : start + _WORDS_IN_A_PIECE])


def _label(key: str | None, table: str | None) -> str:
    if key is None:
        return ""
    return f"`{key.replace('`', '')}` ({table}): " if table else f"`{key.replace('`', '')}`: "


def _rest(item: Finding, is_whole: bool) -> str:
    """How to read on, where the text goes on."""
    if item.key is None or not item.text.endswith("…") or "`" in item.key:
        return ""
    if is_whole:
        return f" (the rest: `rem lookup {shlex.quote(item.key)}` in a shell)"
    key = item.key.replace("\\", "\\\\").replace('"', '\\"')
    return f' (read on: `LOOKUP "{key}"`)'

"""What `rem:local` says."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rem.agents.local_findings import NOTICE, OPENING, Findings

_HOW_TO_CHANGE = (
    f"{NOTICE}, so these are extracts from memory, not a written answer. "
    "Set `LLM__DEFAULT_MODEL` (for example `openai:gpt-4o`) to get one."
)
_GREETING = re.compile(
    r"(?:(?:hi|hello|hey|hiya|yo|hallo|hola|salut|bonjour|ciao|servus|moin|good (?:morning|afternoon|evening|day)|"
    r"guten (?:tag|morgen|abend)|thanks|thank you|thx|danke|merci|gracias|bye|goodbye|tschüss|ok|okay|test|ping|help|"
    r"what can you do|who are you|how are you)(?: (?:there|rem|all|everyone|a lot|so much|very much))?)?",
    re.IGNORECASE,
)
_PIECE = re.compile(r"\S+\s*|\s+")
_WORDS_IN_A_PIECE = 4


def is_greeting(question: str) -> bool:
    """Whether there is nothing in a message to search for."""
    return _GREETING.fullmatch(" ".join(re.sub(r"[^\w\s]", " ", question).split())) is not None


def greeting() -> str:
    """The answer to a greeting."""
    return (
        "Hello! Ask me about anything that you have stored: a name such as `sarah-chen`, a question in plain words, or "
        f'a query such as `SEARCH "database migration" LIMIT 5`. {NOTICE}, so I answer with extracts from memory; set '
        "`LLM__DEFAULT_MODEL` to change that."
    )


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
        f"{number}. {_label(item.key, item.table)}{item.text}" for number, item in enumerate(findings.items, start=1)
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

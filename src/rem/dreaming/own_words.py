"""Own words: what somebody says of their own life, and not a text that they work on, quote, forward or make up."""

from __future__ import annotations

import re

_QUOTED = re.compile(
    r"\"[^\"\n]{0,400}\"|“[^”\n]{0,400}”|„[^“”\n]{0,400}[“”]|«[^»\n]{0,400}»|(?<!\w)'[^'\n]{2,400}'(?!\w)"
)
_QUOTED_LINE = re.compile(r"^[ \t]*>[^\n]*$", re.MULTILINE)
_TALE = re.compile(
    r"\b(?:novels?|stor(?:y|ies)|chapters?|fan ?fic\w*|screenplay|protagonist\w*|antagonist\w*|role-?play\w*|d&d"
    r"|dungeons?|fairy tales?|kurzgeschichte|märchen|roman|kapitel|rollenspiel)\b",
    re.IGNORECASE,
)
_TASK = re.compile(
    r"(?:^|[.!?:\n]\s*)(?:please |bitte )?(?:translate|correct|proofread|paraphrase|rephrase|rewrite|summari[sz]e"
    r"|shorten|conjugate|übersetze?|korrigiere?|fasse|formuliere?)\b"
    r"|^[ \t>]*(?:from|to|subject|cc|von|an|betreff):",
    re.IGNORECASE | re.MULTILINE,
)


def without_quotes(text: str) -> str:
    """The text without what it quotes; its places are blank, so that nothing moves."""
    return _QUOTED_LINE.sub(_blank, _QUOTED.sub(_blank, text))


def is_task(text: str) -> bool:
    """Whether a message brings a text to work on, or a letter: its "I" may be anyone."""
    return _TASK.search(text) is not None


def is_tale(text: str) -> bool:
    """Whether a message speaks of something that is made up."""
    return _TALE.search(text) is not None


def _blank(found: re.Match[str]) -> str:
    return " " * len(found.group())

"""Own words: what somebody says of their own life, and not a text that they work on, quote, forward or make up."""

from __future__ import annotations

import re

_QUOTED = re.compile(
    r"\"[^\"\n]{0,400}\"|“[^”\n]{0,400}”|„[^“”\n]{0,400}[“”]|«[^»\n]{0,400}»|(?<!\w)'[^'\n]{2,400}'(?!\w)"
)
_QUOTED_LINE = re.compile(r"^[ \t]*>[^\n]*$", re.MULTILINE)
_CODE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|`[^`\n]{1,400}`", re.DOTALL)
_TALE = re.compile(
    r"\b(?:novels?|stor(?:y|ies)|chapters?|fan ?fic\w*|screenplay|protagonist\w*|antagonist\w*|role-?play\w*|d&d"
    r"|dungeons?|fairy tales?|kurzgeschichte|märchen|roman|kapitel|rollenspiel)\b",
    re.IGNORECASE,
)
_TASK = re.compile(
    r"(?:^|[.!?:])[^\S\n]*(?:please |bitte )?(?:translate|correct|proofread|paraphrase|rephrase|rewrite|summari[sz]e"
    r"|shorten|conjugate|übersetze?|korrigiere?|fasse|formuliere?)\b"
    r"|^[ \t>]*(?:from|to|subject|cc|von|an|betreff):"
    r"|^[ \t>]*\[?\d[\d/.\-, :T]{3,25}(?:[ap]\.?m\.?)?\]?[ \t]*[-–—]?[ \t]*[^\W\d_][\w .'’\-]{0,40}:\s"
    r"|^[ \t>]*[^\W\d_][\w .'’\-]{0,40},? \[?\d{1,2}[:.]\d\d(?:[:.]\d\d)?(?: ?[ap]m)?\]?:?[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
"""Work to do on a text, the head of a letter, or the lines of a chat, with their times. No part of it looks across
lines: what may begin at every line and runs over many of them takes for ever on empty ones."""
_LABEL = re.compile(
    r"[ \t]*(?:[-*•#]+[ \t]*)?(?:<[^<>\n]{1,40}>|(?:[\w.'’\-]{1,30} ){0,5}([\w.'’\-]{1,30})[*_]{0,2}:)(?=\s|\Z)"
)
_LEADS_IN = re.compile(r"(\w{1,30})[*_]{0,2}:\s*\Z")
_OWN = (
    "me myself context background note update edit fyi ps btw info profile question questions hi hello hallo facts "
    "intro introduction ich mich kontext hintergrund frage hinweis hobby hobbies"
)
_OWN_LABELS = frozenset(_OWN.split())
"""After these somebody goes on in their own words."""


def mask_quotes(text: str) -> str:
    """The text without what it quotes; its places are blank, so that nothing moves."""
    return _QUOTED_LINE.sub(_blank_quote, _QUOTED.sub(_blank_quote, _CODE.sub(_blank_quote, text)))


def mask_other_speakers(text: str) -> str:
    """The text without its lines that another says ("Tom: …", "Lyrics: …"), and without what a colon leads in."""
    own: list[str] = []
    is_led_in = has_begun = False
    for line in text.split("\n"):
        if is_led_in and has_begun and not line.strip():
            is_led_in = False
        has_begun = is_led_in and (has_begun or bool(line))
        own.append(" " * len(line) if is_led_in or _is_other_speaker(_LABEL.match(line)) else line)
        if not is_led_in and _is_other_speaker(_LEADS_IN.search(line, max(0, len(line) - 40))):
            is_led_in = True
    return "\n".join(own)


def is_text_task(text: str) -> bool:
    """Whether a message brings a text to work on, or a letter: its "I" may be anyone."""
    return _TASK.search(text) is not None


def is_fiction(text: str) -> bool:
    """Whether a message speaks of something that is made up."""
    return _TALE.search(text) is not None


def _is_other_speaker(label: re.Match[str] | None) -> bool:
    return label is not None and (label.group(1) or "").casefold() not in _OWN_LABELS


def _blank_quote(found: re.Match[str]) -> str:
    return " " * len(found.group())


MAX_TEXT_CHARS = 100_000
"""So many characters of a text are looked at. What is longer is no conversation."""
_FENCE = "```"
_INLINE = re.compile(r"`[^`\n]{1,300}`")
_LINK = re.compile(r"\b(?:https?|ftp|s3|file)://[^\s<>]+|\bwww\.[^\s<>]+")
_INDENTED_CODE = re.compile(r"^(?: {4}|\t)\S[^\n]*[;{}()=][^\n]*$", re.MULTILINE)


def mask_code_and_links(text: str) -> str:
    """The text without code and links; their places are blank, so that nothing moves."""
    text = text[:MAX_TEXT_CHARS]
    if "`" in text:
        parts = text.split(_FENCE)
        parts[1::2] = [" " * len(part) for part in parts[1::2]]
        text = _INLINE.sub(_blank, (" " * len(_FENCE)).join(parts))
    return _INDENTED_CODE.sub(_blank, _LINK.sub(_blank, text))


def _blank(found: re.Match[str]) -> str:
    return " " * len(found.group())

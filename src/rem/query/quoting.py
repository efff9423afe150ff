"""A query whose text has keywords in it that may be plain words, with the text in quotes."""

from __future__ import annotations

import re

from rem.query.grammar import CLAUSE_WORDS, VERBS
from rem.query.suggestions import in_quotes

_START = re.compile(r"\s*(SEARCH|FUZZY|LOOKUP)\s+", re.IGNORECASE)
_PIECE = re.compile(r"\S+")


def with_text_in_quotes(query: str) -> str | None:
    """The query with all in quotes up to the first clause in capitals; None if no keyword in small letters is in it."""
    start = _START.match(query)
    if start is None:
        return None
    verb = VERBS[start[1].upper()]
    end = len(query)
    has_keyword = False
    for piece in _PIECE.finditer(query, start.end()):
        name, assigned, _ = piece[0].partition("=")
        if name.upper() in CLAUSE_WORDS and (name.isupper() or assigned):
            end = piece.start()
            break
        has_keyword = has_keyword or name.upper() in verb.by_word
    text = " ".join(query[start.end() : end].rstrip("; \t\r\n").split())
    if not has_keyword or '"' in text or text.startswith("'") or (verb.takes_keys and "," in text):
        return None
    return f"{query[: start.end()]}{in_quotes(text)} {query[end:]}".strip()

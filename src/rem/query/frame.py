"""Frame: a query while it is read, before it is whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rem.query.grammar import LIMIT, Clause, Verb


@dataclass(frozen=True, slots=True)
class Text:
    """The keys or the text of a query, and where they stand; `last` is where the last of them does.

    `spaced`: an item has spaces in it and no quotes around it.
    """

    items: tuple[str, ...]
    start: int
    last: int
    end: int
    quoted: bool
    spaced: bool = False


@dataclass(slots=True, eq=False)
class Frame:
    """A verb with what has been read for it. An inner query without parentheses knows the one around it."""

    verb: Verb
    at: int
    outer: Frame | None = None
    text: Text | None = None
    values: dict[str, Any] = field(default_factory=dict)
    places: dict[str, tuple[str, int]] = field(default_factory=dict)

    def owner(self, word: str) -> tuple[Frame, Clause] | None:
        """Whose clause a keyword opens: the innermost query's that has it, but LIMIT is the outermost one's."""
        frame: Frame | None = self
        while frame is not None:
            clause = frame.verb.by_word.get(word)
            if clause is not None and (clause is not LIMIT or frame.outer is None):
                return frame, clause
            frame = frame.outer
        return None

    @property
    def clause_words(self) -> list[str]:
        """The keywords that may stand here."""
        outer = [word for word in self.outer.clause_words if word not in self.verb.by_word] if self.outer else []
        own = [word for word, clause in self.verb.by_word.items() if clause is not LIMIT or self.outer is None]
        return own + outer

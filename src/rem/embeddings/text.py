"""Which texts have something to embed, and what is sent of them."""

from __future__ import annotations

from collections.abc import Sequence

from rem.errors import InvalidInputError


def is_blank(text: str) -> bool:
    """Whether there is nothing to read in the text: whitespace and control characters have no meaning to embed."""
    return not any(character.isprintable() and not character.isspace() for character in text)


def clean(text: str) -> str:
    """The text as any provider takes it: NUL is a space, half of a surrogate pair a question mark."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode("utf-8")


def require_meaning(texts: Sequence[str]) -> None:
    """Refuse blank texts: a vector for them would be made up."""
    blank = [number for number, text in enumerate(texts) if is_blank(text)]
    if blank:
        shown = ", ".join(map(str, blank[:10])) + (" ..." if len(blank) > 10 else "")
        raise InvalidInputError(f"Nothing to embed: blank text at position {shown}. Leave blank texts out.")

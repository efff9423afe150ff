"""Which texts have something to embed, and what is sent of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rem.errors import EmbeddingMisconfiguredError, EmbeddingUnavailableError, InvalidInputError

if TYPE_CHECKING:
    from rem.embeddings.embedder import Vectors


def is_blank(text: str) -> bool:
    """Whether there is nothing to read in the text: whitespace and control characters have no meaning to embed."""
    return not any(character.isprintable() and not character.isspace() for character in text)


def clean_for_embedding(text: str) -> str:
    """The text as any provider takes it: NUL is a space, half of a surrogate pair a question mark."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode("utf-8")


def reject_blank_texts(texts: Sequence[str]) -> None:
    """Refuse blank texts: a vector for them would be made up."""
    blank = [number for number, text in enumerate(texts) if is_blank(text)]
    if blank:
        shown = ", ".join(map(str, blank[:10])) + (" ..." if len(blank) > 10 else "")
        raise InvalidInputError(f"Nothing to embed: blank text at position {shown}. Leave blank texts out.")


def parse_vectors(rows: Sequence[Any], model: str) -> Vectors:
    """Rows of numbers as a service wrote them."""
    import numpy as np

    try:
        if any(type(number) not in (int, float) for row in rows for number in row):
            raise TypeError("not a number")
        with np.errstate(over="ignore"):  # what becomes infinite is refused by `checked`
            return np.array(rows, dtype=np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise EmbeddingUnavailableError(f"{model} answered with something that is not a list of vectors.") from error


def check_vectors(rows: Vectors, *, count: int, dimension: int, model: str) -> Vectors:
    """The same rows, or an error that says what is wrong with them."""
    import numpy as np

    if rows.ndim != 2 or len(rows) != count:
        raise EmbeddingUnavailableError(f"{model} was asked for {count} vectors and answered with {len(rows)}.")
    if rows.shape[1] != dimension:
        raise dimension_error(model, rows.shape[1], dimension)
    norms = np.linalg.norm(rows, axis=1)
    if not np.isfinite(norms).all():
        raise EmbeddingUnavailableError(f"{model} answered with a vector that is not finite.")
    if not norms.all():
        raise EmbeddingUnavailableError(f"{model} answered with a vector of zeros.")
    # Only the direction counts, and half-precision numbers, as they are stored, have little range.
    return rows if np.allclose(norms, 1, atol=1e-3) else (rows / norms[:, None]).astype(np.float32)


def dimension_error(model: str, actual: int, expected: int) -> EmbeddingMisconfiguredError:
    """What to do about vectors of another length."""
    return EmbeddingMisconfiguredError(
        f"{model} makes vectors of {actual} dimensions, and EMBEDDING__DIMENSION is {expected}: "
        f"set EMBEDDING__DIMENSION={actual}, or choose another EMBEDDING__MODEL."
    )

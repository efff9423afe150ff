"""Check texts before they are embedded, and vectors before they are used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rem.errors import EmbeddingMisconfiguredError, EmbeddingUnavailableError, InvalidInputError

if TYPE_CHECKING:
    from rem.search.embedder import Vectors

MAX_SHOWN_POSITIONS = 10


def is_blank(text: str) -> bool:
    """Return True if a text has only white space and control characters, so that it has no meaning to embed."""
    return not any(character.isprintable() and not character.isspace() for character in text)


def reject_blank_texts(texts: Sequence[str]) -> None:
    """Raise `InvalidInputError` with the positions of blank texts: their vectors would be meaningless."""
    positions = [position for position, text in enumerate(texts) if is_blank(text)]
    if positions:
        shown = ", ".join(map(str, positions[:MAX_SHOWN_POSITIONS]))
        shown += " ..." if len(positions) > MAX_SHOWN_POSITIONS else ""
        raise InvalidInputError(f"Nothing to embed: blank text at position {shown}. Leave blank texts out.")


def parse_vectors(rows: Sequence[Any], model: str) -> Vectors:
    """Convert the JSON lists of a service to an array. Raise `EmbeddingUnavailableError` if they are not numbers."""
    import numpy as np

    try:
        if any(type(number) not in (int, float) for row in rows for number in row):
            raise TypeError("not a number")
        with np.errstate(over="ignore"):  # `check_vectors` rejects infinite numbers
            return np.array(rows, dtype=np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise EmbeddingUnavailableError(f"{model} answered with something that is not a list of vectors.") from error


def check_vectors(rows: Vectors, *, count: int, dimension: int, model: str) -> Vectors:
    """Return the rows as unit vectors. Raise an `EmbeddingError` if their number, length or values are wrong."""
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
    # Only the direction matters, and the stored half-precision numbers have a small range.
    return rows if np.allclose(norms, 1, atol=1e-3) else (rows / norms[:, None]).astype(np.float32)


def dimension_error(model: str, actual: int, expected: int) -> EmbeddingMisconfiguredError:
    """Return the error for vectors whose length is not the configured one."""
    return EmbeddingMisconfiguredError(
        f"{model} makes vectors of {actual} dimensions, and EMBEDDING__DIMENSION is {expected}: "
        f"set EMBEDDING__DIMENSION={actual}, or choose another EMBEDDING__MODEL."
    )

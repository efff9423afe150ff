"""No vector leaves REM's embedders unchecked: count, dimension, finite numbers, and not all zero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rem.errors import EmbeddingMisconfiguredError, EmbeddingUnavailableError

if TYPE_CHECKING:
    from rem.embeddings.embedder import Vectors


def from_lists(rows: Sequence[Any], model: str) -> Vectors:
    """Rows of numbers as a service wrote them."""
    import numpy as np

    try:
        if any(type(number) not in (int, float) for row in rows for number in row):
            raise TypeError("not a number")
        with np.errstate(over="ignore"):  # what becomes infinite is refused by `checked`
            return np.array(rows, dtype=np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise EmbeddingUnavailableError(f"{model} answered with something that is not a list of vectors.") from error


def checked(rows: Vectors, *, count: int, dimension: int, model: str) -> Vectors:
    """The same rows, or an error that says what is wrong with them."""
    import numpy as np

    if rows.ndim != 2 or len(rows) != count:
        raise EmbeddingUnavailableError(f"{model} was asked for {count} vectors and answered with {len(rows)}.")
    if rows.shape[1] != dimension:
        raise wrong_dimension(model, rows.shape[1], dimension)
    norms = np.linalg.norm(rows, axis=1)
    if not np.isfinite(norms).all():
        raise EmbeddingUnavailableError(f"{model} answered with a vector that is not finite.")
    if not norms.all():
        raise EmbeddingUnavailableError(f"{model} answered with a vector of zeros.")
    # Only the direction counts, and half-precision numbers, as they are stored, have little range.
    return rows if np.allclose(norms, 1, atol=1e-3) else (rows / norms[:, None]).astype(np.float32)


def wrong_dimension(model: str, actual: int, expected: int) -> EmbeddingMisconfiguredError:
    """What to do about vectors of another length."""
    return EmbeddingMisconfiguredError(
        f"{model} makes vectors of {actual} dimensions, and EMBEDDING__DIMENSION is {expected}: "
        f"set EMBEDDING__DIMENSION={actual}, or choose another EMBEDDING__MODEL."
    )

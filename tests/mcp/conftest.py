"""Clean up after clients that start a process."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture
def collected() -> Iterator[None]:
    """Remove what is left of a client within its own test.

    The client's library leaves closing the pipes of a process that has ended to the garbage collector.
    """
    yield
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        gc.collect()

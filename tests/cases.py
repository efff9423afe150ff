"""Run a test for several cases on the same fixtures."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import pytest


def cases(
    names: str | tuple[str, ...], values: Iterable[Any], ids: Iterable[str] | Callable[[Any], str] = repr
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Run the decorated test for each case, as `parametrize` does, but in one test, so with one database for all.

    A case that fails does not stop the others. Use this if no case changes what another one reads: a database costs a
    tenth of a second, which is more than most cases.
    """
    names = (names,) if isinstance(names, str) else names
    rows = [value if len(names) > 1 else (value,) for value in values]
    labels = [ids(row[0]) for row in rows] if callable(ids) else list(ids)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        async def run_async(subtests: pytest.Subtests, **fixtures: Any) -> None:
            for label, row in zip(labels, rows, strict=True):
                with subtests.test(label):
                    await function(**fixtures, **dict(zip(names, row, strict=True)))

        @wraps(function)
        def run(subtests: pytest.Subtests, **fixtures: Any) -> None:
            for label, row in zip(labels, rows, strict=True):
                with subtests.test(label):
                    function(**fixtures, **dict(zip(names, row, strict=True)))

        wrapper: Callable[..., Any] = run_async if inspect.iscoroutinefunction(function) else run
        kept = [one for one in inspect.signature(function).parameters.values() if one.name not in names]
        subtests = inspect.Parameter("subtests", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        wrapper.__signature__ = inspect.Signature([subtests, *kept])  # type: ignore[attr-defined]
        return wrapper

    return decorate

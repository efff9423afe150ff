"""A query as a span of a trace, where OpenTelemetry is set up: which verb, how many rows, and not what was asked."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

Answered: TypeAlias = Callable[[str, int], None]


@contextmanager
def query_span(name: str) -> Iterator[Answered]:
    """A span around a query; what is yielded takes the verb and the number of rows of the answer."""
    # Without the SDK a span goes nowhere, and a lookup is too short to make one for nothing.
    if "opentelemetry.sdk.trace" not in sys.modules:
        yield _nobody_asks
        return
    from opentelemetry.trace import Status, StatusCode, get_tracer

    # The message of an error may quote the query, so the span has only its type.
    with get_tracer("rem.query").start_as_current_span(
        name, record_exception=False, set_status_on_exception=False
    ) as span:

        def answered(query_type: str, count: int) -> None:
            span.set_attributes({"rem.query.type": query_type, "rem.query.rows": count})

        try:
            yield answered
        except Exception as error:
            span.set_status(Status(StatusCode.ERROR, type(error).__name__))
            raise


def _nobody_asks(_query_type: str, _count: int) -> None:
    return None

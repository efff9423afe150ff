"""`make load`: the percentiles of a report of Locust. The load itself needs Locust: `make load LOAD=--quick`."""

from __future__ import annotations

from bench.load import format_run, summarize

ENTRY = {
    "name": "lookup",
    "num_requests": 100,
    "num_failures": 2,
    # Time in milliseconds, and number of requests. Locust does not sort them.
    "response_times": {"40": 4, "10": 60, "900": 1, "20": 35},
}


def test_percentiles_follow_from_counted_times() -> None:
    assert summarize(ENTRY) == {"requests": 100, "errors": 2, "p50_ms": 10, "p95_ms": 20, "p99_ms": 40}
    assert summarize({**ENTRY, "num_requests": 0, "response_times": {}})["p99_ms"] == 0


def test_run_is_shown_in_a_line_for_each_kind() -> None:
    run = {
        "mix": "lookup",
        "processes": 2,
        "requests_per_second": 50.0,
        "errors": 2,
        "cpu_cores_used": {"api": 1.2, "postgres": 0.3, "locust": 0.2},
        "kinds": {"lookup": summarize(ENTRY)},
    }
    first, second = format_run(run).splitlines()
    assert first == "lookup, 2 processes: 50.0 requests/s, 2 errors, cores used: api 1.2, postgres 0.3, locust 0.2"
    assert second.split() == ["lookup", "100", "requests", "p50", "10", "p95", "20", "p99", "40", "ms", "2", "errors"]

"""Parsing of each conformance case; it needs no database, so the goal is a time and not a ratio."""

from __future__ import annotations

import json
import time
from pathlib import Path

from bench.measure import Result, median, print_progress
from rem.query.parser import parse_query

ROUNDS = 2_000
_CASES = Path(__file__).parent.parent / "tests" / "query" / "conformance.json"


def run(rounds: int = ROUNDS) -> Result:
    """The median time of each case, in microseconds."""
    result = Result("parse")
    queries = [case["query"] for case in json.loads(_CASES.read_text(encoding="utf-8"))["cases"]]
    times = {query: _median_time(query, rounds) for query in queries}
    slowest = max(times, key=lambda query: times[query])
    result.figures = {
        "cases": len(times),
        "median_us": round(median(list(times.values())), 1),
        "slowest_us": round(times[slowest], 1),
        "slowest_query": slowest,
    }
    print_progress(f"parse: {result.figures}")
    result.check("parsing of the slowest conformance case, p50, µs", times[slowest], 100)
    return result


def _median_time(query: str, rounds: int) -> float:
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        parse_query(query)
        times.append(time.perf_counter() - started)
    return median(times) * 1e6

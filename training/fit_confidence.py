"""Fit what tells how sure an answer is (rem/search/confidence.py), and measure it on questions of other weeks.

    python -m training.fit_confidence src/rem/search/models --fit CANDIDATES.jsonl --test CANDIDATES.jsonl

The candidates are those of weeks on which the reader was not trained. Each question is seen as it is, without the rows
that answer it, and with a name exchanged: the second and the third have no answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rem.search.confidence import FEATURES, choose_best, find_features
from rem.search.models.files import CONFIDENCE
from rem.search.reader import Reader
from training.bundle import write_files
from training.measure_reader import READ_ROWS, auroc, make_question, make_row, read_candidates

PENALTY = 1e-3
STEPS = 4000
LIMITS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
SWAPPED_SHARE = 0.5
_NAME = re.compile(r"(?<=[a-z,;'] )([A-Z][a-zà-ÿ]{2,})\b")


@dataclass(frozen=True, slots=True)
class Case:
    """One question: its features, whether the best sentence answers it, and whether any of its rows does."""

    features: dict[str, float]
    is_right: bool
    is_answerable: bool


async def make_cases(reader: Reader, items: Sequence[dict[str, Any]]) -> list[Case]:
    """Return the cases of questions with their answers, without them, and with another name."""
    generator = random.Random(1)
    cases = []
    for item, other in zip(items, [*items[1:], items[0]], strict=True):
        rows = item["rows"]
        if item["group"] == "unanswerable":
            cases += await _read(reader, item, item["ask"], rows[:READ_ROWS], is_answerable=False)
        if not any(row["answers"] for row in rows[:READ_ROWS]):
            continue
        unanswered = [row for row in rows if not row["answers"] and not row["is_outdated"]]
        cases += await _read(reader, item, item["ask"], rows[:READ_ROWS], is_answerable=True)
        cases += await _read(reader, item, item["ask"], unanswered[:READ_ROWS], is_answerable=False)
        names, others = ([match[1] for match in _NAME.finditer(found["ask"])] for found in (item, other))
        if names and others and names[0] not in others and generator.random() < SWAPPED_SHARE:
            swapped = item["ask"].replace(names[0], others[0])
            cases += await _read(reader, item, swapped, rows[:READ_ROWS], is_answerable=False)
    return cases


async def _read(
    reader: Reader, item: dict[str, Any], ask: str, found: Sequence[dict[str, Any]], *, is_answerable: bool
) -> list[Case]:
    rows = [make_row(row) for row in found]
    scores = [row["score"] for row in found]
    readings = await reader.read(ask, rows)
    features = find_features(ask, rows, readings, scores)
    if features is None:
        return []
    best = choose_best(scores, readings)
    reading = readings[best]
    assert reading is not None
    sentence = rows[best].text[slice(*reading.sentence)]
    return [Case(dict(features), is_answerable and _is_right(item, sentence), is_answerable)]


def _is_right(item: dict[str, Any], sentence: str) -> bool:
    question = make_question(item)
    return question.is_answered_by(sentence) and not question.is_outdated_in(sentence)


def fit(cases: Sequence[Case]) -> dict[str, float]:
    """Return the weights of a logistic regression that tells right answers from all others."""
    return fit_weights(FEATURES, to_matrix(cases), np.array([case.is_right for case in cases], dtype=float))


def fit_weights(
    names: Sequence[str], matrix: NDArray[np.float64], right: NDArray[np.float64], steps: int = STEPS
) -> dict[str, float]:
    """Return the weights of a logistic regression, with its `bias`."""
    mean, spread = matrix.mean(axis=0), matrix.std(axis=0) + 1e-9
    scaled = np.column_stack([(matrix - mean) / spread, np.ones(len(matrix))])
    weights = np.zeros(scaled.shape[1])
    for _ in range(steps):
        shares = 1 / (1 + np.exp(-scaled @ weights))
        weights -= 0.5 * (scaled.T @ (shares - right) / len(matrix) + PENALTY * weights)
    plain = weights[:-1] / spread
    found = {name: round(float(weight), 4) for name, weight in zip(names, plain, strict=True)}
    return found | {"bias": round(float(weights[-1] - plain @ mean), 4)}


def to_matrix(cases: Sequence[Case]) -> NDArray[np.float64]:
    """Return one row of features for each case."""
    return np.array([[case.features[name] for name in FEATURES] for case in cases])


def measure(cases: Sequence[Case], weights: dict[str, float]) -> Iterable[str]:
    """Yield the curve: what is answered, rightly and falsely, by the least confidence of an answer."""
    logits = to_matrix(cases) @ np.array([weights[name] for name in FEATURES]) + weights["bias"]
    sure = 1 / (1 + np.exp(-logits))
    right, answerable = (np.array([getattr(case, name) for case in cases]) for name in ("is_right", "is_answerable"))
    yield f"{len(cases)} cases, {answerable.sum()} with an answer, {right.sum()} with the right sentence"
    yield f"AUROC of an answer {auroc(sure[answerable], sure[~answerable]):.3f}"
    yield f"AUROC of a right sentence {auroc(sure[right], sure[~right]):.3f}"
    for name in ("score", "relevance", "answers"):
        values = np.array([case.features[name] for case in cases])
        yield f"  {name} alone: {auroc(values[answerable], values[~answerable]):.3f}"
    yield "limit: of the unanswerable, answered; of the answerable, answered; right of those"
    for limit in LIMITS:
        shown = sure >= limit
        yield (
            f"{limit}: {shown[~answerable].mean():.3f}  {shown[answerable].mean():.3f}  "
            f"{right[shown & answerable].mean() if (shown & answerable).any() else 0:.3f}"
        )


async def run(options: argparse.Namespace) -> None:
    """Fit, write and measure."""
    reader = Reader(threads=1)
    fitted, tested = [await make_cases(reader, read_candidates(paths)) for paths in (options.fit, options.test)]
    weights = fit(fitted)
    command = "python -m training.fit_confidence src/rem/search/models --fit dev.jsonl --test eval.jsonl"
    content = json.dumps({"command": command, "weights": weights}, indent=2) + "\n"
    write_files(options.out, {CONFIDENCE: content.encode()})
    for name, cases in (("fitted", fitted), ("tested", tested)):
        print(name, *measure(cases, weights), sep="\n")
    await reader.close()


def main() -> None:
    """Read the options, and fit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--fit", type=Path, nargs="+", required=True)
    parser.add_argument("--test", type=Path, nargs="+", required=True)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()

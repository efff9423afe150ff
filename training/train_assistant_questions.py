"""Train the weights that tell whether a question asks for what the assistant said, and measure them.

    python -m training.train_assistant_questions src/rem/search/models LONGMEMEVAL_TRAIN.json.gz

It is a logistic regression over the vector that SEARCH computes of a question anyway. Questions about the assistant's
words come from `assistant_questions.yaml`, and from the questions of LongMemEval that are in no evaluation. Those of
the weeks, dialogues and assistant chats ask for what people said.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from rem.search.embedder_factory import open_embedder
from rem.search.models.files import ASSISTANT_QUESTIONS
from rem.settings import Settings
from training.bundle import array_file, write_files
from training.dialogues import read_dialogue

FOLDER = Path(__file__).parent
EXAMPLES = FOLDER / "assistant_questions.yaml"
ASSISTANT_KIND = "single-session-assistant"
PENALTY = 0.03
WRITTEN_WEIGHT = 30.0
"""The examples that were written for this count as much as this many of the other questions."""
STEPS = 40

Matrix = NDArray[np.float64]


def read_week_questions(folder: Path) -> list[str]:
    """Return the questions of the weeks in a folder."""
    weeks = (yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.yaml")))
    return [question["ask"] for week in weeks for question in week["questions"]]


def read_longmemeval(path: Path) -> tuple[list[str], list[str]]:
    """Return the questions for what the assistant said, and the others."""
    with gzip.open(path) as file:
        entries: list[dict[str, Any]] = json.load(file)
    asks = [entry["question"] for entry in entries if entry["question_type"] == ASSISTANT_KIND]
    return asks, [entry["question"] for entry in entries if entry["question_type"] != ASSISTANT_KIND]


def fit(vectors: Matrix, is_asked: Matrix, importance: Matrix) -> Matrix:
    """Return the weights of a logistic regression, the constant last, by Newton's method."""
    inputs = np.hstack([vectors, np.ones((len(vectors), 1))])
    weights = np.zeros(inputs.shape[1])
    penalty = np.diag([*np.full(vectors.shape[1], PENALTY), 1e-6])
    for _ in range(STEPS):
        likely = 1 / (1 + np.exp(-inputs @ weights))
        gradient = inputs.T @ (importance * (likely - is_asked)) + penalty @ weights
        curvature = (inputs * (importance * likely * (1 - likely) + 1e-9)[:, None]).T @ inputs + penalty
        weights -= np.linalg.solve(curvature, gradient)
    return weights


async def main() -> None:
    """Train, write and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("longmemeval", type=Path)
    options = parser.parse_args()
    examples = yaml.safe_load(EXAMPLES.read_text(encoding="utf-8"))
    asks, others = read_longmemeval(options.longmemeval)
    others += read_week_questions(FOLDER / "weeks")
    for name in ("dialogues", "assistant_chats"):
        dialogues = map(read_dialogue, sorted((FOLDER / name).glob("*.txt")))
        others += [question.text for dialogue in dialogues for question in dialogue.questions]
    written = examples["train"]
    texts = [*written["asks"], *asks, *written["others"], *others]
    is_asked = np.repeat([1.0, 0.0], [len(written["asks"]) + len(asks), len(written["others"]) + len(others)])
    importance = np.repeat([WRITTEN_WEIGHT, 1.0], [len(texts) - len(others), len(others)])
    embedder = open_embedder(Settings())

    async def embed(of_texts: Sequence[str]) -> Matrix:
        return np.asarray(await embedder.embed(list(of_texts)), dtype=np.float64)

    weights = fit(await embed(texts), is_asked, importance).astype(np.float16)
    write_files(options.folder, {ASSISTANT_QUESTIONS: array_file(weights)})
    held_out = {**examples["held_out"], "weeks": read_week_questions(FOLDER / "weeks" / "held_out")}
    for name, questions in held_out.items():
        found = await embed(questions) @ weights[:-1] + weights[-1] > 0
        print(f"{name}: {int(found.sum())} of {len(found)} taken for a question about the assistant's words")


if __name__ == "__main__":
    asyncio.run(main())

"""Make documents from the answers of the assistant in LongMemEval sessions, with the user's messages as questions.

    python -m training.replies longmemeval_train.jsonl OUT.jsonl

The source is what training/clean_longmemeval.py wrote, so that no measured text is in it. These pairs keep the embedder
good at long texts about any subject, while the conversations make it better at short messages.
"""

from __future__ import annotations

import json
import random
import sys
from itertools import pairwise
from pathlib import Path

DOCUMENTS_PER_MEMORY = 60
MAX_QUESTION_CHARS = 300
MIN_ANSWER_CHARS = 300


def main() -> None:
    """Write memories of 60 documents with one question each."""
    source, out = map(Path, sys.argv[1:])
    pairs: dict[str, tuple[str, str]] = {}
    for line in source.read_text(encoding="utf-8").splitlines():
        for session in json.loads(line)["sessions"]:
            for asked, answered in pairwise(session):
                is_pair = asked["role"] == "user" and answered["role"] == "assistant" and "?" in asked["text"]
                if is_pair and len(asked["text"]) <= MAX_QUESTION_CHARS and len(answered["text"]) >= MIN_ANSWER_CHARS:
                    pairs[answered["id"]] = (asked["text"], answered["text"])
    chance = random.Random(1)
    ids = sorted(pairs)
    chance.shuffle(ids)
    with out.open("w", encoding="utf-8") as file:
        for start in range(0, len(ids), DOCUMENTS_PER_MEMORY):
            group = ids[start : start + DOCUMENTS_PER_MEMORY]
            notes = [{"id": f"d{i}", "text": pairs[key][1]} for i, key in enumerate(group)]
            questions = [{"question": pairs[key][0], "gold": [f"d{i}"]} for i, key in enumerate(group)]
            file.write(json.dumps({"sessions": [], "notes": notes, "questions": questions}, ensure_ascii=False) + "\n")
    print(f"{len(ids)} pairs")


if __name__ == "__main__":
    main()

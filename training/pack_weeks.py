"""Pack the candidates of weeks (training/week_candidates.py) as tokens, for a machine without REM.

python -m training.pack_weeks OUT.npz CANDIDATES.jsonl …
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from rem.embeddings.bundled.files import load_tokenizer
from rem.query.continuations import join_texts

ANSWER, NO_ANSWER, OUTDATED = 1, 0, -1
"""An outdated text answers the question too, only not any more: the ranker does not learn from it."""
SIMILARITY_WEIGHT = 0.2


def main() -> None:
    """Read, tokenize and write."""
    out, *paths = map(Path, sys.argv[1:])
    texts: dict[str, int] = {}
    columns: dict[str, list[float]] = {name: [] for name in ("question", "row_question", "row_text", "score", "label")}
    questions = [json.loads(line) for path in paths for line in path.read_text(encoding="utf-8").splitlines()]
    for number, question in enumerate(questions):
        columns["question"].append(texts.setdefault(question["ask"], len(texts)))
        for row in question["rows"]:
            columns["row_question"].append(number)
            columns["row_text"].append(texts.setdefault(join_texts(row["before"], row["text"]), len(texts)))
            columns["score"].append(row["row"]["score"] + SIMILARITY_WEIGHT * (row["row"]["similarity"] or 0.0))
            columns["label"].append(ANSWER if row["answers"] else OUTDATED if row["is_outdated"] else NO_ANSWER)
    tokenizer = load_tokenizer()
    tokenizer.no_padding()
    ids = [encoding.ids for encoding in tokenizer.encode_batch_fast(list(texts))]
    arrays = {
        name: np.array(values, dtype=np.float32 if name == "score" else np.int32) for name, values in columns.items()
    }
    arrays["tokens"] = np.concatenate([np.array(i, dtype=np.uint16) for i in ids])
    arrays["offsets"] = np.cumsum([0, *map(len, ids)]).astype(np.int32)
    np.savez_compressed(out, **arrays)
    print(f"{len(questions)} questions, {len(columns['label'])} candidates, {len(arrays['tokens'])} tokens")


if __name__ == "__main__":
    main()

"""Make a collection of documents from published conversations, in the layout of BEIR.

    python -m training.documents squad.json.gz OUT_FOLDER
    python -m training.documents qmsum.json.gz OUT_FOLDER

A document is a part of a session with at most 1,500 characters. Those with its evidence answer a question.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MAX_DOCUMENT_CHARS = 1500


def split_session(messages: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield the messages of a session in parts. A longer message is a part of its own."""
    part: list[dict[str, Any]] = []
    length = 0
    for message in messages:
        if part and length + len(message["text"]) > MAX_DOCUMENT_CHARS:
            yield part
            part, length = [], 0
        part.append(message)
        length += len(message["text"])
    if part:
        yield part


def main() -> None:
    """Write corpus.jsonl, queries.jsonl and qrels/test.tsv."""
    source, out = map(Path, sys.argv[1:])
    (out / "qrels").mkdir(parents=True, exist_ok=True)
    documents, queries, grades = [], [], ["query-id\tcorpus-id\tscore"]
    with gzip.open(source, "rt", encoding="utf-8") as stream:
        samples = json.load(stream)
    for number, sample in enumerate(samples):
        place: dict[str, str] = {}
        for session in (value for value in sample["conversation"].values() if isinstance(value, list)):
            for part in split_session(session):
                key = f"d{len(documents)}"
                place |= {message["dia_id"]: key for message in part}
                documents.append({"_id": key, "text": " ".join(message["text"] for message in part)})
        for index, asked in enumerate(sample["qa"]):
            found = dict.fromkeys(place[key] for key in asked["evidence"] if key in place)
            if found:
                queries.append({"_id": f"q{number}-{index}", "text": asked["question"]})
                grades += [f"q{number}-{index}\t{key}\t1" for key in found]
    for name, rows in (("corpus", documents), ("queries", queries)):
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
        (out / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    (out / "qrels" / "test.tsv").write_text("\n".join(grades) + "\n", encoding="utf-8")
    print(f"{len(documents)} documents, {len(queries)} questions")


if __name__ == "__main__":
    main()

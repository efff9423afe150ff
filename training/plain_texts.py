"""Collect texts without labels from conversations, one in each line, for the tagger.

    python -m training.plain_texts OUT.txt FILE …

Files are published conversations (.json.gz), or memories of training/synthetic.py and training/clean_longmemeval.py.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

MAX_TEXTS_PER_FILE = 9000
MAX_CHARS = 400


def read_texts(path: Path) -> Iterator[str]:
    """Yield the texts of a file, with the speaker before some of them."""
    if path.suffix == ".jsonl":
        for line in path.read_text(encoding="utf-8").splitlines():
            yield from (message["text"] for session in json.loads(line)["sessions"] for message in session)
        return
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        for sample in json.load(stream):
            for name, session in sample["conversation"].items():
                if name.startswith("session_") and isinstance(session, list):
                    yield from (message["text"] for message in session)


def main() -> None:
    """Write a sample of the texts of each file."""
    out, *files = map(Path, sys.argv[1:])
    chance = random.Random(1)
    lines: list[str] = []
    for path in files:
        texts = sorted({" ".join(text[:MAX_CHARS].split()) for text in read_texts(path) if len(text) > 20})
        lines += chance.sample(texts, min(len(texts), MAX_TEXTS_PER_FILE))
    out.write_text("\n".join(lines), encoding="utf-8")
    print(f"{len(lines)} texts")


if __name__ == "__main__":
    main()

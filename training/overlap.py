"""Prove by hashes of texts that nothing measured was trained on.

    python -m training.overlap --train friends=friends.json.gz … --eval locomo=locomo10.json beam=beam_100K.tar.gz …

Prints each evaluation set with the number of its texts that also occur in a training set, and exits with 1 if a text of
at least six words does. Names of sets are those of training/ranking_data.py; `week` is the week of
`python -m bench week`. With --write, the hashes of the training texts are written to a file, which the tests compare.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.quality.dataset import Dataset

from rem.db.yaml import load_yaml
from training.ranking_data import read

MIN_WORDS = 6
"""Shorter texts ("Thank you so much!") occur everywhere."""
HASH_CHARS = 12


def text_hash(text: str) -> str | None:
    """Return the hash of a text without case, punctuation and speaker, or None if it is short."""
    words = re.findall(r"\w+", re.sub(r"^[\w .#'-]{1,30}: ", "", text).lower())
    return hashlib.sha256(" ".join(words).encode()).hexdigest()[:HASH_CHARS] if len(words) >= MIN_WORDS else None


def texts_of(dataset: Dataset) -> Iterator[str]:
    """Yield the texts and questions of a data set."""
    for case in dataset.cases:
        for session in case.sessions:
            yield from (message.content for message in session.messages)
        yield from (text.content for text in case.texts)
        yield from (question.text for question in case.questions)


def texts_of_week(path: Path) -> Iterator[str]:
    """Yield the texts and questions of a week."""
    week = load_yaml(path.read_text(encoding="utf-8"))
    yield from (note["text"] for note in week["notes"])
    for session in week["sessions"]:
        yield from (m if isinstance(m, str) else str(next(iter(m.values()))) for m in session["messages"])
    yield from (question["ask"] for question in week["questions"])


def hashes(entry: str) -> set[str]:
    """Return the hashes of a set, given as NAME=PATH."""
    name, _, path = entry.partition("=")
    texts = texts_of_week(Path(path)) if name == "week" else texts_of(read(name, Path(path))[0])
    return {value for text in texts if (value := text_hash(text))}


def main() -> None:
    """Compare all sets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", nargs="+", required=True)
    parser.add_argument("--eval", nargs="+", required=True)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    trained = {entry.partition("=")[0]: hashes(entry) for entry in options.train}
    found = 0
    for entry in options.eval:
        measured = hashes(entry)
        shared = {name: len(measured & values) for name, values in trained.items() if measured & values}
        found += len(shared)
        print(f"{entry.partition('=')[0]}: {len(measured)} texts, shared: {shared or 'none'}")
    if options.write:
        options.write.write_text("\n".join(sorted(set().union(*trained.values()))) + "\n", encoding="utf-8")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()

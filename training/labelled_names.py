"""Read the texts with labelled names of the tests, as words with labels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from training.name_sentences import WORD, Sentence

_FOLDER = Path(__file__).parent.parent / "tests" / "dreams" / "labelled"
_NAME = re.compile(r"(\[[^\]|]+\|[pol]\])")
_KINDS = {"p": "PER", "o": "ORG", "l": "LOC"}


def read_labelled(part: str) -> Iterator[Sentence]:
    """Yield the texts of names_open.yaml or names_held_out.yaml."""
    domains = yaml.safe_load((_FOLDER / f"names_{part}.yaml").read_text(encoding="utf-8"))
    for text in (text for texts in domains.values() for text in texts):
        sentence: Sentence = []
        for piece in _NAME.split(text):
            if _NAME.fullmatch(piece):
                name, _, kind = piece[1:-1].rpartition("|")
                words = WORD.findall(name)
                sentence += [(word, f"{'I' if i else 'B'}-{_KINDS[kind]}") for i, word in enumerate(words)]
            else:
                sentence += [(word, "O") for word in WORD.findall(piece)]
        yield sentence

"""Prepare sentences with people, organisations and places for the entity tagger.

    python -m training.tagger_data NER_FOLDER TOKENIZER.json OUT.npz TEXTS.txt

Sources: Broad Twitter Corpus, WNUT17, wikigold, WikiANN, EWT (training/README.md has the licences), and the sentences
of training/name_sentences.py and training/synthetic_frames.py. TEXTS.txt has one text without labels in each line.
Measured, and never trained on: BTC part h, WNUT17 test, the last fifth of EWT, and the labelled texts of the tests. The
script fails if a part of one of these texts is among the training sentences.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from training.labelled_names import read_labelled
from training.name_sentences import WORD, NameSentences, Sentence
from training.synthetic import OPENINGS, SELF
from training.synthetic_frames import FRAMES, SLOTS

LABELS = ("O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC")
KINDS = {
    "person": "PER",
    "corporation": "ORG",
    "group": "ORG",
    "location": "LOC",
    "PER": "PER",
    "ORG": "ORG",
    "LOC": "LOC",
}
MAX_WORDS = 100
UNLABELLED_SET, UNLABELLED = 9, -2
"""The texts without labels, from which a small model learns what a larger one finds."""
SYNTHETIC_SENTENCES = 80_000
EVERYDAY_SENTENCES = 8000
OVERLAP_WORDS = 6
SLOT_KINDS = {
    "person": "PER",
    "city": "LOC",
    "country": "LOC",
    "company": "ORG",
    "bank": "ORG",
    "street": "LOC",
    "restaurant": "ORG",
    "school": "ORG",
}


def read_file(path: Path) -> Iterator[Sentence]:
    """Yield the sentences of a file in one of the column formats, with labels of `LABELS`."""
    sentence: Sentence = []
    for line in path.read_text(encoding="utf-8").split("\n"):
        if not line.strip():
            if sentence:
                yield list(_clean(sentence))
            sentence = []
        elif not line.startswith("# "):
            parts = line.split("\t") if "\t" in line else line.rsplit(" ", 1)
            word, label = (parts[1], parts[2]) if path.suffix == ".iob2" else (parts[0], parts[-1].strip())
            sentence.append((re.sub(r"^(en|de):", "", word) if path.name.startswith("wikiann") else word, label))
    if sentence:
        yield list(_clean(sentence))


def _clean(sentence: Sentence) -> Iterator[tuple[str, str]]:
    """Yield words with the labels of the tagger. Handles (@name) are no names; IOB1 becomes IOB2."""
    previous, is_handle = "O", False
    for word, label in sentence:
        kind = KINDS.get(label[2:])
        if word == "@" or is_handle or word.startswith(("@", "#", "http")) or kind is None:
            kind = None
        is_handle = word == "@"
        continues = label[:1] == "I" and previous == kind
        yield word, "O" if kind is None else f"{'I' if continues else 'B'}-{kind}"
        previous = kind or "O"


def collect_names(sentences: list[Sentence]) -> dict[str, list[list[str]]]:
    """Return the names of each kind that occur in some sentences, as lists of words."""
    names: dict[str, set[tuple[str, ...]]] = {"PER": set(), "ORG": set(), "LOC": set()}
    for sentence in sentences:
        current: list[str] = []
        kind = ""
        for word, label in [*sentence, ("", "O")]:
            if label[0] != "I" and current:
                if len(current) <= 3 and all(re.fullmatch(r"[A-ZÀ-Þ][\w.'’&-]*", part) for part in current):
                    names[kind].add(tuple(current))
                current = []
            if label != "O":
                current.append(word)
                kind = label[2:]
    return {kind: sorted(map(list, values)) for kind, values in names.items()}


def make_sentence(template: str, names: dict[str, list[list[str]]], chance: random.Random) -> Sentence:
    """Fill a template, and label the names in it."""
    sentence: Sentence = []
    for piece in re.split(r"(\{\w+\})", template):
        slot = piece[1:-1]
        if piece.startswith("{") and slot in SLOT_KINDS:
            kind = SLOT_KINDS[slot]
            words = _choose_name(kind, slot, names, chance)
            sentence += [(word, f"{'I' if i else 'B'}-{kind}") for i, word in enumerate(words)]
        else:
            values = {"number": str(chance.randint(1, 99))} | {n: chance.choice(v) for n, v in SLOTS.items()} | SELF
            text = values[slot] if piece.startswith("{") else piece
            sentence += [(word, "O") for word in WORD.findall(text)]
    if sentence and chance.random() < 0.7:
        word, label = sentence[0]
        sentence[0] = (word[:1].upper() + word[1:], label)
    return sentence


def _choose_name(kind: str, slot: str, names: dict[str, list[list[str]]], chance: random.Random) -> list[str]:
    if chance.random() < 0.4:
        value = chance.choice(SLOTS[slot]).split()
        return [word for word in value if word not in ("the", "a")] or value
    name = chance.choice(names[kind])
    if kind == "PER" and chance.random() < 0.5:
        return name[:1] if slot == "person" else name
    return name


def lowered(sentence: Sentence) -> Sentence:
    """Return the sentence in lower case."""
    return [(word.lower(), label) for word, label in sentence]


def letter_case(word: str) -> int:
    """Return 0 for lower case and no letters, 1 for Capitalised, 2 for CAPITALS, 3 for mIxed."""
    if word.lower() == word:
        return 0
    if word[:1].isupper() and word[1:].lower() == word[1:]:
        return 1
    return 2 if word.upper() == word else 3


def check_overlap(train: list[Sentence], labelled: list[Sentence]) -> None:
    """Fail if a training sentence has as many words in a row of a labelled text as only a copy has."""

    def runs(sentence: Sentence) -> set[tuple[str, ...]]:
        words = [word.lower() for word, _ in sentence]
        return {tuple(words[i : i + OVERLAP_WORDS]) for i in range(max(1, len(words) - OVERLAP_WORDS + 1))}

    known = {run for sentence in labelled for run in runs(sentence) if len(run) > 3}
    for sentence in train:
        if not known.isdisjoint(runs(sentence)):
            raise SystemExit(f"A labelled text of the tests is in the training data: {sentence}")


class Writer:
    """Collects sentences as arrays."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.tokens: list[int] = []
        self.cases: list[int] = []
        self.labels: list[int] = []
        self.offsets = [0]
        self.sets: list[int] = []
        self._known: dict[str, list[int]] = {}

    def _ids(self, word: str) -> list[int]:
        if word not in self._known:
            self._known[word] = self._tokenizer.encode(word, add_special_tokens=False).ids or [100]
        return self._known[word]

    def add(self, number: int, sentence: Sentence) -> None:
        """Add a sentence. The first token of each word has its label, or UNLABELLED; the others have -1."""
        tokens, cases, labels = [101], [0], [-1]
        for word, label in sentence[:MAX_WORDS]:
            ids = self._ids(word)
            tokens += ids
            cases += [letter_case(word)] * len(ids)
            labels += [LABELS.index(label) if label else UNLABELLED] + [-1] * (len(ids) - 1)
        self.tokens += [*tokens[:255], 102]
        self.cases += [*cases[:255], 0]
        self.labels += [*labels[:255], -1]
        self.offsets.append(len(self.tokens))
        self.sets.append(number)


def main() -> None:
    """Read all sources and write the arrays."""
    folder, tokenizer_path, out, texts = map(Path, sys.argv[1:])
    chance = random.Random(1)
    tokenizer = Tokenizer.from_file(str(tokenizer_path))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    writer = Writer(tokenizer)
    read = {path.name.partition(".")[0]: list(read_file(path)) for path in sorted(folder.glob("*.conll"))}
    read["ewt_dev"] = list(read_file(folder / "ewt_dev.iob2"))
    ewt = read["ewt_dev"]
    cut = len(ewt) * 4 // 5
    train = [
        s
        for name in ("btc_a", "btc_b", "btc_e", "btc_f", "btc_g", "wnut17_train", "wnut17_dev", "wikigold")
        for s in read[name]
    ]
    train += ewt[:cut] + ewt[:cut]
    wikiann = list(read_file(folder / "wikiann_en.train"))
    german = list(read_file(folder / "wikiann_de.train"))
    train += chance.sample(wikiann, 4000) + chance.sample(german, 2000)
    names = collect_names(wikiann + german)
    statements = [t for statements, _, noise in FRAMES for t in (*statements, *statements, *noise)]
    for _ in range(EVERYDAY_SENTENCES):
        train.append(make_sentence(chance.choice(OPENINGS) + chance.choice(statements), names, chance))
    train += [lowered(s) for s in chance.sample(train, len(train) // 5)]
    generator = NameSentences(1, names)
    train += [generator.make() for _ in range(SYNTHETIC_SENTENCES)]
    labelled = {part: list(read_labelled(part)) for part in ("open", "held_out")}
    check_overlap(train, labelled["open"] + labelled["held_out"])
    tests = {1: read["btc_h"], 2: read["wnut17_test"], 3: ewt[cut:], 4: labelled["open"]}
    for sentence in train:
        writer.add(0, sentence)
    for number, sentences in tests.items():
        for sentence in sentences:
            writer.add(number, sentence)
    lines = texts.read_text(encoding="utf-8").splitlines()
    for line in lines:
        writer.add(UNLABELLED_SET, [(word, "") for word in WORD.findall(line)])
    np.savez_compressed(
        out,
        tokens=np.array(writer.tokens, dtype=np.uint16),
        cases=np.array(writer.cases, dtype=np.uint8),
        labels=np.array(writer.labels, dtype=np.int8),
        offsets=np.array(writer.offsets, dtype=np.int32),
        sets=np.array(writer.sets, dtype=np.int8),
    )
    print(f"{len(train)} sentences, {', '.join(f'{k}: {len(v)}' for k, v in names.items())} names")


if __name__ == "__main__":
    main()

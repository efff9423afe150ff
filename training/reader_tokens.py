"""Pack the examples of the reader as tokens, with the weights to begin with, for training/train_reader.py.

    python -m training.reader_tokens EXAMPLES.jsonl OUT.npz --start GRAPH.onnx [--teacher REPLACEMENT.onnx]
    python -m training.reader_tokens DEV.jsonl DEV.npz

GRAPH.onnx is the reader of the package, or a reranker with one logit. EXAMPLES.jsonl is what training/reader_data.py
writes. A pair is `[CLS] question [SEP] row [SEP]` with the token types 0 and 1, a message `[CLS] message [SEP] previous
[SEP]`. With `--teacher`, a cross-encoder for replaced texts, pairs of texts are labelled half by it. The file is small
enough to travel to a machine with a GPU, which needs torch and numpy only.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from rem.search.models.files import SessionWithWords, load_session, load_tokenizer, load_words
from rem.search.reader import MESSAGE_HEAD, PAIR_HEAD, MessageType, join_replaced
from training.load_weights import unpack_graph

MAX_QUESTION_TOKENS, MAX_PAIR_TOKENS = 62, 192
CLS, SEP = 101, 102
TEACHER_BATCH = 64
UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Input:
    """Tokens; `first` is the position of the second text, whose tokens have these offsets in it."""

    ids: list[int]
    first: int
    offsets: list[tuple[int, int]]

    def find_span(self, start: int | None, end: int | None) -> tuple[int, int]:
        """Return the first and last token of a piece of the second text, or UNKNOWN if it was cut off."""
        inside = [
            place
            for place, (left, right) in enumerate(self.offsets)
            if start is not None and end is not None and right > start and left < end
        ]
        if not inside or self.offsets[inside[-1]][1] < (end or 0):
            return UNKNOWN, UNKNOWN
        return self.first + inside[0], self.first + inside[-1]


class Tokens:
    """Makes inputs of texts, and keeps them."""

    def __init__(self) -> None:
        self.inputs: list[Input] = []
        self._tokenizer: Tokenizer = load_tokenizer()
        self._tokenizer.no_truncation()
        self._tokenizer.encode_special_tokens = True

    def add(self, question: str, text: str | None) -> Input:
        """Return the tokens of a question, and of a text after it."""
        asked = self._tokenizer.encode(question, add_special_tokens=False).ids[:MAX_QUESTION_TOKENS]
        ids, first, offsets = [CLS, *asked, SEP], len(asked) + 2, []
        if text is not None:
            encoded = self._tokenizer.encode(text, add_special_tokens=False)
            size = MAX_PAIR_TOKENS - first - 1
            ids, offsets = [*ids, *encoded.ids[:size], SEP], encoded.offsets[:size]
        self.inputs.append(Input(ids, first, offsets))
        return self.inputs[-1]

    def pack(self) -> dict[str, np.ndarray]:
        """Return all tokens in one array, the end of each input in it, and where its second text begins."""
        return {
            "ids": np.concatenate([np.array(item.ids, dtype=np.uint16) for item in self.inputs]),
            "ends": np.cumsum([len(item.ids) for item in self.inputs]).astype(np.int32),
            "first": np.array([item.first for item in self.inputs], dtype=np.int16),
        }


def pack_examples(examples: Sequence[dict[str, Any]], teacher: Path | None) -> dict[str, np.ndarray]:
    """Return the inputs of rows, then those of pairs of texts, then those of messages, with their labels."""
    tokens = Tokens()
    questions, pairs, messages = ([e for e in examples if key in e] for key in ("rows", "older", "previous"))
    labels, sizes = [], []
    for example in questions:
        for text, label, start, end, is_known in example["rows"]:
            read = tokens.add(example["ask"], text)
            labels.append((label, is_known, *(read.find_span(start, end) if label else (UNKNOWN, UNKNOWN))))
        sizes.append(len(example["rows"]))
    compared = [tokens.add(e["ask"], join_replaced(e["newer"], e["older"])) for e in pairs]
    replaced = np.array([float(e["replaces"]) for e in pairs], dtype=np.float32)
    if teacher is not None:
        replaced = (replaced + ask_teacher(teacher, compared)) / 2
    for example in messages:
        tokens.add(example["text"], example["previous"])
    types = [str(kind) for kind in MessageType]
    return tokens.pack() | {
        "labels": np.array(labels, dtype=np.int16),
        "sizes": np.array(sizes, dtype=np.int16),
        "replaced": replaced,
        "types": np.array([UNKNOWN if e["type"] is None else types.index(e["type"]) for e in messages], dtype=np.int8),
        "continues": np.array(
            [UNKNOWN if e["continues"] is None else int(e["continues"]) for e in messages], dtype=np.int8
        ),
        "heads": np.array([len(PAIR_HEAD), 2, len(MESSAGE_HEAD)], dtype=np.int8),
    }


def ask_teacher(graph: Path, inputs: Sequence[Input]) -> np.ndarray:
    """Return how sure an int8 graph of one logit is that the newer text replaces the older one, from 0 to 1."""
    session = SessionWithWords(load_session(str(graph)), load_words())
    order = sorted(range(len(inputs)), key=lambda place: len(inputs[place].ids))
    found = np.zeros(len(inputs), dtype=np.float32)
    for start in range(0, len(order), TEACHER_BATCH):
        places = order[start : start + TEACHER_BATCH]
        found[places] = session.run(["logits"], _feed([inputs[place] for place in places]))[0]
    return 1 / (1 + np.exp(-found))


def _feed(inputs: Sequence[Input]) -> dict[str, np.ndarray]:
    shape = (len(inputs), max(len(item.ids) for item in inputs))
    feed = {name: np.zeros(shape, dtype=np.int32) for name in ("input_ids", "token_type_ids", "attention_mask")}
    for row, item in enumerate(inputs):
        size = len(item.ids)
        feed["input_ids"][row, :size] = item.ids
        feed["token_type_ids"][row, item.first : size] = 1
        feed["attention_mask"][row, :size] = 1
    return feed


def read_examples(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Return the examples of some files."""
    return [json.loads(line) for path in paths for line in path.read_text(encoding="utf-8").splitlines()]


def main() -> None:
    """Pack the examples and the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("examples", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--start", type=Path)
    parser.add_argument("--teacher", type=Path)
    options = parser.parse_args()
    weights = unpack_graph(options.start) if options.start else {}
    packed = pack_examples(read_examples([options.examples]), options.teacher)
    np.savez_compressed(options.out, **packed, **{f"start.{k}": v.astype(np.float16) for k, v in weights.items()})
    size = options.out.stat().st_size / 1e6
    print(f"{len(packed['sizes'])} questions, {len(packed['ends'])} inputs, {len(packed['ids'])} tokens, {size:.1f} MB")


if __name__ == "__main__":
    main()

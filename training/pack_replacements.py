"""Pack the candidates of weeks (training/week_candidates.py) with their order in time, for train_replacement.py.

python -m training.pack_replacements OUT.npz CANDIDATES.jsonl … [--short-facts]
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rem.embeddings.bundled.files import load_tokenizer
from rem.query.continuations import join_texts
from rem.query.superseded import SEPARATOR
from training.pack_weeks import ANSWER, NO_ANSWER, OUTDATED, SIMILARITY_WEIGHT
from training.short_facts import Triple, make_short_facts

_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_COMMON_WORDS = frozenset(
    [
        "what",
        "when",
        "where",
        "which",
        "does",
        "have",
        "with",
        "that",
        "this",
        "from",
        "they",
        "them",
        "there",
        "their",
        "about",
        "again",
        "need",
        "long",
        "much",
        "many",
        "will",
        "would",
        "should",
        "could",
        "going",
        "gonna",
        "said",
        "told",
        "tell",
        "know",
        "think",
        "called",
        "name",
        "number",
        "time",
        "date",
        "your",
        "mine",
        "ours",
        "were",
        "been",
        "being",
        "still",
        "right",
        "into",
        "over",
        "after",
        "before",
        "than",
        "then",
        "some",
        "just",
        "like",
        "want",
    ]
)
_ASKS_FOR_NUMBER = re.compile(r"\b(?:code|number|time|much|many|when|date|pin|plate|phone|room|gate)\b", re.IGNORECASE)
UNDATED = -1
"""The time of a note without a date, which counts as older than everything."""


def main() -> None:
    """Read, tokenize and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("paths", type=Path, nargs="+")
    parser.add_argument("--short-facts", action="store_true", help="add the facts of training/short_facts.yaml")
    options = parser.parse_args()
    texts: dict[str, int] = {}
    names = ("question", "is_corrected", "row_question", "row_text", "score", "label", "time", "is_note")
    columns: dict[str, list[float]] = {name: [] for name in names}
    questions = [json.loads(line) for path in options.paths for line in path.read_text(encoding="utf-8").splitlines()]
    made: list[Triple] = list(make_short_facts()) if options.short_facts else []
    maker = VariantMaker([question["ask"] for question in questions])
    for number, question in enumerate(questions):
        made += maker.make_variants(question)
        columns["question"].append(texts.setdefault(question["ask"], len(texts)))
        columns["is_corrected"].append(question["group"] == "corrected")
        times = sorted({_find_time(row["row"]) for row in question["rows"]} - {UNDATED})
        for row in question["rows"]:
            time = _find_time(row["row"])
            columns["row_question"].append(number)
            columns["row_text"].append(texts.setdefault(join_texts(row["before"], row["text"]), len(texts)))
            columns["score"].append(row["row"]["score"] + SIMILARITY_WEIGHT * (row["row"]["similarity"] or 0.0))
            columns["label"].append(ANSWER if row["answers"] else OUTDATED if row["is_outdated"] else NO_ANSWER)
            columns["time"].append(UNDATED if time == UNDATED else times.index(time))
            columns["is_note"].append(row["row"]["table"] != "messages")
    variants = [[*(texts.setdefault(text, len(texts)) for text in triple), label] for *triple, label in made]
    tokenizer = load_tokenizer()
    tokenizer.no_padding()
    ids = [encoding.ids for encoding in tokenizer.encode_batch_fast(list(texts))]
    arrays = {
        name: np.array(values, dtype=np.float32 if name == "score" else np.int32) for name, values in columns.items()
    }
    arrays["tokens"] = np.concatenate([np.array(i, dtype=np.uint16) for i in ids])
    arrays["separator"] = np.array(tokenizer.encode(SEPARATOR, add_special_tokens=False).ids, dtype=np.uint16)
    arrays["offsets"] = np.cumsum([0, *map(len, ids)]).astype(np.int32)
    np.savez_compressed(options.out, **arrays, variants=np.array(variants, dtype=np.int32))
    print(f"{len(questions)} questions, {len(columns['label'])} candidates, {len(made)} variants")


class VariantMaker:
    """Makes newer texts for an older one.

    Another word than one of the question says nothing about it: "I had lunch with Jonas" and "Where did I have lunch
    with Priya?". Another number replaces the older one if the question asks for it.
    """

    def __init__(self, questions: list[str]) -> None:
        self._random = random.Random(1)
        words = {word for question in questions for word in _list_words(question)}
        self._names = sorted(word for word in words if word[0].isupper())
        self._others = sorted(word for word in words if word.islower())

    def make_variants(self, question: dict[str, Any]) -> Iterator[Triple]:
        """Return the question, an older and a newer text, and whether the newer one replaces the older one."""
        ask, rows = question["ask"], question["rows"]
        answers = [join_texts(row["before"], row["text"]) for row in rows if row["answers"]]
        outdated = [join_texts(row["before"], row["text"]) for row in rows if row["is_outdated"]]
        pairs = [(old, new) for old in outdated for new in answers] or [(answer, answer) for answer in answers[:1]]
        for older, newer in pairs:
            common = [word for word in _list_words(ask) if re.search(rf"\b{re.escape(word)}\b", newer, re.IGNORECASE)]
            for word in self._random.sample(common, min(2, len(common))):
                changed = re.sub(rf"\b{re.escape(word)}\b", self._exchange(word), newer, flags=re.IGNORECASE)
                yield ask, older, changed, False
        for answer in answers[:1]:
            if _ASKS_FOR_NUMBER.search(ask) and len(re.findall(r"\d+", answer)) == 1:
                yield ask, answer, re.sub(r"\d+", lambda found: self._exchange(found[0]), answer), True

    def _exchange(self, word: str) -> str:
        if word.isdigit():
            return str(int(word[:9]) + self._random.randint(1, 9))
        if word in _DAYS:
            return self._random.choice([day for day in _DAYS if day != word])
        return self._random.choice(self._names if word[0].isupper() else self._others)


def _list_words(question: str) -> list[str]:
    """Return the words of a question that tell what it is about; the first one has a capital letter anyway."""
    words = re.findall(r"[^\W_]+", question)
    return [word for word in words[1:] if (len(word) > 3 or word.isdigit()) and word.lower() not in _COMMON_WORDS]


def _find_time(row: dict[str, Any]) -> Any:
    """Return what orders the rows in time: the date, and the place in the session."""
    is_undated = row["table"] != "messages" and not row["record"].get("timestamp")
    if is_undated or not row.get("happened_at"):
        return UNDATED
    return row["happened_at"], row["record"].get("message_index") or 0


if __name__ == "__main__":
    main()

"""Train the classifier of messages (rem/message_kind_model.py) on weeks of everyday use, and measure it on others.

    python -m training.train_message_kinds OUT.json --train WEEK.yaml … --test WEEK.yaml …

It is a logistic regression over words. Question marks are removed first: the rules know them. Requests such as "note
that …" are left out: the rules take what follows for a statement. Messages are also learnt in lower case and without
their last sign, and statements sentence by sentence: otherwise a short text without a full stop would be a question.
Weeks have few messages as short as "Contract signed.", so those of `short_messages.yaml` are learnt as well.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import torch
import yaml

from rem.message_kind_model import KINDS, find_features
from rem.models.message import MessageKind
from rem.text import split_sentences

SHORT_MESSAGES = Path(__file__).with_name("short_messages.yaml")
SHORT_MESSAGE_COPIES = 4
"""Each of the few short messages counts as much as this many of the weeks."""
MIN_OCCURRENCES = 6
MIN_SENTENCE_WORDS = 3
PENALTY = 2e-4
SMALL_TALK_WEIGHT = 3.0
"""There is little small talk in the weeks, so that each message of it counts more."""
MIN_WEIGHT = 0.15
"""Features with smaller weights are left out of the file."""
_CLAUSE_END = re.compile(r"[,;:] (?:and |but |so )?")
_NOTE_REQUEST = re.compile(r"(?:please )?(?:note|remember|write down|jot)\b", re.IGNORECASE)


def read_messages(path: Path) -> list[tuple[str, int]]:
    """Return the messages and questions of a week, without question marks, with the numbers of their kinds."""
    week = yaml.safe_load(path.read_text(encoding="utf-8"))
    found: list[tuple[str, str]] = [(question["ask"], "question") for question in week["questions"]]
    for session in week["sessions"]:
        for message in session["messages"]:
            found += [(message, "statement")] if isinstance(message, str) else [(t, k) for k, t in message.items()]
    numbers = {str(kind): number for number, kind in enumerate(KINDS)}
    texts = ((text.replace("’", "'").strip().rstrip("?").rstrip(), numbers[kind]) for text, kind in found)
    return [(text, kind) for text, kind in texts if text and not _NOTE_REQUEST.match(text)]


def read_short_messages(part: str) -> list[tuple[str, int]]:
    """Return the short messages of a part, `train` or `held_out`, with the numbers of their kinds."""
    messages = yaml.safe_load(SHORT_MESSAGES.read_text(encoding="utf-8"))[part]
    return [(text, number) for number, kind in enumerate(KINDS) for text in messages.get(str(kind), ())]


def vary(messages: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the messages, and how others might have typed them."""
    statement = KINDS.index(MessageKind.STATEMENT)
    parts = [
        (sentence, kind)
        for text, kind in messages
        if kind == statement
        for clause in split_sentences(text)
        for sentence in (clause, *_CLAUSE_END.split(clause))
        if len(sentence.split()) >= MIN_SENTENCE_WORDS
    ]
    plain = [(text.rstrip(".! "), kind) for text, kind in (*messages, *parts)]
    return [*messages, *parts, *plain, *((text.lower().replace("'", ""), kind) for text, kind in plain)]


def encode(messages: list[tuple[str, int]], places: dict[str, int]) -> torch.Tensor:
    """Return the features of messages as a sparse matrix."""
    cells = [
        (row, places[feature])
        for row, (text, _) in enumerate(messages)
        for feature in find_features(text)
        if feature in places
    ]
    return torch.sparse_coo_tensor(
        torch.tensor(cells).T, torch.ones(len(cells)), (len(messages), len(places)), check_invariants=True
    )


def train(messages: list[tuple[str, int]]) -> dict[str, list[float]]:
    """Return the weights of each feature for the kinds."""
    counts = Counter(feature for text, _ in messages for feature in find_features(text))
    names = [feature for feature, count in counts.items() if count >= MIN_OCCURRENCES]
    matrix = encode(messages, {feature: place for place, feature in enumerate(names)})
    kinds = torch.tensor([kind for _, kind in messages])
    importance = torch.tensor([SMALL_TALK_WEIGHT if kind is MessageKind.SMALL_TALK else 1.0 for kind in KINDS])
    weights = torch.zeros(len(names), len(KINDS), requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=300, line_search_fn="strong_wolfe")

    def compute_loss() -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(torch.sparse.mm(matrix, weights), kinds, importance)
        loss = loss + PENALTY * weights.square().sum()
        loss.backward()
        return loss

    optimizer.step(compute_loss)
    table = weights.detach().numpy()
    return {
        name: [round(float(weight), 3) for weight in row]
        for name, row in zip(names, table, strict=True)
        if np.abs(row).max() >= MIN_WEIGHT or name.startswith("u=")
    }


def main() -> None:
    """Train, write and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--train", type=Path, nargs="+", required=True)
    parser.add_argument("--test", type=Path, nargs="*", default=[])
    options = parser.parse_args()
    short = read_short_messages("train") * SHORT_MESSAGE_COPIES
    weights = train(vary([*(message for path in options.train for message in read_messages(path)), *short]))
    lines = (f"{json.dumps(name, ensure_ascii=False)}: {json.dumps(row)}" for name, row in sorted(weights.items()))
    options.out.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{len(weights)} features")
    tests = {path.stem: read_messages(path) for path in options.test}
    for name, messages in {**tests, "short": read_short_messages("held_out")}.items():
        confusion: Counter[tuple[str, str]] = Counter()
        for text, kind in messages:
            totals = np.sum([weights[f] for f in find_features(text) if f in weights], axis=0)
            confusion[str(KINDS[kind]), str(KINDS[int(totals.argmax())])] += 1
        wrong = {f"{kind} as {found}": count for (kind, found), count in confusion.items() if kind != found}
        print(f"{name}: {sum(wrong.values())} of {confusion.total()} wrong: {wrong}")


if __name__ == "__main__":
    main()

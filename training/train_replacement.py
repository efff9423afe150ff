"""Train the model that reads a question and two texts, and says whether the newer one replaces the older one.

    python -m training.train_replacement BASE.npz RERANKER.npz OUT.npz --train PAIRS.npz --dev PAIRS.npz …

It starts from the layers of the reranker. The data are the candidates of everyday questions
(training/pack_replacements.py): a newer text with the answer replaces an older one with an outdated answer, and nothing
else replaces anything.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from training.encoder import Encoder, load_base, pad
from training.train_reranker import Reranker, join, split_rows

MAX_QUESTION_TOKENS, MAX_TEXT_TOKENS = 64, 92
BATCH_PAIRS = 128
COMPARED_OLDER, COMPARED_NEWER = 5, 12
"""Rows of an answer that are compared, by their rank."""
LOGIT_WEIGHT = 0.06
MAX_CHAIN = 3
"""A row can be replaced by one that is replaced as well."""
ANSWER, OUTDATED = 1, -1

Input = tuple[np.ndarray, np.ndarray]
"""Tokens and their types."""
Pair = tuple[int, int, int]
"""A question, an older and a newer text, as places in `Candidates.tokens`."""


@dataclass
class Candidates:
    """The candidates of everyday questions, with their order in time."""

    tokens: list[np.ndarray]
    question: np.ndarray
    is_corrected: np.ndarray
    rows: list[np.ndarray]
    """The rows of each question."""
    text: np.ndarray
    score: np.ndarray
    label: np.ndarray
    time: np.ndarray
    is_note: np.ndarray
    separator: np.ndarray
    variants: np.ndarray
    """Questions, older and newer texts that were made from them, and whether the newer one replaces the older one."""

    @classmethod
    def load(cls, path: Path) -> Candidates:
        """Load what training/pack_replacements.py wrote."""
        data = np.load(path)
        tokens, rows = split_rows(data)
        columns = (data[name] for name in ("row_text", "score", "label", "time", "is_note"))
        separator = data["separator"].astype(np.int64)
        return cls(tokens, data["question"], data["is_corrected"], rows, *columns, separator, data["variants"])

    def can_replace(self, newer: int, older: int) -> bool:
        """Return whether a row is newer. What was said is not outdated because a note was stored later."""
        return bool(self.time[newer] > self.time[older] and (self.is_note[older] or not self.is_note[newer]))

    def join(self, question: int, older: int, newer: int) -> Input:
        """Return [CLS] question [SEP] older separator newer [SEP], with the type 0 for the question, and then 1."""
        head = np.append(self.tokens[question][:-1][: MAX_QUESTION_TOKENS - 1], 102)
        texts = [self.tokens[text][1:-1][:MAX_TEXT_TOKENS] for text in (older, newer)]
        tail = np.concatenate([texts[0], self.separator, texts[1], [102]])
        return np.concatenate([head, tail]), np.repeat([0, 1], [len(head), len(tail)])

    def choose(self, generator: np.random.Generator, negatives: int) -> list[tuple[Pair, float]]:
        """Return pairs of texts, and whether the newer one replaces the older one."""
        chosen = [((int(question), int(old), int(new)), float(label)) for question, old, new, label in self.variants]
        for question, rows in zip(self.question, self.rows, strict=True):
            wrong: list[tuple[float, Pair]] = []
            for place, older, newer in self._list_pairs(rows[np.argsort(-self.score[rows], kind="stable")]):
                pair = (int(question), int(self.text[older]), int(self.text[newer]))
                labels = (self.label[older], self.label[newer])
                if labels == (OUTDATED, ANSWER):
                    chosen.append((pair, 1.0))
                elif is_no_replacement(*labels):
                    # Answers matter most: if one is replaced by mistake, the user gets a wrong answer.
                    interest = {ANSWER: 3.0, OUTDATED: 2.0}.get(labels[0], 1.0 / (1 + place))
                    wrong.append((interest * generator.random(), pair))
            wrong.sort(reverse=True)
            chosen += [(pair, 0.0) for _, pair in wrong[:negatives]]
        return chosen

    def _list_pairs(self, rows: np.ndarray, max_older: int = 1000, max_newer: int = 1000) -> Iterator[Pair]:
        """Return the rank of the older row, the older and the newer row of each pair."""
        for place, older in enumerate(rows[:max_older]):
            for newer in rows[:max_newer]:
                if self.can_replace(newer, older):
                    yield place, int(older), int(newer)

    def measure(self, ranker: Reranker, model: Reranker, limits: list[float]) -> dict[str, object]:
        """Return how often the answer comes first at several limits, for corrected and for other facts."""
        total = self.score + LOGIT_WEIGHT * self._rank(ranker)
        pairs: dict[tuple[int, int], int] = {}
        inputs = []
        for question, rows in zip(self.question, self.rows, strict=True):
            best = rows[np.argsort(-total[rows], kind="stable")]
            for _, older, newer in self._list_pairs(best, COMPARED_OLDER, COMPARED_NEWER):
                pairs[older, newer] = len(inputs)
                inputs.append(self.join(int(question), int(self.text[older]), int(self.text[newer])))
        logits = score_inputs(model, inputs)
        figures: dict[str, object] = {}
        for limit in (np.inf, *limits):
            replaced = {pair for pair, place in pairs.items() if logits[place] > limit}
            first: dict[bool, list[bool]] = {True: [], False: []}
            for number, rows in enumerate(self.rows):
                if (self.label[rows] == ANSWER).any():
                    top = self._follow(rows, int(rows[np.argmax(total[rows])]), replaced)
                    first[bool(self.is_corrected[number])].append(self.label[top] == ANSWER)
            figures[f"limit {limit:g}"] = [round(float(np.mean(first[kind])), 4) for kind in (True, False)]
        return figures

    def _rank(self, ranker: Reranker) -> np.ndarray:
        """Return the logit of the reranker for each row."""
        asked = np.empty(len(self.text), dtype=np.int64)
        for number, rows in enumerate(self.rows):
            asked[rows] = self.question[number]
        pairs = zip(asked, self.text, strict=True)
        return score_inputs(ranker, [join(self.tokens[question], self.tokens[text]) for question, text in pairs])

    def _follow(self, rows: np.ndarray, row: int, replaced: set[tuple[int, int]]) -> int:
        """Return the newest row that replaces a row, or the row itself."""
        for _ in range(MAX_CHAIN):
            newer = [int(other) for other in rows if (row, int(other)) in replaced]
            if not newer:
                break
            row = max(newer, key=lambda other: self.time[other])
        return row


def is_no_replacement(older: int, newer: int) -> bool:
    """Return whether the labels of two rows say that the newer one replaces nothing. Of two answers nobody knows."""
    return newer != OUTDATED and (older, newer) not in ((ANSWER, ANSWER), (OUTDATED, ANSWER))


def compute_logits(model: Reranker, inputs: list[Input]) -> Tensor:
    """Return one logit for each input."""
    device = model.head.weight.device
    ids, mask = pad([text for text, _ in inputs], device)
    types = pad([kinds for _, kinds in inputs], device)[0]
    return model.head(model.encoder(ids, mask, types))[:, 0].float()


@torch.no_grad()
def score_inputs(model: Reranker, inputs: list[Input]) -> np.ndarray:
    """Return the logits of many inputs."""
    model.eval()
    order = sorted(range(len(inputs)), key=lambda i: len(inputs[i][0]))
    result = np.empty(len(inputs), dtype=np.float32)
    for start in range(0, len(order), 512):
        places = order[start : start + 512]
        result[places] = compute_logits(model, [inputs[i] for i in places]).cpu().numpy()
    return result


def load_reranker(weights: dict[str, np.ndarray], dropout: float = 0.0) -> Reranker:
    """Return the trained reranker."""
    model = Reranker(Encoder(weights, dropout=dropout))
    with torch.no_grad():
        model.head.weight.copy_(torch.from_numpy(weights["head.weight"].astype(np.float32)))
        model.head.bias.copy_(torch.from_numpy(weights["head.bias"].astype(np.float32)))
    return model


def main() -> None:
    """Train, measure and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", type=Path)
    parser.add_argument("reranker", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--train", type=Path, nargs="+", required=True)
    parser.add_argument("--dev", type=Path, nargs="*", default=[])
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--negatives", type=int, default=10, help="pairs of each question without a replacement")
    parser.add_argument("--rate", type=float, default=4e-5)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--limits", type=float, nargs="*", default=[-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    weights = {**load_base(options.base), **np.load(options.reranker)}
    model = load_reranker(weights, options.dropout).to(device)
    train(model, [Candidates.load(path) for path in options.train], options)
    ranker = load_reranker(weights).to(device)
    figures = {path.stem: Candidates.load(path).measure(ranker, model, options.limits) for path in options.dev}
    for name, values in figures.items():
        print(options.out.stem, name, values, flush=True)
    head = {"head.weight": model.head.weight, "head.bias": model.head.bias}
    arrays = {name: value.detach().half().cpu().numpy() for name, value in head.items()}
    np.savez(options.out, **model.encoder.published_names(), **arrays)
    options.out.with_suffix(".json").write_text(
        json.dumps({"options": {k: str(v) for k, v in vars(options).items()}, "figures": figures}, indent=1)
    )


def train(model: Reranker, sets: list[Candidates], options: argparse.Namespace) -> None:
    """Train the layers and the head."""
    device = model.head.weight.device
    generator = np.random.default_rng(options.seed)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=options.rate, weight_decay=0.01)
    step, steps = 0, 0
    for epoch in range(1, options.epochs + 1):
        pairs = [(data, *item) for data in sets for item in data.choose(generator, options.negatives)]
        steps = steps or options.epochs * len(pairs) // BATCH_PAIRS + 1
        order = generator.permutation(len(pairs))
        model.train()
        total = 0.0
        for start in range(0, len(order), BATCH_PAIRS):
            batch = [pairs[i] for i in order[start : start + BATCH_PAIRS]]
            for group in optimizer.param_groups:
                group["lr"] = options.rate * min((step + 1) / 40, max(0.02, 1 - step / steps))
            step += 1
            labels = torch.tensor([label for *_, label in batch], device=device)
            with torch.autocast("cuda", torch.bfloat16, enabled=device.type == "cuda"):
                logits = compute_logits(model, [data.join(*pair) for data, pair, _ in batch])
            loss = functional.binary_cross_entropy_with_logits(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            total += float(loss.detach()) * len(batch)
        print(f"epoch {epoch}: {len(pairs)} pairs, loss {total / len(pairs):.4f}", flush=True)


if __name__ == "__main__":
    main()

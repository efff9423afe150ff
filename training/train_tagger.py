"""Train the entity tagger: token classification with an embedding of the letter case of each word.

python -m training.train_tagger DATA.npz BASE.npz OUT.npz --layers 3
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from training.encoder import Encoder, load_base

LABELS = ("O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC")
SETS = {1: "btc_h", 2: "wnut17_test", 3: "ewt", 4: "notes", 5: "notes_lower"}
BATCH_SENTENCES = 64


class Tagger(nn.Module):
    """An encoder with a letter-case embedding and one linear layer on each token."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder
        size = encoder.word.shape[1]
        self.case = nn.Embedding(4, size)
        nn.init.normal_(self.case.weight, std=0.02)
        self.head = nn.Linear(size, len(LABELS))

    def forward(self, ids: Tensor, mask: Tensor, cases: Tensor) -> Tensor:
        """Return the logits of each token."""
        return self.head(self.encoder.hidden(ids, mask, extra=self.case(cases)))


def spans(labels: list[int]) -> set[tuple[int, int, str]]:
    """Return the entities of a sentence as (first, last, kind). An I without its B begins an entity."""
    found, start, kind = set(), 0, ""
    for place, label in enumerate([*labels, 0]):
        name = LABELS[label]
        if kind and (name[0] != "I" or name[2:] != kind):
            found.add((start, place - 1, kind))
            kind = ""
        if name != "O" and not kind:
            start, kind = place, name[2:]
    return found


def evaluate(model: Tagger, data: dict[str, np.ndarray], number: int) -> dict[str, list[float]]:
    """Return precision, recall and F1 of each kind."""
    right, found, gold = Counter(), Counter(), Counter()
    rows = np.flatnonzero(data["sets"] == number)
    model.eval()
    for start in range(0, len(rows), 256):
        ids, mask, cases, labels = batch_of(data, rows[start : start + 256], model.head.weight.device)
        with torch.no_grad():
            guess = model(ids, mask, cases).argmax(-1)
        for row_guess, row_labels in zip(guess.tolist(), labels.tolist(), strict=True):
            places = [i for i, label in enumerate(row_labels) if label >= 0]
            have, want = spans([row_guess[i] for i in places]), spans([row_labels[i] for i in places])
            for counter, items in ((right, have & want), (found, have), (gold, want)):
                counter.update(kind for *_, kind in items)
    result = {}
    for kind in ("PER", "ORG", "LOC"):
        precision, recall = right[kind] / max(1, found[kind]), right[kind] / max(1, gold[kind])
        result[kind] = [
            round(x, 3) for x in (precision, recall, 2 * precision * recall / max(1e-9, precision + recall))
        ]
    return result


def batch_of(
    data: dict[str, np.ndarray], rows: np.ndarray, device: torch.device
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return ids, mask, cases and labels of some sentences."""
    starts, ends = data["offsets"][rows], data["offsets"][rows + 1]
    width = int((ends - starts).max())
    arrays = [np.zeros((len(rows), width), dtype=np.int64) for _ in range(3)] + [np.full((len(rows), width), -1)]
    for row, (start, end) in enumerate(zip(starts, ends, strict=True)):
        for array, name in zip(arrays, ("tokens", "", "cases", "labels"), strict=True):
            array[row, : end - start] = data[name][start:end] if name else 1
    return tuple(torch.from_numpy(array).to(device) for array in arrays)  # type: ignore[return-value]


def main() -> None:
    """Train, measure and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("base", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--name", default="tagger")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    generator = np.random.default_rng(options.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = dict(np.load(options.data))
    model = Tagger(Encoder(load_base(options.base), range(options.layers), options.dropout)).to(device)
    rows = np.flatnonzero(data["sets"] == 0)[: options.limit]
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=options.rate, weight_decay=0.01)
    steps = options.epochs * len(rows) // BATCH_SENTENCES + 1
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min((s + 1) / 100, max(0.02, 1 - s / steps)))
    report = []
    for epoch in range(1, options.epochs + 1):
        started = time.time()
        model.train()
        order = generator.permutation(rows)
        total = torch.zeros((), device=device)
        for start in range(0, len(order), BATCH_SENTENCES):
            ids, mask, cases, labels = batch_of(data, order[start : start + BATCH_SENTENCES], device)
            logits = model(ids, mask, cases)
            loss = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-1)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            schedule.step()
            total += loss.detach()
        figures = (
            {name: evaluate(model, data, number) for number, name in SETS.items()}
            if epoch == options.epochs or epoch == 2
            else {}
        )
        report.append({"epoch": epoch, **figures})
        mean = float(total) * BATCH_SENTENCES / len(order)
        print(f"{options.name} epoch {epoch}: loss {mean:.4f}, {time.time() - started:.0f} s {figures}", flush=True)
    extra = {"case": model.case.weight, "head.weight": model.head.weight, "head.bias": model.head.bias}
    arrays = {name: value.detach().half().cpu().numpy() for name, value in extra.items()}
    np.savez(options.out, **model.encoder.published_names(), **arrays)
    options.out.with_suffix(".json").write_text(
        json.dumps({"options": {k: str(v) for k, v in vars(options).items()}, "epochs": report}, indent=1)
    )


if __name__ == "__main__":
    main()

"""Train the entity tagger: token classification with an embedding of the letter case of each word.

    python -m training.train_tagger DATA.npz BASE.npz TEACHER.npz --layers 6
    python -m training.train_tagger DATA.npz BASE.npz OUT.npz --layers 3 --teacher TEACHER.npz
    python -m training.train_tagger DATA.npz BASE.npz BETTER.npz --start OUT.npz --epochs 1 --share .12 --rate 5e-5

With a teacher, the model also learns what the teacher finds in texts without labels.
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
SETS = {1: "btc_h", 2: "wnut17_test", 3: "ewt", 4: "names_open"}
BATCH_SENTENCES = 128
UNLABELLED_SET = 9
UNLABELLED = -2
"""The label of a word in a text without labels."""


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


def load_tagger(path: Path, base: dict[str, np.ndarray]) -> Tagger:
    """Return a saved tagger."""
    saved = dict(np.load(path))
    layers = sorted({int(name.split(".")[2]) for name in saved if name.startswith("encoder.layer.")})
    tagger = Tagger(Encoder(base | saved, layers))
    with torch.no_grad():
        tagger.case.weight.copy_(torch.from_numpy(saved["case"]).float())
        tagger.head.weight.copy_(torch.from_numpy(saved["head.weight"]).float())
        tagger.head.bias.copy_(torch.from_numpy(saved["head.bias"]).float())
    return tagger


def loss_of(logits: Tensor, labels: Tensor, taught: Tensor | None) -> Tensor:
    """Return the loss on the labels, or half of it and half of the distance to the teacher."""
    known = labels.clamp(min=-1).flatten()
    own = functional.cross_entropy(logits.flatten(0, 1), known, ignore_index=-1, reduction="sum")
    own = own / (known >= 0).sum().clamp(min=1)
    if taught is None:
        return own
    places = labels != -1
    distance = functional.kl_div(
        logits[places].log_softmax(-1), taught[places].log_softmax(-1), log_target=True, reduction="batchmean"
    )
    return 0.5 * own + 0.5 * distance


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


def save(model: Tagger, path: Path) -> None:
    """Write the layers, the letter-case embedding and the last layer."""
    extra = {"case": model.case.weight, "head.weight": model.head.weight, "head.bias": model.head.bias}
    arrays = {name: value.detach().half().cpu().numpy() for name, value in extra.items()}
    np.savez(path, **model.encoder.published_names(), **arrays)


def main() -> None:
    """Train, measure and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("base", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--name", default="tagger")
    parser.add_argument("--teacher", type=Path)
    parser.add_argument("--start", type=Path, help="continue with a saved tagger")
    parser.add_argument("--share", type=float, default=1.0, help="the share of the sentences in an epoch")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rate", type=float, default=1.5e-4)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    generator = np.random.default_rng(options.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = dict(np.load(options.data))
    base = load_base(options.base)
    model = load_tagger(options.start, base) if options.start else Tagger(Encoder(base, range(options.layers)))
    for layer in model.encoder.layers:
        layer.dropout = options.dropout
    model = model.to(device)
    teacher = load_tagger(options.teacher, base).eval().to(device) if options.teacher else None
    used = [0] if teacher is None else [0, UNLABELLED_SET]
    rows = np.flatnonzero(np.isin(data["sets"], used))[: options.limit]
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=options.rate, weight_decay=0.01)
    steps = round(options.epochs * options.share * len(rows)) // BATCH_SENTENCES + 1
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min((s + 1) / min(100, steps // 5 + 1), max(0.02, 1 - s / steps))
    )
    report = []
    for epoch in range(1, options.epochs + 1):
        started = time.time()
        model.train()
        order = generator.permutation(rows)[: round(options.share * len(rows))]
        total = torch.zeros((), device=device)
        for start in range(0, len(order), BATCH_SENTENCES):
            ids, mask, cases, labels = batch_of(data, order[start : start + BATCH_SENTENCES], device)
            logits = model(ids, mask, cases)
            with torch.no_grad():
                taught = teacher(ids, mask, cases) if teacher is not None else None
            loss = loss_of(logits, labels, taught)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            schedule.step()
            total += loss.detach()
        figures = {name: evaluate(model, data, number) for number, name in SETS.items()} if epoch >= 2 else {}
        report.append({"epoch": epoch, **figures})
        mean = float(total) * BATCH_SENTENCES / len(order)
        save(model, options.out)
        print(f"{options.name} epoch {epoch}: loss {mean:.4f}, {time.time() - started:.0f} s {figures}", flush=True)
    options.out.with_suffix(".json").write_text(
        json.dumps({"options": {k: str(v) for k, v in vars(options).items()}, "epochs": report}, indent=1)
    )


if __name__ == "__main__":
    main()

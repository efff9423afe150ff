"""Train the reader: relevance, answers, spans, replaced texts, and messages. It needs torch and numpy only.

    python -m training.train_reader PACKED.npz OUT.npz --dev DEV.npz --epochs 4
    python -m training.train_reader PACKED.npz OUT.npz --dev DEV.npz --epochs 1 --frozen 3     # minutes on a CPU

PACKED.npz and DEV.npz are what training/reader_tokens.py writes; the weights to begin with are in the first one. A
GPU is used if there is one. An epoch is one pass over the questions, with as many batches of the other examples. After
each epoch it prints figures of DEV.npz, which is not trained on.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from training.reader_model import ReaderModel, save

QUESTIONS, PAIRS, MESSAGES = 24, 2, 24
"""The examples of one step."""
PARTS_PER_STEP = 4
LISTWISE_WEIGHT, SPAN_WEIGHT, REPLACED_WEIGHT, MESSAGE_WEIGHT, RELEVANCE_WEIGHT = 0.5, 0.5, 0.7, 0.5, 0.5
WARM_UP_STEPS = 50
HEAD_RATE = 1e-3
DEV_BATCH = 256
RELEVANCE, ANSWERS, REPLACES = range(3)


class Packed:
    """The tokens and labels of examples: rows of questions first, then pairs of texts, then messages."""

    def __init__(self, path: Path) -> None:
        arrays = dict(np.load(path))
        self.start = {k.removeprefix("start."): v for k, v in arrays.items() if k.startswith("start.")}
        self.heads = dict(zip(("pair", "span", "message"), map(int, arrays["heads"]), strict=True))
        self._ids, self._first = arrays["ids"], arrays["first"]
        self._ends = np.concatenate([[0], arrays["ends"]])
        self.labels = arrays["labels"].astype(np.int64)
        self.row_ends = np.concatenate([[0], np.cumsum(arrays["sizes"])])
        self.replaced, self.types, self.continues = arrays["replaced"], arrays["types"], arrays["continues"]
        self.first_pair = len(self.labels)
        self.first_message = self.first_pair + len(self.replaced)

    def length(self, place: int) -> int:
        """Return the number of tokens of an input."""
        return int(self._ends[place + 1] - self._ends[place])

    def pad(self, places: Sequence[int], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """Return the tokens of inputs, their types, and which of them are real."""
        length = -(-max(map(self.length, places)) // 8) * 8
        ids, kinds, mask = (np.zeros((len(places), length), dtype=np.int64) for _ in range(3))
        for row, place in enumerate(places):
            size = self.length(place)
            ids[row, :size] = self._ids[self._ends[place] : self._ends[place + 1]]
            kinds[row, self._first[place] : size] = 1
            mask[row, :size] = 1
        ids_, kinds_, mask_ = (torch.from_numpy(array).to(device) for array in (ids, kinds, mask))
        return ids_, kinds_, mask_


class Trainer:
    """Computes the losses of a batch of examples."""

    def __init__(self, model: ReaderModel, packed: Packed, device: torch.device) -> None:
        self.model, self.packed, self.device = model, packed, device
        self.losses: Counter[str] = Counter()

    def compute_loss(self, questions: Sequence[int], pairs: Sequence[int], messages: Sequence[int]) -> Tensor:
        """Return the loss of some examples of each kind."""
        data = self.packed
        rows = [row for q in questions for row in range(data.row_ends[q], data.row_ends[q + 1])]
        sizes = [int(data.row_ends[q + 1] - data.row_ends[q]) for q in questions]
        places = [*rows, *(data.first_pair + n for n in pairs), *(data.first_message + n for n in messages)]
        pair, spans, message = self.run(places)
        losses = self._losses_of_rows(data.labels[rows], sizes, pair[: len(rows)], spans)
        replaced = torch.tensor(data.replaced[list(pairs)], device=self.device)
        logits = pair[len(rows) : len(rows) + len(pairs), REPLACES]
        losses["replaced"] = REPLACED_WEIGHT * functional.binary_cross_entropy_with_logits(logits, replaced)
        losses |= self._losses_of_messages(list(messages), message[len(rows) + len(pairs) :])
        for name, loss in losses.items():
            self.losses[name] += float(loss.detach())  # type: ignore[assignment]
        return torch.stack(list(losses.values())).sum()

    def run(self, places: Sequence[int]) -> tuple[Tensor, list[Tensor], Tensor]:
        """Return the outputs of all inputs, in their order. Those of similar length share a batch."""
        order = sorted(range(len(places)), key=lambda i: self.packed.length(places[i]))
        size = -(-len(order) // PARTS_PER_STEP)
        pair: list[Any] = [None] * len(places)
        spans, message = list(pair), list(pair)
        # Inside one context the weights are converted once for all parts.
        with torch.autocast(self.device.type, torch.bfloat16):
            for start in range(0, len(order), size):
                part = order[start : start + size]
                outputs = self.model(*self.packed.pad([places[i] for i in part], self.device))
                for row, i in enumerate(part):
                    pair[i], spans[i], message[i] = (output[row] for output in outputs)
        return torch.stack(pair), spans, torch.stack(message)

    def _losses_of_rows(
        self, found: np.ndarray, sizes: Sequence[int], logits: Tensor, spans: Sequence[Tensor]
    ) -> dict[str, Tensor]:
        labels, known = (torch.tensor(found[:, column], device=self.device) for column in (0, 1))
        bce = functional.binary_cross_entropy_with_logits
        is_known = known.bool()
        losses = {
            "relevance": RELEVANCE_WEIGHT * bce(logits[is_known, RELEVANCE], labels[is_known].float()),
            "answers": bce(logits[:, ANSWERS], labels.float()),
        }
        listwise, start = [], 0
        for size in sizes:
            part, start = slice(start, start + size), start + size
            right = labels[part] > 0
            if 0 < found[part, 0].sum() < size:
                relevant = logits[part, RELEVANCE]
                listwise.append(torch.logsumexp(relevant, 0) - torch.logsumexp(relevant[right], 0))
        if listwise:
            losses["listwise"] = LISTWISE_WEIGHT * torch.stack(listwise).mean()
        marked = []
        for place, (label, _, first, last) in enumerate(found):
            if label and first >= 0:
                shares = torch.log_softmax(spans[place], 0)
                marked.append(-(shares[first, 0] + shares[last, 1]) / 2)
        if marked:
            losses["span"] = SPAN_WEIGHT * torch.stack(marked).mean()
        return losses

    def _losses_of_messages(self, messages: list[int], logits: Tensor) -> dict[str, Tensor]:
        types, continues = (
            torch.tensor(array[messages].astype(np.int64), device=self.device)
            for array in (self.packed.types, self.packed.continues)
        )
        losses = {}
        if (types >= 0).any():
            found = logits[types >= 0, :-1]
            losses["type"] = MESSAGE_WEIGHT * functional.cross_entropy(found, types[types >= 0])
        if (continues >= 0).any():
            found = logits[continues >= 0, -1]
            wanted = continues[continues >= 0].float()
            losses["continues"] = MESSAGE_WEIGHT * functional.binary_cross_entropy_with_logits(found, wanted)
        return losses


def _repeat(count: int, size: int, generator: np.random.Generator) -> Iterator[list[int]]:
    """Yield batches for ever, in a new order each time that all were seen."""
    while True:
        order = generator.permutation(count)
        yield from (order[start : start + size].tolist() for start in range(0, count - size + 1, size))


def train(trainer: Trainer, dev: Packed | None, options: argparse.Namespace) -> None:
    """Train for some epochs. The rate rises at the start and falls to zero along a cosine."""
    model, data = trainer.model, trainer.packed
    generator = np.random.default_rng(options.seed)
    questions = len(data.row_ends) - 1
    parts = [
        _repeat(count, size, generator)
        for count, size in ((questions, QUESTIONS), (len(data.replaced), PAIRS), (len(data.types), MESSAGES))
    ]
    layers = [p for p in model.encoder.layers.parameters() if p.requires_grad]
    groups = [{"params": layers, "lr": options.rate}, {"params": list(model.heads.parameters()), "lr": HEAD_RATE}]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.01)
    rates = [group["lr"] for group in groups]
    steps = int(questions // QUESTIONS * options.epochs)
    started = time.monotonic()
    for step in range(steps):
        done = max(step / steps, (time.monotonic() - started) / (60 * options.minutes))
        if done >= 1:
            print(f"out of time after {step} of {steps} steps", flush=True)
            break
        share = min(1.0, (step + 1) / WARM_UP_STEPS) * (0.01 + 0.99 * (1 + math.cos(math.pi * done)) / 2)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * share
        loss = trainer.compute_loss(*map(next, parts))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_([*layers, *model.heads.parameters()], 1.0)
        optimizer.step()
        if (step + 1) % (questions // QUESTIONS) == 0 or step + 1 == steps:
            shown = {name: round(total / (questions // QUESTIONS), 3) for name, total in trainer.losses.items()}
            trainer.losses.clear()
            print(f"step {step + 1} of {steps}: {shown}", flush=True)
            if dev is not None:
                figures = measure(model, dev)
                print("  " + ", ".join(f"{name} {value:.4f}" for name, value in figures.items()), flush=True)
                model.train()


def measure(model: ReaderModel, dev: Packed) -> dict[str, float]:
    """Return figures of examples that are not trained on."""
    model.eval()
    device = next(model.parameters()).device
    trainer = Trainer(model, dev, device)
    total = dev.first_message + len(dev.types)
    with torch.no_grad():
        outputs = [trainer.run(range(i, min(i + DEV_BATCH, total))) for i in range(0, total, DEV_BATCH)]
    pair = torch.cat([output[0] for output in outputs]).cpu().numpy()
    spans = [span.cpu().numpy() for output in outputs for span in output[1]]
    message = torch.cat([output[2] for output in outputs]).cpu().numpy()[dev.first_message :]
    labels = dev.labels
    best, asked = 0, 0
    for start, end in zip(dev.row_ends, dev.row_ends[1:], strict=False):
        if 0 < labels[start:end, 0].sum() < end - start:
            asked += 1
            best += labels[start + pair[start:end, RELEVANCE].argmax(), 0]
    marked = [place for place, (label, _, first, _) in enumerate(labels) if label and first >= 0]
    hits = [spans[place][:, 0].argmax() == labels[place, 2] for place in marked]
    types, continues = dev.types >= 0, dev.continues >= 0
    replaced = pair[dev.first_pair : dev.first_message, REPLACES]
    return {
        "best row": best / max(asked, 1),
        "answers": auroc(pair[: len(labels), ANSWERS], labels[:, 0] > 0),
        "span start": float(np.mean(hits)),
        "replaced": auroc(replaced, dev.replaced > 0.5),
        "type": float(np.mean(message[types, :-1].argmax(1) == dev.types[types])),
        "continues": float(np.mean((message[continues, -1] > 0) == dev.continues[continues])),
    }


def auroc(scores: np.ndarray, is_right: np.ndarray) -> float:
    """Return how often a right one is above a wrong one."""
    ranks = np.argsort(np.argsort(scores))
    count = int(is_right.sum())
    return float((ranks[is_right].sum() - count * (count - 1) / 2) / max(1, count * (len(scores) - count)))


def main() -> None:
    """Train and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packed", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--dev", type=Path)
    parser.add_argument("--epochs", type=float, default=4.0)
    parser.add_argument("--minutes", type=float, default=math.inf, help="end after so many, with the rate at zero")
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--frozen", type=int, default=0, help="the number of layers that stay as they are")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(options.seed)
    packed = Packed(options.packed)
    dev = Packed(options.dev) if options.dev else None
    model = ReaderModel(packed.start, packed.heads, dropout=options.dropout, frozen=options.frozen).to(device).train()
    started = time.monotonic()
    train(Trainer(model, packed, device), dev, options)
    save(options.out, packed.start, model)
    print(f"{time.monotonic() - started:.0f} s on {device}")


if __name__ == "__main__":
    main()

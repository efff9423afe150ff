"""Train the reader on a CPU: relevance, answers, spans, replaced texts, and messages.

    python -m training.train_reader GRAPH.onnx EXAMPLES.jsonl OUT.npz --seconds 600

GRAPH.onnx is the reader of the package or a reranker with one logit: the training begins with its weights.
EXAMPLES.jsonl is what training/reader_data.py writes. `--seconds` of CPU time are used, whatever else the machine does.
The lower layers stay as they are (training/reader_model.py). With `--teacher`, a cross-encoder for replaced texts, the
reader also learns what that one says about them.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from rem.search.models.files import SessionWithWords, load_session, load_words
from rem.search.reader import MESSAGE_HEAD, PAIR_HEAD, MessageType, join_replaced
from training.load_weights import unpack_graph
from training.reader_data import Example
from training.reader_model import Input, ReaderModel, Tokens, pad, save

ROWS_PER_STEP, PAIRS_PER_STEP, MESSAGES_PER_STEP = 8, 8, 14
PARTS_PER_STEP = 3
LISTWISE_WEIGHT, SPAN_WEIGHT, REPLACED_WEIGHT, MESSAGE_WEIGHT = 0.5, 0.5, 0.7, 0.5
RELEVANCE_WEIGHT = 0.5
WARM_UP_STEPS, DECAY_SHARE = 25, 0.4
HEAD_RATE = 1e-3
STEPS_PER_SAVE = 200
RELEVANCE, ANSWERS, REPLACES = range(len(PAIR_HEAD))
CONTINUES = len(MESSAGE_HEAD) - 1
TYPES = [str(kind) for kind in MessageType]


class Teacher:
    """Says of pairs whether the newer text replaces the older one, with an int8 graph of one logit."""

    def __init__(self, graph: Path) -> None:
        self._session = SessionWithWords(load_session(str(graph)), load_words())

    def shares(self, inputs: Sequence[Input]) -> Tensor:
        """Return how sure the teacher is of each pair, from 0 to 1."""
        ids, kinds, mask = pad(inputs)
        feed = {"input_ids": ids, "token_type_ids": kinds, "attention_mask": mask}
        return torch.sigmoid(torch.from_numpy(self._session.run(["logits"], feed)[0]))


class Trainer:
    """Computes the losses of a batch of examples."""

    def __init__(self, model: ReaderModel, teacher: Teacher | None) -> None:
        self.model = model
        self.teacher = teacher
        self.tokens = Tokens()
        self.losses: Counter[str] = Counter()

    def compute_loss(self, rows: Sequence[Example], pairs: Sequence[Example], messages: Sequence[Example]) -> Tensor:
        """Return the loss of some examples of each kind."""
        flat = [row for example in rows for row in example["rows"]]
        inputs = [self.tokens.join(e["ask"], row[0]) for e in rows for row in e["rows"]]
        inputs += [self.tokens.join(e["ask"], join_replaced(e["newer"], e["older"])) for e in pairs]
        inputs += [self.tokens.join(e["text"], e["previous"]) for e in messages]
        pair, spans, message = self._run(inputs)
        losses = self._losses_of_rows(rows, flat, inputs, pair, spans)
        replaced = torch.tensor([float(e["replaces"]) for e in pairs])
        compared = slice(len(flat), len(flat) + len(pairs))
        if self.teacher is not None:
            replaced = (replaced + self.teacher.shares(inputs[compared])) / 2
        logits = pair[compared, REPLACES]
        losses["replaced"] = REPLACED_WEIGHT * functional.binary_cross_entropy_with_logits(logits, replaced)
        losses |= _losses_of_messages(messages, message[compared.stop :])
        for name, loss in losses.items():
            self.losses[name] += float(loss.detach())  # type: ignore[assignment]
        return torch.stack(list(losses.values())).sum()

    def _run(self, inputs: Sequence[Input]) -> tuple[Tensor, list[Tensor], Tensor]:
        """Return the outputs of all inputs, in their order. Those of similar length share a batch."""
        order = sorted(range(len(inputs)), key=lambda i: len(inputs[i].ids))
        size = -(-len(order) // PARTS_PER_STEP)
        pair: list[Any] = [None] * len(inputs)
        spans, message = list(pair), list(pair)
        for part in _batched(order, size):
            with torch.autocast("cpu", torch.bfloat16):
                outputs = self.model([inputs[i] for i in part])
            for row, i in enumerate(part):
                pair[i], spans[i], message[i] = (output[row] for output in outputs)
        return torch.stack(pair), spans, torch.stack(message)

    def _losses_of_rows(
        self,
        rows: Sequence[Example],
        flat: Sequence[list[Any]],
        inputs: Sequence[Input],
        pair: Tensor,
        spans: list[Tensor],
    ) -> dict[str, Tensor]:
        labels = torch.tensor([float(row[1]) for row in flat])
        known = torch.tensor([bool(row[4]) for row in flat])
        logits = pair[: len(flat)]
        bce = functional.binary_cross_entropy_with_logits
        losses = {
            "relevance": RELEVANCE_WEIGHT * bce(logits[known, RELEVANCE], labels[known]),
            "answers": bce(logits[:, ANSWERS], labels),
        }
        listwise, start = [], 0
        for example in rows:
            part = slice(start, start + len(example["rows"]))
            start = part.stop
            right = labels[part] > 0
            if right.any() and not right.all():
                found = logits[part, RELEVANCE]
                listwise.append(torch.logsumexp(found, 0) - torch.logsumexp(found[right], 0))
        if listwise:
            losses["listwise"] = LISTWISE_WEIGHT * torch.stack(listwise).mean()
        marked = []
        for place, (_, label, first, last, _) in enumerate(flat):
            span = inputs[place].find_span(first, last) if label and first is not None else None
            if span is not None:
                shares = torch.log_softmax(spans[place], 0)
                marked.append(-(shares[span[0], 0] + shares[span[1], 1]) / 2)
        if marked:
            losses["span"] = SPAN_WEIGHT * torch.stack(marked).mean()
        return losses


def _losses_of_messages(messages: Sequence[Example], logits: Tensor) -> dict[str, Tensor]:
    typed = [place for place, e in enumerate(messages) if e["type"] is not None]
    told = [place for place, e in enumerate(messages) if e["continues"] is not None]
    losses = {}
    if typed:
        kinds = torch.tensor([TYPES.index(messages[place]["type"]) for place in typed])
        losses["type"] = MESSAGE_WEIGHT * functional.cross_entropy(logits[typed, :CONTINUES], kinds)
    if told:
        continues = torch.tensor([float(messages[place]["continues"]) for place in told])
        found = logits[told, CONTINUES]
        losses["continues"] = MESSAGE_WEIGHT * functional.binary_cross_entropy_with_logits(found, continues)
    return losses


def _batched(order: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    return (order[start : start + size] for start in range(0, len(order), size))


def _repeat(examples: list[Example], size: int, generator: random.Random) -> Iterator[list[Example]]:
    """Yield batches for ever, in a new order each time that all were seen."""
    while True:
        order = generator.sample(examples, len(examples))
        yield from (order[start : start + size] for start in range(0, len(order) - size + 1, size))


def train(
    model: ReaderModel, weights: dict[str, np.ndarray], examples: list[Example], options: argparse.Namespace
) -> None:
    """Train the upper layers and the heads for some seconds of CPU time."""
    generator = random.Random(options.seed)
    trainer = Trainer(model, Teacher(options.teacher) if options.teacher else None)
    parts = [
        _repeat([e for e in examples if key in e], size, generator)
        for key, size in (("rows", ROWS_PER_STEP), ("older", PAIRS_PER_STEP), ("previous", MESSAGES_PER_STEP))
    ]
    layers = [p for p in model.encoder.layers.parameters() if p.requires_grad]
    groups = [{"params": layers, "lr": options.rate}, {"params": list(model.heads.parameters()), "lr": HEAD_RATE}]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.01)
    rates = [group["lr"] for group in groups]
    started, begun, step = time.process_time(), time.monotonic(), 0
    while True:
        used = (time.process_time() - started) / options.seconds
        share = max(used, (time.monotonic() - begun) / (60 * options.minutes))
        if share >= 1:
            break
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * min(1.0, (step + 1) / WARM_UP_STEPS) * min(1.0, (1 - share) / DECAY_SHARE + 0.01)
        loss = trainer.compute_loss(*map(next, parts))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_([*layers, *model.heads.parameters()], 1.0)
        optimizer.step()
        step += 1
        if step % 50 == 0:
            shown = {name: round(total / 50, 3) for name, total in trainer.losses.items()}
            print(f"step {step}, {share:.0%} of the time: {shown}", flush=True)
            trainer.losses.clear()
        if step % STEPS_PER_SAVE == 0:
            save(options.out, weights, model)
    print(f"{step} steps")


def main() -> None:
    """Train and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", type=Path)
    parser.add_argument("examples", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--minutes", type=float, default=600.0, help="end earlier after so much time")
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--teacher", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    weights = unpack_graph(options.graph)
    model = ReaderModel(weights, dropout=options.dropout).train()
    examples = [json.loads(line) for line in options.examples.read_text(encoding="utf-8").splitlines()]
    train(model, weights, examples, options)
    save(options.out, weights, model)


if __name__ == "__main__":
    main()

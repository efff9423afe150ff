"""Train the reranker: a cross-encoder that reads a question and a passage together, on REM's best candidates.

    python -m training.train_reranker DATA BASE.npz EMBEDDER.npz OUT.npz --train … --weeks WEEKS.npz=2.5 --eval …

The loss is the listwise softmax over REM's score plus half of the logit, because the scores are summed in REM too.
EMBEDDER.npz has the layers of the trained embedder, whose candidates are reranked; "-" stands for the base model.
WEEKS.npz has the candidates of everyday questions (training/pack_weeks.py). With a teacher, a model of fewer layers
also learns its logits.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from training.encoder import Encoder, load_base, pad
from training.ranking import Owner, RankingSet, Weights, load_set, measure, score, session_fit
from training.train_embedder import _listwise, embed_all, split_owner, with_strength

CANDIDATES = 20
MAX_POSITIVES, MAX_NEGATIVES = 3, 14
BATCH_QUESTIONS = 32
LOGIT_WEIGHT = 0.5
TEACHER_WEIGHT = 0.2
MAX_PAIR_TOKENS = 256
MAX_QUERY_TOKENS = 64


class Reranker(nn.Module):
    """An encoder with mean pooling and one linear head."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(encoder.word.shape[1], 1)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    def logits(self, pairs: list[tuple[np.ndarray, np.ndarray]]) -> Tensor:
        """Return one logit for each question and passage."""
        device = self.head.weight.device
        texts, kinds = zip(*(join(*pair) for pair in pairs), strict=True)
        order = np.argsort([len(text) for text in texts], kind="stable")
        size = max(1, len(pairs) // 8 + 1)
        parts = []
        for start in range(0, len(order), size):
            rows = order[start : start + size]
            ids, mask = pad([texts[i] for i in rows], device)
            types = pad([kinds[i] for i in rows], device)[0]
            parts.append(self.head(self.encoder(ids, mask, types))[:, 0].float())
        places = torch.from_numpy(order).to(device)
        return torch.empty(len(pairs), device=device).index_put((places,), torch.cat(parts))


def join(query: np.ndarray, passage: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return [CLS] query [SEP] passage [SEP], and the token types."""
    head = np.append(query[:-1][: MAX_QUERY_TOKENS - 1], 102)
    tail = np.append(passage[1:-1][: MAX_PAIR_TOKENS - len(head) - 1], 102)
    return np.concatenate([head, tail]), np.concatenate([np.zeros(len(head), np.int64), np.ones(len(tail), np.int64)])


@dataclass
class Item:
    """The candidates of one question: first the answers, then the wrong ones."""

    tokens: list[np.ndarray]
    query: int
    passages: np.ndarray
    scores: np.ndarray
    answers: int


def split_rows(data: Mapping[str, np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the tokens of each text, and the rows of each question."""
    tokens = np.split(data["tokens"].astype(np.int64), data["offsets"][1:-1])
    return tokens, [np.flatnonzero(data["row_question"] == number) for number in range(len(data["question"]))]


@dataclass
class Weeks:
    """The candidates of everyday questions."""

    tokens: list[np.ndarray]
    rows: list[np.ndarray]
    """The rows of each question."""
    question: np.ndarray
    text: np.ndarray
    score: np.ndarray
    label: np.ndarray
    """1 for an answer, 0 for none, -1 for an outdated one."""

    @classmethod
    def load(cls, path: Path) -> Weeks:
        """Load what training/pack_weeks.py wrote."""
        data = np.load(path)
        return cls(*split_rows(data), data["question"], data["row_text"], data["score"], data["label"])

    def choose(self, generator: np.random.Generator) -> list[Item]:
        """Return the answers and wrong candidates of each question."""
        items = []
        for query, rows in zip(self.question, self.rows, strict=True):
            answers = generator.permutation(rows[self.label[rows] == 1])[:MAX_POSITIVES]
            wrong = rows[self.label[rows] == 0]
            if len(answers) and len(wrong):
                picked = np.concatenate([answers, wrong[:8], generator.permutation(wrong[8:])[: MAX_NEGATIVES - 8]])
                items.append(Item(self.tokens, int(query), self.text[picked], self.score[picked], len(answers)))
        return items

    def logits(self, model: Reranker) -> np.ndarray:
        """Return the logit of every row."""
        question = np.empty(len(self.text), dtype=np.int64)
        for number, rows in enumerate(self.rows):
            question[rows] = self.question[number]
        pairs = [(self.tokens[q], self.tokens[t]) for q, t in zip(question, self.text, strict=True)]
        with torch.no_grad():
            parts = [model.logits(pairs[start : start + 2048]) for start in range(0, len(pairs), 2048)]
        return torch.cat(parts).float().cpu().numpy()

    def measure(self, logits: np.ndarray, weights: list[float]) -> dict[str, float]:
        """Return how often an answer comes first at several weights. Outdated answers are left out."""
        figures = {}
        for weight in (0.0, *weights):
            total = self.score + weight * logits
            found = [
                self.label[kept[np.argmax(total[kept])]] == 1
                for rows in self.rows
                if (self.label[rows] == 1).any() and len(kept := rows[self.label[rows] >= 0])
            ]
            figures[f"first@{weight}"] = round(float(np.mean(found)), 4)
        return figures


def candidates_of(
    owner: Owner, vectors: Tensor, ranking: Weights
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the scores, texts, order and questions of an owner's candidates."""
    result = score(owner, vectors[owner.question_text], vectors[owner.passage_text], ranking)
    texts = owner.passage_text[result.best_passage].cpu().numpy()
    fit = result.fit.cpu().numpy()
    return fit, texts, np.argsort(-fit, axis=1, kind="stable"), owner.question_text.cpu().numpy()


def choose(
    data: RankingSet, owner: Owner, vectors: Tensor, ranking: Weights, generator: np.random.Generator
) -> list[Item]:
    """Return the answers and wrong candidates of each question."""
    fit, texts, order, questions = candidates_of(owner, vectors, ranking)
    gold = owner.gold.cpu().numpy() > 0
    items = []
    for row in range(len(questions)):
        answers = generator.permutation(np.flatnonzero(gold[row] & np.isfinite(fit[row])))[:MAX_POSITIVES]
        wrong = [e for e in order[row][:30] if not gold[row][e] and np.isfinite(fit[row][e])]
        if len(answers) and wrong:
            picked = np.concatenate([answers, wrong[:7], generator.permutation(wrong[7:])[: MAX_NEGATIVES - 7]]).astype(
                int
            )
            items.append(Item(data.tokens, int(questions[row]), texts[row, picked], fit[row, picked], len(answers)))
    return items


def evaluate(
    model: Reranker,
    data: RankingSet,
    owners: list[Owner],
    vectors: Tensor,
    ranking: Weights,
    weights: list[float],
    candidates: int = CANDIDATES,
) -> dict[str, float]:
    """Return recall@5, recall@10 and NDCG@10 without the reranker and with it at several weights."""
    values: dict[str, list[Tensor]] = defaultdict(list)
    model.eval()
    for owner in owners:
        if not len(owner.question_text):
            continue
        fit, texts, order, questions = candidates_of(owner, vectors, ranking)
        best = order[:, :candidates]
        pairs = [(data.tokens[questions[r]], data.tokens[texts[r, e]]) for r in range(len(questions)) for e in best[r]]
        with torch.no_grad():
            logits = torch.cat([model.logits(pairs[i : i + 2048]) for i in range(0, len(pairs), 2048)]).cpu()
        added = np.full(fit.shape, -100.0, dtype=np.float32)
        logit_rows = logits.numpy().reshape(best.shape)
        for weight in (0.0, *weights):
            np.put_along_axis(added, best, weight * logit_rows, 1)
            total = torch.from_numpy(np.where(np.isfinite(fit), fit + added, -np.inf)).to(owner.gold.device)
            total = session_fit(owner, total) if data.by_session else total
            figures = measure(total, owner.gold)
            for name in ("r5", "r10", "ndcg"):
                values[f"{name}@{weight}"].append(figures[name])
    return {name: round(float(torch.cat(parts).mean()), 4) for name, parts in values.items()}


def main() -> None:
    """Train, measure and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("base", type=Path)
    parser.add_argument("embedder")
    parser.add_argument("out", type=Path)
    parser.add_argument("--name", default="reranker")
    parser.add_argument("--train", nargs="+", default=[])
    parser.add_argument("--eval", nargs="*", default=[])
    parser.add_argument("--weeks", default="", help="FILE=SHARE")
    parser.add_argument("--dev-weeks", type=Path, nargs="*", default=[])
    parser.add_argument("--teacher", type=Path, help="a trained model of six layers")
    parser.add_argument("--strength", type=float, default=2.4, help="the weight of the meaning of a message")
    parser.add_argument("--start-from-base", action="store_true", help="the embedder only chooses candidates")
    parser.add_argument("--candidates", type=int, nargs="*", default=[], help="also measure with these numbers")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--rate", type=float, default=5e-5)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--weights", type=float, nargs="*", default=[0.25, 0.5, 1.0])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    generator = np.random.default_rng(options.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    base = load_base(options.base)
    tuned = base if options.embedder == "-" else {**base, **np.load(options.embedder)}
    embedder = Encoder(tuned).to(device)
    ranking = with_strength(options.strength)
    shares = {name: float(share) for name, _, share in (entry.partition("=") for entry in options.train)}
    sets = {name: load_set(options.data / f"{name}.npz", device) for name in (*shares, *options.eval)}
    vectors = {name: embed_all(embedder, data) for name, data in sets.items()}
    parts = {name: [split_owner(sets[name], i, o) for i, o in enumerate(sets[name].owners)] for name in shares}
    weeks_path, _, weeks_share = options.weeks.partition("=")
    weeks = Weeks.load(Path(weeks_path)) if weeks_path else None
    first = base if options.start_from_base else tuned
    model = Reranker(Encoder(first, range(options.layers), options.dropout)).to(device)
    teacher = load_teacher(tuned, options.teacher, device) if options.teacher else None
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=options.rate, weight_decay=0.01)
    report = []
    step, steps = 0, None
    for epoch in range(1, options.epochs + 1):
        started = time.time()
        items = []
        for name, share in shares.items():
            found = [
                i
                for part, _ in parts[name]
                if part is not None
                for i in choose(sets[name], part, vectors[name], ranking, generator)
            ]
            items += take_share(found, share, generator)
        if weeks is not None:
            items += take_share(weeks.choose(generator), float(weeks_share or 1), generator)
        steps = steps or options.epochs * len(items) // BATCH_QUESTIONS + 1
        order = generator.permutation(len(items))
        model.train()
        total = torch.zeros((), device=device)
        for start in range(0, len(items) - BATCH_QUESTIONS // 2, BATCH_QUESTIONS):
            for group in optimizer.param_groups:
                group["lr"] = options.rate * min((step + 1) / 40, max(0.02, 1 - step / steps))
            step += 1
            with torch.autocast("cuda", torch.bfloat16, enabled=device.type == "cuda"):
                loss = loss_of(model, [items[i] for i in order[start : start + BATCH_QUESTIONS]], teacher)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            total += loss.detach()
        mean = float(total) * BATCH_QUESTIONS / len(items)
        print(f"{options.name} epoch {epoch}: loss {mean:.4f}, {time.time() - started:.0f} s", flush=True)
    figures = measure_sets(model, options, sets, parts, vectors, ranking)
    figures |= measure_weeks(model, options)
    report.append(figures)
    for name, values in figures.items():
        print(options.name, name, values, flush=True)
    arrays = {
        n: v.detach().half().cpu().numpy()
        for n, v in (("head.weight", model.head.weight), ("head.bias", model.head.bias))
    }
    np.savez(options.out, **model.encoder.published_names(), **arrays)
    options.out.with_suffix(".json").write_text(
        json.dumps({"options": {k: str(v) for k, v in vars(options).items()}, "figures": report}, indent=1)
    )


def measure_sets(
    model: Reranker,
    options: argparse.Namespace,
    sets: dict[str, RankingSet],
    parts: dict[str, list[tuple[Owner | None, Owner | None]]],
    vectors: dict[str, Tensor],
    ranking: Weights,
) -> dict[str, dict[str, float]]:
    """Return the figures of the held-out parts of the training sets, and of the sets that are only measured."""
    figures = {}
    for name, split in parts.items():
        held = [part for _, part in split if part is not None]
        figures[f"dev:{name}"] = evaluate(model, sets[name], held, vectors[name], ranking, options.weights)
    for name in options.eval:
        for count in (CANDIDATES, *options.candidates):
            label = name if count == CANDIDATES else f"{name} {count}"
            owners = sets[name].owners
            figures[label] = evaluate(model, sets[name], owners, vectors[name], ranking, options.weights, count)
    return figures


def measure_weeks(model: Reranker, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Return the figures of weeks that are only measured, and save the logits of their rows."""
    figures = {}
    for path in options.dev_weeks:
        data = Weeks.load(path)
        logits = data.logits(model)
        figures[path.stem] = data.measure(logits, options.weights)
        np.save(options.out.with_name(f"{options.out.stem}.{path.stem}.npy"), logits.astype(np.float16))
    return figures


def take_share(items: list[Item], share: float, generator: np.random.Generator) -> list[Item]:
    """Return a share of the items in a random order; above 1 some of them several times."""
    places = np.concatenate([generator.permutation(len(items)) for _ in range(int(np.ceil(share)))])
    return [items[place] for place in places[: round(len(items) * share)]]


def load_teacher(tuned: dict[str, np.ndarray], path: Path, device: torch.device) -> Reranker:
    """Return a trained model."""
    saved = dict(np.load(path))
    teacher = Reranker(Encoder({**tuned, **saved})).to(device)
    with torch.no_grad():
        teacher.head.weight.copy_(torch.from_numpy(saved["head.weight"].astype(np.float32)))
        teacher.head.bias.copy_(torch.from_numpy(saved["head.bias"].astype(np.float32)))
    return teacher.eval()


def loss_of(model: Reranker, batch: list[Item], teacher: Reranker | None = None) -> Tensor:
    """Return the listwise loss of a batch, and with a teacher the distance to its logits."""
    device = model.head.weight.device
    width = MAX_POSITIVES + MAX_NEGATIVES
    scores = np.zeros((len(batch), width), dtype=np.float32)
    valid = np.zeros((len(batch), width), dtype=bool)
    gold = np.zeros((len(batch), width), dtype=bool)
    pairs = []
    for row, item in enumerate(batch):
        scores[row, : len(item.scores)] = item.scores
        valid[row, : len(item.scores)] = True
        gold[row, : item.answers] = True
        pairs += [(item.tokens[item.query], item.tokens[i]) for i in item.passages]
    logits = torch.zeros(len(batch), width, device=device)
    mask = torch.from_numpy(valid).to(device)
    found = model.logits(pairs).float()
    logits = logits.masked_scatter(mask, found)
    total = torch.from_numpy(scores).to(device) + LOGIT_WEIGHT * logits
    loss = _listwise(total, torch.from_numpy(gold).to(device), mask)
    if teacher is None:
        return loss
    with torch.no_grad():
        wanted = teacher.logits(pairs).float()
    return loss + TEACHER_WEIGHT * (found - wanted).square().mean()


if __name__ == "__main__":
    main()

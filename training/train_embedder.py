"""Train the embedder inside REM's ranking.

    python -m training.train_embedder DATA BASE.npz OUT.npz --train friends=1 squad=1 … --eval locomo beam …

The six layers are trained, the embeddings are not. The loss of a question has three parts:

- listwise: the softmax over REM's scores of its answers and of wrong candidates, where all parts of the score but the
  meaning of the passage itself are constants;
- contrastive: InfoNCE with the passages of the whole batch;
- anchor: 1 - cosine to the vector of the base model, which keeps what the base model knows of other texts.

Candidates are chosen again before each epoch, with the vectors of the model so far.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from training.encoder import Encoder, load_base
from training.ranking import (
    Owner,
    RankingSet,
    Weights,
    load_set,
    mean_vector,
    measure,
    score,
    select_questions,
    session_fit,
)

MAX_POSITIVES, MAX_NEGATIVES = 3, 14
HARD_POOL = 40
"""Wrong candidates are drawn from this many of the best."""
BATCH_QUESTIONS = 32
WARMUP_STEPS = 40
TEMPERATURE = 0.05
DEV_SHARE = 10
"""One of this many owners (or sessions, where a set has few owners) is held out."""


@dataclass
class Candidates:
    """The answers and wrong candidates of one question."""

    data: RankingSet
    base: np.ndarray
    """The vectors of the base model."""
    query: int
    passages: np.ndarray
    rest: np.ndarray
    """REM's score without the meaning of the passage itself."""
    answers: int
    """The answers come first."""
    alone: np.ndarray
    best: float
    strength: np.ndarray
    mean: np.ndarray


def split_owner(data: RankingSet, number: int, owner: Owner) -> tuple[Owner | None, Owner | None]:
    """Return the part of an owner for training, and the part that is held out."""
    if len(data.owners) >= 2 * DEV_SHARE:
        return (None, owner) if number % DEV_SHARE == DEV_SHARE - 1 else (owner, None)
    # Few owners with many sessions: hold out the questions about every tenth session, or every tenth question.
    session = owner.session[(owner.gold > 0).float().argmax(1)]
    group = torch.where(session < 0, torch.arange(len(session), device=session.device), session)
    is_dev = group % DEV_SHARE == DEV_SHARE - 1
    return select_questions(owner, (~is_dev).nonzero()[:, 0]), select_questions(owner, is_dev.nonzero()[:, 0])


def embed_all(model: Encoder, data: RankingSet) -> Tensor:
    """Return the vectors of all texts of a set."""
    model.eval()
    with torch.no_grad():
        return model.embed(data.tokens)


def evaluate(
    data: RankingSet, owners: list[Owner], vectors: Tensor, weights: Weights | None = None
) -> dict[str, float]:
    """Return the mean figures of a set: REM's ranking, vectors alone (vec10), gold above .3 similarity (floor)."""
    values: dict[str, list[Tensor]] = defaultdict(list)
    for owner in owners:
        if not len(owner.question_text):
            continue
        result = score(owner, vectors[owner.question_text], vectors[owner.passage_text], weights)
        fit = session_fit(owner, result.fit) if data.by_session else result.fit
        for name, value in measure(fit, owner.gold).items():
            values[name].append(value)
        if not data.by_session:
            values["vec10"].append(measure(result.similarity, owner.gold)["r10"])
            above = ((result.similarity >= 0.3) & (owner.gold > 0)).sum(1) / (owner.gold > 0).sum(1).clamp(min=1)
            values["floor"].append(above)
    return {name: round(float(torch.cat(parts).mean()), 4) for name, parts in values.items()}


def with_strength(own_meaning: float) -> Weights:
    """Return the weights with another weight for the meaning of a message. Other texts keep theirs."""
    usual = Weights()
    return replace(usual, own_meaning=own_meaning, alone_meaning=usual.alone_meaning + usual.own_meaning - own_meaning)


def choose_candidates(
    data: RankingSet,
    owner: Owner,
    vectors: Tensor,
    base: np.ndarray,
    generator: np.random.Generator,
    weights: Weights,
) -> list[Candidates]:
    """Return the candidates of each question of an owner."""
    queries, passages = vectors[owner.question_text], vectors[owner.passage_text]
    result = score(owner, queries, passages, weights)
    alone_strength = weights.own_meaning + weights.nearby_meaning + weights.alone_meaning
    strength = torch.where(owner.is_alone, alone_strength, weights.own_meaning)
    fit = result.fit.cpu().numpy()
    rest = (result.fit - strength * result.meaning).cpu().numpy()
    best = result.best_distinction[:, 0].cpu().numpy()
    texts = owner.passage_text[result.best_passage].cpu().numpy()
    query_texts = owner.question_text.cpu().numpy()
    alone, strengths = owner.is_alone.float().cpu().numpy(), strength.cpu().numpy()
    gold = owner.gold.cpu().numpy() > 0
    mean = mean_vector(passages)
    mean_array = np.zeros(passages.shape[1], dtype=np.float32) if mean is None else mean.cpu().numpy()
    half = MAX_NEGATIVES // 2
    chosen = []
    for row in range(len(queries)):
        answers = np.flatnonzero(gold[row] & np.isfinite(fit[row]))
        order = np.argsort(-np.where(gold[row], -np.inf, fit[row]), kind="stable")[:HARD_POOL]
        wrong = order[np.isfinite(fit[row][order]) & ~gold[row][order]]
        if not len(answers) or not len(wrong):
            continue
        answers = generator.permutation(answers)[:MAX_POSITIVES]
        wrong = np.concatenate([wrong[:half], generator.permutation(wrong[half:])[: MAX_NEGATIVES - half]])
        entities = np.concatenate([answers, wrong])
        lists = (texts[row, entities], rest[row, entities], len(answers), alone[entities], float(best[row]))
        chosen.append(Candidates(data, base, int(query_texts[row]), *lists, strengths[entities], mean_array))
    return chosen


def loss_of_batch(model: Encoder, batch: list[Candidates], options: argparse.Namespace) -> tuple[Tensor, Tensor]:
    """Return the loss of a batch, and its parts: listwise, contrastive, anchor."""
    device = model.word.device
    width = MAX_POSITIVES + MAX_NEGATIVES
    texts = [item.data.tokens[item.query] for item in batch]
    texts += [item.data.tokens[i] for item in batch for i in item.passages]
    base = np.concatenate(
        [np.stack([item.base[item.query] for item in batch]), *(item.base[item.passages] for item in batch)]
    )
    vectors = model.embed(texts)
    pulls = [options.anchor_documents if item.alone[0] else options.anchor for item in batch]
    pulls += [pull for item, pull in zip(batch, pulls, strict=True) for _ in item.passages]
    distance = 1 - (vectors * torch.from_numpy(base).to(device)).sum(1)
    anchor = (distance * torch.tensor(pulls, device=device)).mean()

    def padded(values: list[np.ndarray]) -> Tensor:
        rows = np.zeros((len(batch), width), dtype=np.float32)
        for row, value in enumerate(values):
            rows[row, : len(value)] = value
        return torch.from_numpy(rows).to(device)

    lengths = [len(item.passages) for item in batch]
    valid = padded([np.ones(length) for length in lengths]).bool()
    gold = padded([np.ones(item.answers) for item in batch]).bool()
    queries = vectors[: len(batch)]
    passages = torch.zeros(len(batch), width, vectors.shape[1], device=device)
    passages[valid] = vectors[len(batch) :]
    mean = torch.from_numpy(np.stack([item.mean for item in batch])).to(device)
    best = torch.tensor([item.best for item in batch], device=device)
    distinction = pair_distinctions(queries, passages, padded([item.alone for item in batch]), mean)
    logits = padded([item.rest for item in batch])
    logits = logits + padded([item.strength for item in batch]) * distinction / best[:, None]
    listwise = _listwise(logits, gold, valid)
    everything = queries @ passages.flatten(0, 1).T / TEMPERATURE
    own = torch.eye(len(batch), device=device, dtype=torch.bool)[:, :, None]
    gold_everywhere = (own & gold[None]).flatten(1)
    contrastive = _listwise(everything, gold_everywhere, valid.flatten().expand_as(everything))
    total = options.listwise * listwise + options.contrastive * contrastive + anchor
    return total, torch.stack([listwise, contrastive, anchor]).detach()


def pair_distinctions(queries: Tensor, passages: Tensor, alone: Tensor, mean: Tensor) -> Tensor:
    """Return the distinctions of each query's own passages, [batch, passages]. A mean of zeros stands for no mean."""
    similarity = torch.einsum("qd,qpd->qp", queries, passages)
    direction, centred = queries - mean, passages - mean[:, None]
    lengths = direction.norm(dim=-1)[:, None] * centred.norm(dim=-1)
    dialogue = torch.einsum("qd,qpd->qp", direction, centred) / lengths.clamp(min=1e-6)
    centre = (queries * mean).sum(-1, keepdim=True)
    spread = (direction.norm(dim=-1) * (1 - (mean * mean).sum(-1)).clamp(min=0).sqrt()).clamp(min=1e-6)[:, None]
    by_itself = (similarity - centre) / spread - 0.1 * (mean == 0).all(-1, keepdim=True)
    return torch.where(alone.bool(), by_itself, dialogue)


def _listwise(logits: Tensor, gold: Tensor, valid: Tensor) -> Tensor:
    """Return the mean loss of the answers of each row, each against all wrong candidates of the row."""
    wrong = logits.masked_fill(gold | ~valid, -1e4).logsumexp(1, keepdim=True)
    losses = torch.logaddexp(logits, wrong) - logits
    return ((losses * gold).sum(1) / gold.sum(1)).mean()


def train(options: argparse.Namespace) -> None:
    """Train one model, and print its figures before the first and after each epoch."""
    torch.manual_seed(options.seed)
    generator = np.random.default_rng(options.seed)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = Encoder(load_base(options.base), dropout=options.dropout).to(device)
    shares = {name: float(share) for name, _, share in (entry.partition("=") for entry in options.train)}
    sets = {name: load_set(options.data / f"{name}.npz", device) for name in {**shares, **dict.fromkeys(options.dev)}}
    parts = {name: [split_owner(data, i, owner) for i, owner in enumerate(data.owners)] for name, data in sets.items()}
    tuned = {name: [part for part, _ in parts[name] if part is not None] for name in shares}
    held = {name: [part for _, part in parts[name] if part is not None] for name in sets}
    others = {name: load_set(options.data / f"{name}.npz", device) for name in options.eval}
    first_state = {name: value.clone() for name, value in model.state_dict().items()}
    first = {name: embed_all(model, sets[name]) for name in shares}
    base = {name: vectors.cpu().numpy() for name, vectors in first.items()}
    report = {"options": {k: str(v) for k, v in vars(options).items()}, "epochs": []}

    weights = with_strength(options.strength)

    def evaluate_all(note: str, *strengths: float) -> None:
        started = time.time()
        vectors = {name: embed_all(model, data) for name, data in (sets | others).items()}
        for strength in strengths or (options.strength,):
            chosen = with_strength(strength)
            figures = {f"dev:{name}": evaluate(data, held[name], vectors[name], chosen) for name, data in sets.items()}
            figures |= {name: evaluate(data, data.owners, vectors[name], chosen) for name, data in others.items()}
            # A set of few memories with few sessions has no held-out part.
            figures = {name: values for name, values in figures.items() if values}
            report["epochs"].append({"note": f"{note}, own_meaning {strength}", **figures})
            summary = " ".join(
                f"{n}={f['r10']:.3f}/{f['ndcg']:.3f}/{f.get('vec10', 0):.3f}" for n, f in figures.items()
            )
            print(f"{options.name} {note} {strength}: {summary} ({time.time() - started:.0f} s)", flush=True)

    if options.measure_base:
        evaluate_all("base", 2.4, *options.strengths)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=options.rate, weight_decay=0.01)
    questions = sum(shares[name] * sum(len(o.question_text) for o in tuned[name]) for name in shares)
    steps = max(1, int(options.epochs * questions / BATCH_QUESTIONS))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / WARMUP_STEPS, max(0.02, 1 - step / steps))
    )
    for epoch in range(1, options.epochs + 1):
        started = time.time()
        items = []
        for name, share in shares.items():
            vectors = first[name] if epoch == 1 else embed_all(model, sets[name])
            found = []
            for owner in tuned[name]:
                found += choose_candidates(sets[name], owner, vectors, base[name], generator, weights)
            count = round(len(found) * share)
            picked = np.concatenate([generator.permutation(len(found)) for _ in range(int(np.ceil(share)))])[:count]
            items += [found[i] for i in picked]
        model.train()
        sums = torch.zeros(3, device=device)
        order = generator.permutation(len(items))
        for start in range(0, len(items) - BATCH_QUESTIONS // 2, BATCH_QUESTIONS):
            batch = [items[i] for i in order[start : start + BATCH_QUESTIONS]]
            loss, parts_of_loss = loss_of_batch(model, batch, options)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            schedule.step()
            sums += parts_of_loss * len(batch) / len(items)
        names = ("listwise", "contrastive", "anchor")
        text = " ".join(f"{name} {value:.4f}" for name, value in zip(names, sums.tolist(), strict=True))
        print(
            f"{options.name} epoch {epoch}: {len(items)} questions, {text}, {time.time() - started:.0f} s", flush=True
        )
        if epoch in options.evaluate_after:
            evaluate_all(f"epoch {epoch}")
    tuned_state = {name: value.clone() for name, value in model.state_dict().items()}
    for share in options.interpolate:
        model.load_state_dict({n: first_state[n] + share * (v - first_state[n]) for n, v in tuned_state.items()})
        evaluate_all(f"share {share}", options.strength)
    model.load_state_dict(tuned_state)
    np.savez(options.out, **model.published_names())
    evaluate_all("final", options.strength, *options.strengths)
    options.out.with_suffix(".json").write_text(json.dumps(report, indent=1))


def main() -> None:
    """Read the options and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("base", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--name", default="embedder")
    parser.add_argument("--train", nargs="+", default=[], help="SET=SHARE: how often a set is used in an epoch")
    parser.add_argument("--dev", nargs="*", default=[], help="more sets whose held-out part is measured")
    parser.add_argument("--eval", nargs="*", default=[], help="sets that are only measured")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--evaluate-after", type=int, nargs="*", default=[])
    parser.add_argument("--rate", type=float, default=2e-5)
    parser.add_argument("--listwise", type=float, default=1.0)
    parser.add_argument("--contrastive", type=float, default=0.5)
    parser.add_argument("--anchor", type=float, default=1.0, help="the weight of the anchor for messages of dialogues")
    parser.add_argument("--anchor-documents", type=float, default=1.0, help="the same for notes and documents")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--measure-base", action="store_true")
    parser.add_argument("--strength", type=float, default=2.4, help="the own_meaning of messages in the loss")
    parser.add_argument("--strengths", type=float, nargs="*", default=[], help="also measure with these own_meaning")
    parser.add_argument(
        "--interpolate", type=float, nargs="*", default=[], help="also measure base + SHARE of the change"
    )
    train(parser.parse_args())


if __name__ == "__main__":
    main()

"""REM's ranking (rem/search/functions/search.sql) in torch: exported word scores plus the vectors of any encoder."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

MAX_CANDIDATES, MAX_ALONE_CANDIDATES = 400, 120
MIN_PASSAGES_WITH_MEAN = 10


@dataclass(frozen=True)
class Weights:
    """The weights of `rem_search_weights`."""

    candidate_word: float = 0.03
    own_word: float = 2.4
    own_meaning: float = 2.4
    prior_loss: float = 0.5
    nearby_word: float = 2.0
    nearby_meaning: float = 1.0
    previous_word: float = -0.5
    previous_meaning: float = 0.6
    next_word: float = 1.35
    next_meaning: float = 0.3
    second_next_word: float = 0.5
    alone_word: float = 1.6
    alone_meaning: float = 0.65
    named_speaker: float = 0.6
    time_mentioned: float = 1.1
    exact: float = 12.0
    message_full: float = 0.7
    alone_full: float = 1.5


@dataclass
class Owner:
    """The passages and questions of one memory. Numbers of passages, entities and questions start at 0 in each."""

    passage_text: Tensor
    passage_entity: Tensor
    position: Tensor
    session: Tensor
    prior: Tensor
    tells_time: Tensor
    neighbours: Tensor
    """[9, entities]: the entity 4 before … 4 after in the session; `len(entities)` if there is none."""
    question_text: Tensor
    full_weight: Tensor
    asks_time: Tensor
    words: Tensor
    """[questions, passages]"""
    named: Tensor
    """[questions, entities]: the query names the speaker."""
    exact: Tensor
    """[questions, entities]"""
    gold: Tensor
    """[questions, entities], or [questions, sessions]: the grade of each target, 0 if it is no answer."""
    first_question: int = 0

    @property
    def is_alone(self) -> Tensor:
        """Whether an entity has no neighbours."""
        return self.position < 0


@dataclass
class RankingSet:
    """One exported set."""

    name: str
    tokens: list[np.ndarray]
    owners: list[Owner] = field(default_factory=list)
    by_session: bool = False


@dataclass
class Scores:
    """The scores of one owner's questions, [questions, entities]. `fit` is -inf for entities that are no candidates."""

    fit: Tensor
    meaning: Tensor
    best_distinction: Tensor
    similarity: Tensor
    best_passage: Tensor
    """The passage with the best distinction of each entity."""


def load_set(path: Path, device: torch.device | str = "cpu") -> RankingSet:
    """Load what training/ranking_data.py exported."""
    data = np.load(path)
    tokens = np.split(data["tokens"].astype(np.int64), data["offsets"][1:-1])
    result = RankingSet(path.stem, tokens, by_session=bool(data["by_session"]))
    columns = {name: data[name] for name in data.files}
    for name in ("exact_question", "exact_entity", "exact_weight", "named_question", "named_speaker"):
        columns.setdefault(name, np.zeros(0, dtype=np.int32))
    first_question = 0
    for number in range(int(columns["entity_owner"].max()) + 1):
        owner = _load_owner(columns, number, result.by_session, device)
        if owner is not None:
            owner.first_question = first_question
            first_question += len(owner.question_text)
            result.owners.append(owner)
    return result


def _load_owner(data: dict[str, np.ndarray], number: int, by_session: bool, device: torch.device | str) -> Owner | None:
    passages = np.flatnonzero(data["passage_owner"] == number)
    entities = np.flatnonzero(data["entity_owner"] == number)
    questions = np.flatnonzero(data["question_owner"] == number)
    if not len(questions):
        return None
    first = {"passage": passages[0], "entity": entities[0], "question": questions[0]}
    position, session = data["entity_position"][entities], data["entity_session"][entities]
    places = {(s, p): i for i, (s, p) in enumerate(zip(session, position, strict=True)) if p >= 0}
    neighbours = np.full((9, len(entities)), len(entities), dtype=np.int64)
    for (s, p), i in places.items():
        for shift in range(-4, 5):
            neighbours[shift + 4, i] = places.get((s, p + shift), len(entities))

    def dense(prefix: str, column: str, values: str, width: int, offset: int) -> np.ndarray:
        matrix = np.zeros((len(questions), width), dtype=np.float32)
        rows = data[f"{prefix}_question"] - first["question"]
        inside = (rows >= 0) & (rows < len(questions))
        matrix[rows[inside], data[column][inside] - offset] = data[values][inside]
        return matrix

    exact = dense("exact", "exact_entity", "exact_weight", len(entities), first["entity"])
    words = dense("word", "word_passage", "word_weight", len(passages), first["passage"])
    targets = int(session.max()) + 1 if by_session else len(entities)
    gold = dense("gold", "gold_target", "gold_grade", targets, 0 if by_session else first["entity"])
    speaker = data["entity_speaker"][entities]
    named = np.zeros((len(questions), len(entities)), dtype=np.float32)
    for question, who in zip(data["named_question"] - first["question"], data["named_speaker"], strict=True):
        if 0 <= question < len(questions):
            named[question] += speaker == who

    def tensor(array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    return Owner(
        tensor(data["passage_text"][passages].astype(np.int64)),
        tensor((data["passage_entity"][passages] - first["entity"]).astype(np.int64)),
        tensor(position.astype(np.int64)),
        tensor(session.astype(np.int64)),
        tensor(data["entity_prior"][entities]),
        tensor(data["entity_tells_time"][entities].astype(np.float32)),
        tensor(neighbours),
        tensor(data["question_text"][questions].astype(np.int64)),
        tensor(data["question_full"][questions]),
        tensor(data["question_asks_time"][questions].astype(np.float32)),
        tensor(words),
        tensor(named),
        tensor(exact),
        tensor(gold),
    )


def select_questions(owner: Owner, chosen: Tensor) -> Owner:
    """Return the owner with some of its questions only."""
    parts = ("question_text", "full_weight", "asks_time", "words", "named", "exact", "gold")
    return replace(owner, **{name: getattr(owner, name)[chosen] for name in parts})


def mean_vector(passages: Tensor) -> Tensor | None:
    """Return the mean of an owner's vectors, or None if there are too few."""
    return passages.mean(0) if len(passages) >= MIN_PASSAGES_WITH_MEAN else None


def distinctions(similarity: Tensor, query: Tensor, passages: Tensor, alone: Tensor, mean: Tensor | None) -> Tensor:
    """Return how much closer each passage is to each query than the average passage (`rem_distinction`)."""
    if mean is None:
        return similarity - 0.1 * alone
    direction = query - mean
    centred = passages - mean
    dialogue = direction @ centred.T / (direction.norm(dim=-1)[..., None] * centred.norm(dim=-1)).clamp(min=1e-6)
    centre = (query @ mean)[..., None]
    spread = (direction.norm(dim=-1)[..., None] * (1 - mean @ mean).clamp(min=0).sqrt()).clamp(min=1e-6)
    return torch.where(alone.bool(), (similarity - centre) / spread, dialogue)


def score(owner: Owner, queries: Tensor, passages: Tensor, weights: Weights | None = None) -> Scores:
    """Rank the entities of an owner for its questions, as `rem_search` does."""
    w = weights or Weights()
    alone = owner.is_alone
    count = len(owner.position)
    similarity = queries @ passages.T
    passage_alone = alone[owner.passage_entity].float()
    distinction = distinctions(similarity, queries, passages, passage_alone, mean_vector(passages))
    limit = min(MAX_ALONE_CANDIDATES if bool(alone.all()) else MAX_CANDIDATES, len(passages))
    order = similarity + w.candidate_word * owner.words
    threshold = order.topk(limit, dim=1).values[:, -1:]
    chosen = (order >= threshold) | (owner.exact[:, owner.passage_entity] > 0)
    best_dist, best_passage = _best_of_entity(distinction.masked_fill(~chosen, -9.0), owner.passage_entity, count)
    word_weight = _amax(owner.words.masked_fill(~chosen, 0.0), owner.passage_entity, count, 0.0)
    candidate = best_dist > -8.0
    best_distinction = best_dist.amax(1, keepdim=True).clamp(min=1e-6)
    full = torch.where(alone, w.alone_full, w.message_full)[None, :] * owner.full_weight[:, None]
    best_weight = torch.maximum(word_weight.amax(1, keepdim=True), full).clamp(min=1e-6)
    meaning = best_dist.clamp(min=0) / best_distinction
    word = word_weight / best_weight
    fit = _fit(owner, meaning, word, candidate, w)
    fit = fit.masked_fill(~candidate, -torch.inf)
    best_similarity = _amax(similarity.masked_fill(~chosen, -9.0), owner.passage_entity, count, -9.0)
    return Scores(fit, meaning, best_distinction, best_similarity, best_passage)


def _fit(owner: Owner, meaning: Tensor, word: Tensor, candidate: Tensor, w: Weights) -> Tensor:
    alone = owner.is_alone
    padded_m = torch.cat([meaning * candidate, torch.zeros_like(meaning[:, :1])], 1)
    padded_w = torch.cat([word * candidate, torch.zeros_like(word[:, :1])], 1)
    near_m, near_w = padded_m[:, owner.neighbours], padded_w[:, owner.neighbours]
    words_alone, meaning_alone = (
        w.own_word + w.nearby_word + w.alone_word,
        w.own_meaning + w.nearby_meaning + w.alone_meaning,
    )
    loss = torch.where(
        alone,
        (words_alone * word + meaning_alone * meaning) / (words_alone + meaning_alone),
        torch.minimum(word, meaning),
    )
    in_dialogue = (
        w.nearby_word * near_w.amax(1)
        + w.nearby_meaning * near_m.amax(1)
        + w.previous_word * near_w[:, 3]
        + w.previous_meaning * near_m[:, 3]
        + w.next_word * near_w[:, 5]
        + w.next_meaning * near_m[:, 5]
        + w.second_next_word * near_w[:, 6]
    )
    by_itself = (w.nearby_word + w.alone_word) * word + (w.nearby_meaning + w.alone_meaning) * meaning
    return (
        w.own_word * word
        + w.own_meaning * meaning
        + owner.prior * (1 - w.prior_loss * loss)
        + torch.where(alone, by_itself, in_dialogue)
        + w.exact * owner.exact
        + w.named_speaker * owner.named
        + w.time_mentioned * owner.asks_time[:, None] * owner.tells_time
    )


def _amax(values: Tensor, index: Tensor, count: int, empty: float) -> Tensor:
    result = torch.full((len(values), count), empty, device=values.device)
    return result.scatter_reduce(1, index.expand_as(values), values, "amax")


def _best_of_entity(values: Tensor, index: Tensor, count: int) -> tuple[Tensor, Tensor]:
    best = _amax(values, index, count, -9.0)
    is_best = values >= best[:, index]
    numbers = torch.arange(len(index), device=values.device).expand_as(values)
    first = torch.full((len(values), count), len(index), device=values.device)
    first = first.scatter_reduce(1, index.expand_as(values), torch.where(is_best, numbers, len(index)), "amin")
    return best, first.clamp(max=len(index) - 1)


def session_fit(owner: Owner, fit: Tensor) -> Tensor:
    """Return the scores of the sessions: those of their best message, with half of its prior."""
    values = fit - owner.prior / 2
    keep = owner.session >= 0
    count = int(owner.session.max()) + 1
    result = torch.full((len(fit), count), -torch.inf, device=fit.device)
    return result.scatter_reduce(1, owner.session[keep].expand(len(fit), -1), values[:, keep], "amax")


def measure(fit: Tensor, gold: Tensor) -> dict[str, Tensor]:
    """Return recall@5, recall@10, recall_all@5 and NDCG@10 of each question."""
    k = min(10, fit.shape[1])
    top = fit.topk(k, dim=1)
    gains = gold.gather(1, top.indices) * torch.isfinite(top.values)
    hits = (gains > 0).float()
    total = (gold > 0).sum(1).clamp(min=1).float()
    discounts = 1 / torch.log2(torch.arange(2, k + 2, device=fit.device).float())
    ideal = gold.sort(1, descending=True).values[:, :k]
    return {
        "r5": hits[:, :5].sum(1) / total,
        "r10": hits.sum(1) / total,
        "all5": (hits[:, :5].sum(1) >= total).float(),
        "ndcg": (gains * discounts).sum(1) / (ideal * discounts).sum(1).clamp(min=1e-6),
    }

"""Measure the three modes of SEARCH on a collection of documents, beside plain BM25 and rank fusion."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from bench.quality.datasets.documents import DocumentSet
from bench.quality.retrieval_benchmark import SQL, OnProgress, RetrievalBenchmark
from rem.evals.metrics import mean, ndcg, percentile, recall

if TYPE_CHECKING:
    from rem.app import Rem
    from rem.query.tree import Mode

Words: TypeAlias = Counter[str]

K = 10
"""The number of results that are scored."""
FUSED_RESULTS = 100
FUSION_CONSTANT = 60
"""The usual constant of reciprocal rank fusion."""
BM25_K1, BM25_B = 1.2, 0.75
"""The usual constants of BM25."""
WORD_BATCH_TEXTS = 500
MODES: tuple[Mode, ...] = ("hybrid", "text", "vector")


@dataclass(frozen=True, slots=True)
class RankingFigures:
    """The mean figures of one ranking. A baseline has no latency."""

    ndcg: float
    recall: float
    milliseconds: float | None = None


@dataclass(frozen=True, slots=True)
class DocumentsReport:
    """The figures of each ranking: the modes of SEARCH, `bm25`, and `fusion` of BM25 and the vectors."""

    documents: int
    questions: int
    dropped_judgements: int
    """Judgements of unknown questions or documents."""
    rankings: dict[str, RankingFigures]


class PlainBM25:
    """BM25 over whole documents, as textbooks define it."""

    def __init__(self, documents: Mapping[str, Words]) -> None:
        self._lengths = {document: sum(words.values()) for document, words in documents.items()}
        self._average = max(sum(self._lengths.values()) / max(len(documents), 1), 1.0)
        self._postings: dict[str, dict[str, int]] = defaultdict(dict)
        for document, words in documents.items():
            for word, frequency in words.items():
                self._postings[word][document] = frequency

    def rank(self, words: Words, limit: int) -> list[str]:
        """Return the ids of the best documents."""
        scores: dict[str, float] = defaultdict(float)
        for word in words:
            postings = self._postings.get(word, {})
            rarity = math.log(1 + (len(self._lengths) - len(postings) + 0.5) / (len(postings) + 0.5))
            for document, frequency in postings.items():
                norm = 1 - BM25_B + BM25_B * self._lengths[document] / self._average
                scores[document] += rarity * frequency * (BM25_K1 + 1) / (frequency + BM25_K1 * norm)
        return sorted(scores, key=lambda document: (-scores[document], document))[:limit]


def fuse_rankings(*rankings: Sequence[str]) -> list[str]:
    """Return the results of several rankings by reciprocal rank fusion."""
    scores: dict[str, float] = defaultdict(float)
    for ranking in rankings:
        for rank, result in enumerate(ranking, start=1):
            scores[result] += 1 / (FUSION_CONSTANT + rank)
    return sorted(scores, key=lambda result: (-scores[result], result))


class DocumentsBenchmark:
    """A measurement on one collection, in its own tenant. Call `store` and `index` of `retrieval`, then `measure`."""

    def __init__(self, rem: Rem, documents: DocumentSet, *, tenant: str, language: str) -> None:
        self._rem = rem
        self._documents = documents
        self._tenant = tenant
        self._language = language
        self.retrieval = RetrievalBenchmark(rem, documents.dataset, tenant=tenant)

    async def measure(self, on_progress: OnProgress) -> DocumentsReport:
        """Ask every question in every mode, rank by the baselines, and return the figures."""
        (case,) = self._documents.dataset.cases
        rankings: dict[str, RankingFigures] = {}
        total = len(case.questions) * (len(MODES) + 1)
        done = 0

        def on_asked(asked: int, _questions: int | None) -> None:
            on_progress(done + asked, total)

        for mode in MODES:
            benchmark = RetrievalBenchmark(self._rem, self._documents.dataset, tenant=self._tenant, mode=mode)
            outcomes = await benchmark.ask(on_asked)
            latency = percentile([outcome.milliseconds for outcome in outcomes], 0.5)
            rankings[mode] = self._score({outcome.question.id: outcome.found for outcome in outcomes}, latency)
            done += len(outcomes)
        nearest = RetrievalBenchmark(
            self._rem,
            self._documents.dataset,
            tenant=self._tenant,
            mode="vector",
            limit=FUSED_RESULTS,
            min_similarity=0.0,
        )
        by_vector = {outcome.question.id: outcome.found for outcome in await nearest.ask(on_asked)}
        by_words = await self._rank_by_words()
        rankings["bm25"] = self._score(by_words)
        rankings["fusion"] = self._score({key: fuse_rankings(by_words[key], found) for key, found in by_vector.items()})
        dropped = self._documents.dataset.dropped.gold_ids
        return DocumentsReport(len(case.texts), len(case.questions), dropped, rankings)

    async def _rank_by_words(self) -> dict[str, Sequence[str]]:
        (case,) = self._documents.dataset.cases
        titles = {text.id: "" if text.title is None else text.title for text in case.texts}
        words = await self._load_words([f"{titles[text.id]}\n{text.content}" for text in case.texts])
        bm25 = PlainBM25({text.id: counts for text, counts in zip(case.texts, words, strict=True)})
        asked = await self._load_words([question.text for question in case.questions])
        return {
            question.id: bm25.rank(counts, FUSED_RESULTS)
            for question, counts in zip(case.questions, asked, strict=True)
        }

    async def _load_words(self, texts: Sequence[str]) -> list[Words]:
        """Return the words of each text, stemmed and without stop words."""
        words: list[Words] = [Counter() for _ in texts]
        async with self._rem.database.connection() as connection:
            for start in range(0, len(texts), WORD_BATCH_TEXTS):
                batch = list(texts[start : start + WORD_BATCH_TEXTS])
                for place, lexeme, frequency in await connection.fetch(SQL["lexemes"], self._language, batch):
                    words[start + place - 1][lexeme] = frequency
        return words

    def _score(self, found: Mapping[str, Sequence[str]], milliseconds: float | None = None) -> RankingFigures:
        grades = self._documents.grades
        return RankingFigures(
            round(mean([ndcg(grades[key], results, K) for key, results in found.items()]) or 0.0, 4),
            round(mean([recall(grades[key], results, K) for key, results in found.items()]) or 0.0, 4),
            None if milliseconds is None else round(milliseconds, 3),
        )

"""Measure what reranking 20 candidates costs, relative to embedding a question with the model of the package."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable
from pathlib import Path

from bench.embedder import WORDS
from bench.measure import Result, median, print_progress
from rem.answers.replaced import MAX_PAIRS
from rem.search.embedder_factory import open_embedder
from rem.search.reranker import open_reader, open_reranker
from rem.settings import EmbeddingSettings, RerankerSettings, Settings

ROUNDS = 40
CANDIDATES = RerankerSettings().candidates
QUESTION = "what did Sarah say about the garden on the day of the marathon?"
MAX_QUERIES = {"message": 35.0, "paragraph": 90.0}
"""The candidates cost at most this many query embeddings. A message has 20 words, a paragraph 60."""


async def run(home: Path, rounds: int = ROUNDS) -> Result:
    """Embed and rerank in turns, and measure the milliseconds on one core."""
    result = Result("reranker")
    options = EmbeddingSettings(provider="local", threads=1, cache_size=0)
    embedder = open_embedder(Settings(rem_home=home, embedding=options))
    reranker, threaded = open_reranker(RerankerSettings(threads=1)), open_reranker(RerankerSettings())
    assert reranker is not None
    assert threaded is not None
    generator = random.Random(1)
    for name, words in (("message", 20), ("paragraph", 60)):
        texts = [" ".join(generator.choices(WORDS, k=words)) for _ in range(CANDIDATES)]
        await embedder.embed_one(QUESTION)
        await reranker.scores(QUESTION, texts)
        queries, rerankings, waits = [], [], []
        for number in range(rounds):
            queries.append(await _measure_cpu(embedder.embed_one(f"{QUESTION} {number}")))
            rerankings.append(await _measure_cpu(reranker.scores(QUESTION, texts)))
            started = time.perf_counter()
            await threaded.scores(QUESTION, texts)
            waits.append(time.perf_counter() - started)
        ratio = median(rerankings) / median(queries)
        result.figures[name] = {
            "candidates": CANDIDATES,
            "cpu_ms": round(median(rerankings) * 1e3, 1),
            "ms_with_all_threads": round(median(waits) * 1e3, 1),
            "query_cpu_ms": round(median(queries) * 1e3, 2),
            "queries": round(ratio, 1),
        }
        print_progress(f"{CANDIDATES} candidates of {words} words: {result.figures[name]}")
        result.check(
            f"reranker, {CANDIDATES} candidates of {words} words, in query embeddings", ratio, MAX_QUERIES[name]
        )
    await _measure_pairs(result, generator, rounds)
    await reranker.close()
    await threaded.close()
    await embedder.close()
    return result


async def _measure_pairs(result: Result, generator: random.Random, rounds: int) -> None:
    """Measure the model that finds replaced rows, on the most pairs that it reads for an answer."""
    model = open_reader(RerankerSettings())
    texts = [" ".join(generator.choices(WORDS, k=20)) for _ in range(2 * MAX_PAIRS)]
    pairs = list(zip(texts[::2], texts[1::2], strict=True))
    await model.replaces(QUESTION, pairs)
    times, waits = [], []
    for _ in range(rounds):
        started = time.perf_counter()
        times.append(await _measure_cpu(model.replaces(QUESTION, pairs)))
        waits.append(time.perf_counter() - started)
    await model.close()
    result.figures["pairs"] = {
        "pairs": len(pairs),
        "cpu_ms": round(median(times) * 1e3, 1),
        "ms_with_all_threads": round(median(waits) * 1e3, 1),
    }
    print_progress(f"{len(pairs)} pairs of two messages: {result.figures['pairs']}")


async def _measure_cpu(work: Awaitable[object]) -> float:
    """Return the CPU time of all threads, which other processes change less than the time that passes."""
    started = time.process_time()
    await work
    return time.process_time() - started

"""Compare the embedder of the package with ONNX Runtime on a float32 graph of the same shape, on the same texts.

The weights of the float32 graph are random: they do not change its speed.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from training.graph import HEADS, build_encoder

from bench.measure import Result, median, print_progress
from rem.search.embedder_factory import open_embedder
from rem.search.models.files import DIMENSION, MAX_TOKENS, load_tokenizer
from rem.settings import EmbeddingSettings, Settings

TEXTS = 400
ROUNDS = 3
BATCH_TEXTS = 32
WORDS = re.findall(
    r"\w+",
    "the a and of to in we you it was is on for with that this about when where meeting garden project memory river "
    "Sarah Bob compiler tuesday invoice harbour painting marathon coffee train ticket dentist birthday recipe violin",
)

LAYERS, VOCABULARY = 6, 30_522


async def run(home: Path, texts: int = TEXTS) -> Result:
    """Embed the same texts with both in turns on one thread, and measure the seconds and their ratio."""
    result = Result("embedder")
    corpus = _make_texts(texts)
    options = EmbeddingSettings(provider="local", threads=1)
    embedder = open_embedder(Settings(rem_home=home, embedding=options))
    started = time.perf_counter()
    await embedder.embed_one("load")
    first_use_seconds = time.perf_counter() - started
    embed_exactly = _open_float32_baseline(corpus)
    local_seconds, baseline_seconds = [], []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        await embedder.embed(corpus)
        local_seconds.append(time.perf_counter() - started)
        baseline_seconds.append(embed_exactly())
        print_progress(f"{texts} texts: local {local_seconds[-1]:.2f} s, float32 {baseline_seconds[-1]:.2f} s")
    query_ms = await _measure_query_ms(embedder.embed_one)
    await embedder.close()
    result.figures = {
        "local_ms_per_text": round(median(local_seconds) / texts * 1e3, 3),
        "baseline_ms_per_text": round(median(baseline_seconds) / texts * 1e3, 3),
        "times_as_fast": round(median(baseline_seconds) / median(local_seconds), 2),
        "query_ms": round(query_ms, 2),
        "first_use_seconds": round(first_use_seconds, 2),
    }
    result.check("local embedder against float32, time", median(local_seconds) / median(baseline_seconds), 0.667)
    return result


async def _measure_query_ms(embed_one: Callable[[str], Any]) -> float:
    times = []
    for number in range(50):
        started = time.perf_counter()
        await embed_one(f"what did Sarah say about the garden on day {number}?")
        times.append(time.perf_counter() - started)
    return median(times) * 1e3


def _make_texts(count: int) -> list[str]:
    """Return texts as long as chat turns: most are short, some are longer than the model reads."""
    generator = random.Random(count)
    lengths = [min(400, int(generator.lognormvariate(3.4, 0.9)) + 1) for _ in range(count)]
    return [" ".join(generator.choices(WORDS, k=length)) + f" {number}" for number, length in enumerate(lengths)]


def _open_float32_baseline(corpus: list[str]) -> Callable[[], float]:
    """Return a function that embeds the texts in batches sorted by length, and returns its seconds."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    weights = make_weights(DIMENSION, layers=LAYERS, words=VOCABULARY, positions=MAX_TOKENS)
    graph = build_encoder(weights, heads=HEADS, outliers={}, weight_steps=None)
    session = onnxruntime.InferenceSession(graph.SerializeToString(), options, providers=["CPUExecutionProvider"])
    tokenizer = load_tokenizer()

    def measure() -> float:
        started = time.perf_counter()
        tokens = [encoding.ids for encoding in tokenizer.encode_batch_fast(corpus)]
        tokens.sort(key=len, reverse=True)
        for start in range(0, len(tokens), BATCH_TEXTS):
            batch = tokens[start : start + BATCH_TEXTS]
            ids = np.zeros((len(batch), len(batch[0])), dtype=np.int32)
            mask = np.zeros_like(ids)
            for row, own in enumerate(batch):
                ids[row, : len(own)], mask[row, : len(own)] = own, 1
            session.run(None, {"input_ids": ids, "attention_mask": mask})
        return time.perf_counter() - started

    return measure


def make_weights(size: int, *, layers: int, words: int, positions: int) -> dict[str, NDArray[Any]]:
    """Return random weights of an encoder, with the names that published ones have."""
    generator = np.random.default_rng(1)
    weights: dict[str, NDArray[Any]] = {}

    def add(name: str, *shape: int) -> None:
        weights[f"{name}.weight"] = generator.normal(scale=0.05, size=shape).astype(np.float32)

    def add_linear(name: str, inputs: int, outputs: int) -> None:
        add(name, outputs, inputs)
        weights[f"{name}.bias"] = generator.normal(scale=0.05, size=outputs).astype(np.float32)

    def add_norm(name: str) -> None:
        weights[f"{name}.weight"], weights[f"{name}.bias"] = np.ones(size, np.float32), np.zeros(size, np.float32)

    for name, rows in (("word", words), ("position", positions), ("token_type", 2)):
        add(f"embeddings.{name}_embeddings", rows, size)
    add_norm("embeddings.LayerNorm")
    for number in range(layers):
        layer = f"encoder.layer.{number}"
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            add_linear(f"{layer}.attention.{part}", size, size)
        add_linear(f"{layer}.intermediate.dense", size, 4 * size)
        add_linear(f"{layer}.output.dense", 4 * size, size)
        for part in ("attention.output", "output"):
            add_norm(f"{layer}.{part}.LayerNorm")
    return weights

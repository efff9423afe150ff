"""Compare the local embedder with a float32 baseline on the same weights, texts and threads.

`python -m bench.embedder --torch-python PATH` uses sentence-transformers on torch as the baseline. PATH is a Python
that has both (`python -m venv /tmp/torch && /tmp/torch/bin/pip install torch sentence-transformers`). Without it the
baseline is this environment's torch if there is one, else ONNX Runtime on the float32 graph.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.measure import Result, median, print_progress
from rem.embeddings import open_embedder
from rem.embeddings.minilm.weights import HEADS, MODEL, OUTLIER_CHANNELS, TENSORS, find_weights
from rem.settings import EmbeddingSettings, Settings

TEXTS = 400
ROUNDS = 3
BATCH_TEXTS = 32
WORDS = re.findall(
    r"\w+",
    "the a and of to in we you it was is on for with that this about when where meeting garden project memory river "
    "Sarah Bob compiler tuesday invoice harbour painting marathon coffee train ticket dentist birthday recipe violin",
)

# Runs in any Python that has sentence-transformers, and exchanges JSON lines with the benchmark.
TORCH_SCRIPT = """
import json, sys, time
import numpy, torch
from sentence_transformers import SentenceTransformer
setup = json.loads(sys.stdin.readline())
torch.set_num_threads(setup["threads"])
model = SentenceTransformer(setup["folder"], device="cpu")
model.encode(setup["texts"][:32])
print(json.dumps({"name": "torch " + torch.__version__}), flush=True)
for _ in sys.stdin:
    started = time.perf_counter()
    rows = model.encode(setup["texts"], batch_size=setup["batch"], normalize_embeddings=True, show_progress_bar=False)
    seconds = time.perf_counter() - started
    numpy.save(setup["rows"], rows)
    print(json.dumps({"seconds": seconds}), flush=True)
"""

Baseline = Callable[[], tuple[float, NDArray[Any]]]


async def run(home: Path, texts: int = TEXTS, torch_python: str | None = None, threads: int = 1) -> Result:
    """Embed the same texts with both in turns, and measure the seconds, their ratio and the cosine."""
    result = Result("embedder")
    corpus = _make_texts(texts)
    weights = find_weights(home)
    assert weights is not None, "the weights of the local model are missing: run make install"
    # The baseline has the weights of this model, and both models of the package have the same size and speed.
    options = EmbeddingSettings(provider="local", model=MODEL, threads=threads)
    embedder = open_embedder(Settings(rem_home=home, embedding=options))
    started = time.perf_counter()
    await embedder.embed_one("build and load")
    first_use_seconds = time.perf_counter() - started
    local_seconds, baseline_seconds = [], []
    with _open_baseline(weights, corpus, torch_python, threads) as (name, baseline):
        for _ in range(ROUNDS):
            started = time.perf_counter()
            rows = await embedder.embed(corpus)
            local_seconds.append(time.perf_counter() - started)
            seconds, reference = baseline()
            baseline_seconds.append(seconds)
            print_progress(f"{texts} texts: local {local_seconds[-1]:.2f} s, {name} {baseline_seconds[-1]:.2f} s")
    query_ms = await _measure_query_ms(embedder.embed_one)
    await embedder.close()
    cosine = (rows * reference).sum(axis=1)
    result.figures = {
        "baseline": name,
        "threads": threads,
        "local_ms_per_text": round(median(local_seconds) / texts * 1e3, 3),
        "baseline_ms_per_text": round(median(baseline_seconds) / texts * 1e3, 3),
        "times_as_fast": round(median(baseline_seconds) / median(local_seconds), 2),
        "cosine_mean": round(float(cosine.mean()), 4),
        "cosine_least": round(float(cosine.min()), 4),
        "query_ms": round(query_ms, 2),
        "first_use_seconds": round(first_use_seconds, 2),
    }
    goal = 1.8 if "torch" in name else 1.5
    result.check(
        f"local embedder against {name}, time", median(local_seconds) / median(baseline_seconds), round(1 / goal, 3)
    )
    result.check("local embedder, 1 - mean cosine to float32", 1 - float(cosine.mean()), 0.01)
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


@contextmanager
def _open_baseline(
    weights: Path, corpus: list[str], torch_python: str | None, threads: int
) -> Iterator[tuple[str, Baseline]]:
    if torch_python is None and find_spec("sentence_transformers") is not None:
        torch_python = sys.executable
    if torch_python is None:
        yield "onnxruntime float32", _open_float32_baseline(weights, corpus, threads)
    else:
        with _open_torch_baseline(torch_python, weights, corpus, threads) as baseline:
            yield baseline


@contextmanager
def _open_torch_baseline(python: str, weights: Path, corpus: list[str], threads: int) -> Iterator[tuple[str, Baseline]]:
    with tempfile.TemporaryDirectory(prefix="rem-bench-") as folder:
        rows = Path(folder) / "rows.npy"
        setup = {"threads": threads, "folder": str(weights), "texts": corpus, "batch": BATCH_TEXTS, "rows": str(rows)}
        process = subprocess.Popen(
            [python, "-c", TORCH_SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdin is not None
        assert process.stdout is not None
        read, write = process.stdout, process.stdin

        def ask(line: str) -> Any:
            write.write(line + "\n")
            write.flush()
            return json.loads(read.readline())

        def measure() -> tuple[float, NDArray[Any]]:
            return ask("again")["seconds"], np.load(rows)

        try:
            yield f"sentence-transformers, {ask(json.dumps(setup))['name']}", measure
        finally:
            process.communicate()


def _open_float32_baseline(weights: Path, corpus: list[str], threads: int) -> Baseline:
    """Return a baseline on ONNX Runtime with the float32 graph and batches sorted by length."""
    import onnxruntime
    from safetensors.numpy import load_file

    from rem.embeddings.minilm.graph import build_encoder
    from rem.embeddings.minilm.model import MiniLM

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    graph = build_encoder(load_file(weights / TENSORS), heads=HEADS, outliers=OUTLIER_CHANNELS, weight_steps=None)
    session = onnxruntime.InferenceSession(graph.SerializeToString(), options, providers=["CPUExecutionProvider"])
    tokenizer = MiniLM(weights, weights).load_tokenizer()

    def measure() -> tuple[float, NDArray[Any]]:
        started = time.perf_counter()
        tokens = [encoding.ids for encoding in tokenizer.encode_batch_fast(corpus)]
        order = sorted(range(len(corpus)), key=lambda number: -len(tokens[number]))
        rows = np.empty((len(corpus), 384), dtype=np.float32)
        for start in range(0, len(order), BATCH_TEXTS):
            batch = order[start : start + BATCH_TEXTS]
            ids = np.zeros((len(batch), len(tokens[batch[0]])), dtype=np.int32)
            mask = np.zeros_like(ids)
            for row, number in enumerate(batch):
                ids[row, : len(tokens[number])], mask[row, : len(tokens[number])] = tokens[number], 1
            rows[batch] = session.run(None, {"input_ids": ids, "attention_mask": mask})[0]
        return time.perf_counter() - started, rows

    return measure


def main() -> None:
    """Run this benchmark alone."""
    parser = argparse.ArgumentParser(prog="python -m bench.embedder", description=__doc__)
    parser.add_argument("--texts", type=int, default=TEXTS)
    parser.add_argument("--threads", type=int, default=1, help="threads of both sides")
    parser.add_argument("--torch-python", help="a Python with torch and sentence-transformers")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rem-bench-") as folder:
        result = asyncio.run(run(Path(folder), arguments.texts, arguments.torch_python, arguments.threads))
    json.dump({"model": MODEL, **result.figures, "passed": all(c.passed for c in result.checks)}, sys.stdout, indent=2)
    print()
    sys.exit(0 if all(check.passed for check in result.checks) else 1)


if __name__ == "__main__":
    main()

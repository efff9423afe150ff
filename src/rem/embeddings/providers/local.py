"""all-MiniLM-L6-v2 in this process, on ONNX Runtime: no torch, no network."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rem.embeddings.minilm.weights import DIMENSION, MAX_TOKENS, MODEL, TOKENIZER, read_verified
from rem.embeddings.thread_pool import BatchThreadPool

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

    from rem.embeddings.embedder import Vectors

# What fits into a core's cache with all activations; larger batches are slower (measured: 512 tokens 8.0 ms per text,
# 2,048 tokens 12.4) and make a query wait longer.
_BATCH_TOKENS = 512
# Long texts are tokenised from their start only; if that gives too few tokens, whole.
_HEAD_CHARACTERS = 4_096
_TOKENISED_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class _Loaded:
    tokenizer: Tokenizer
    session: InferenceSession


class LocalProvider:
    """The model, loaded at its first use. Only a text's first 256 tokens count: make passages of long ones."""

    model = MODEL
    dimension = DIMENSION

    def __init__(self, home: Path, weights: Path, *, threads: int, batch_size: int) -> None:
        self._home = home
        self._weights = weights
        self._batch_size = batch_size
        self._workers: BatchThreadPool[Sequence[int]] = BatchThreadPool(threads)
        self._loading = threading.Lock()
        self._loaded: _Loaded | None = None

    async def vectors(self, texts: Sequence[str]) -> Vectors:
        """One row per text; texts of similar length share a batch."""
        import numpy as np

        tokens: list[list[int]] = [[] for _ in texts]
        rows = np.empty((len(texts), DIMENSION), dtype=np.float32)

        def tokenise(numbers: Sequence[int]) -> None:
            for number, ids in zip(numbers, self._tokens([texts[number] for number in numbers]), strict=True):
                tokens[number] = ids

        def run(numbers: Sequence[int]) -> None:
            rows[list(numbers)] = self._run([tokens[number] for number in numbers])

        groups = [
            range(len(texts))[start : start + _TOKENISED_AT_ONCE] for start in range(0, len(texts), _TOKENISED_AT_ONCE)
        ]
        await self._workers.run(tokenise, groups)
        await self._workers.run(run, plan_batches([len(ids) for ids in tokens], self._batch_size))
        return rows

    async def close(self) -> None:
        """Give back the threads and the model's memory."""
        await self._workers.close()
        self._loaded = None

    def _load(self) -> _Loaded:
        with self._loading:
            if self._loaded is None:
                from rem.embeddings.minilm.graph_cache import open_session

                tokenizer = load_tokenizer(self._weights)
                self._loaded = _Loaded(tokenizer, open_session(self._home, self._weights))
            return self._loaded

    def _tokens(self, texts: list[str]) -> list[list[int]]:
        tokenizer = self._load().tokenizer
        found = [encoding.ids for encoding in tokenizer.encode_batch_fast([_head(text) for text in texts])]
        for number, ids in enumerate(found):
            if len(ids) < MAX_TOKENS and len(texts[number]) > _HEAD_CHARACTERS:
                found[number] = tokenizer.encode_batch_fast([texts[number]])[0].ids
        return found

    def _run(self, tokens: list[list[int]]) -> Vectors:
        import numpy as np

        longest = max(map(len, tokens))
        ids = np.zeros((len(tokens), longest), dtype=np.int32)
        mask = np.zeros_like(ids)
        for row, own in enumerate(tokens):
            ids[row, : len(own)] = own
            mask[row, : len(own)] = 1
        (answer,) = self._load().session.run(["embedding"], {"input_ids": ids, "attention_mask": mask})
        return np.asarray(answer, dtype=np.float32)


def load_tokenizer(weights: Path) -> Tokenizer:
    """The model's tokenizer: at most 256 tokens, no padding (its file says 128, and pads)."""
    import os

    from tokenizers import Tokenizer

    # Our threads are bounded; the tokenizer's own would not be, and warn whenever the process forks.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    tokenizer: Tokenizer = Tokenizer.from_buffer(read_verified(weights, TOKENIZER))
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.no_padding()
    return tokenizer


def plan_batches(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """The texts' numbers, longest first, in batches of little padding and bounded tokens."""
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        if batch and (len(batch) == batch_size or (len(batch) + 1) * lengths[batch[0]] > _BATCH_TOKENS):
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def _head(text: str) -> str:
    """The start of a long text, cut between words, so that its tokens are those of the whole text."""
    if len(text) <= _HEAD_CHARACTERS:
        return text
    head = text[:_HEAD_CHARACTERS]
    words = head.rsplit(None, 1)
    return words[0] if len(words) == 2 else head

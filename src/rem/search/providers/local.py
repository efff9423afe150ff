"""Provider for the model of the package. It runs in this process on ONNX Runtime, without torch or network."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from rem.search.models.files import (
    DIMENSION,
    EMBEDDER,
    MAX_TOKENS,
    MODEL,
    SessionWithWords,
    load_tokenizer,
    open_graph,
)
from rem.search.thread_pool import BatchThreadPool, plan_batches

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from rem.search.embedder import Vectors

HEAD_CHARS = 4_096
"""A long text is tokenized from its start only. If that gives too few tokens, the whole text is tokenized."""
TOKENIZER_BATCH_TEXTS = 256


@dataclass(frozen=True, slots=True, weakref_slot=True)
class _LoadedModel:
    tokenizer: Tokenizer
    session: SessionWithWords


LOADED_MODELS: WeakValueDictionary[str, _LoadedModel] = WeakValueDictionary()
"""The model, while it is in use. Providers of one process share it; if no provider uses it, it is freed."""
_loading = threading.Lock()


class LocalProvider:
    """The model of the package, loaded at its first use. It reads the first 256 tokens of a text."""

    model = MODEL
    dimension = DIMENSION

    def __init__(self, *, threads: int, batch_size: int) -> None:
        self._batch_size = batch_size
        self._pool: BatchThreadPool[Sequence[int]] = BatchThreadPool(threads)
        self._loaded: _LoadedModel | None = None

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one row for each text, in the same order. Texts of similar length share a batch."""
        import numpy as np

        token_ids: list[list[int]] = [[] for _ in texts]
        rows = np.empty((len(texts), DIMENSION), dtype=np.float32)

        def tokenize_batch(batch: Sequence[int]) -> None:
            for position, ids in zip(batch, self._tokenize([texts[position] for position in batch]), strict=True):
                token_ids[position] = ids

        def embed_batch(batch: Sequence[int]) -> None:
            rows[list(batch)] = self._run_model([token_ids[position] for position in batch])

        positions = range(len(texts))
        await self._pool.run(
            tokenize_batch,
            [positions[start : start + TOKENIZER_BATCH_TEXTS] for start in positions[::TOKENIZER_BATCH_TEXTS]],
        )
        await self._pool.run(embed_batch, plan_batches([len(ids) for ids in token_ids], self._batch_size))
        return rows

    async def close(self) -> None:
        """Release the threads and the model."""
        await self._pool.close()
        self._loaded = None

    def _load(self) -> _LoadedModel:
        """Return the model. Load it at the first call, unless another provider of this process has it open."""
        with _loading:
            if self._loaded is None:
                self._loaded = LOADED_MODELS.get(MODEL) or _LoadedModel(load_tokenizer(), open_graph(EMBEDDER))
                LOADED_MODELS[MODEL] = self._loaded
            return self._loaded

    def _tokenize(self, texts: list[str]) -> list[list[int]]:
        """Return the token ids of each text, at most 256 for each."""
        tokenizer = self._load().tokenizer
        token_ids = [encoding.ids for encoding in tokenizer.encode_batch_fast([_cut_head(text) for text in texts])]
        for position, ids in enumerate(token_ids):
            if len(ids) < MAX_TOKENS and len(texts[position]) > HEAD_CHARS:
                token_ids[position] = tokenizer.encode_batch_fast([texts[position]])[0].ids
        return token_ids

    def _run_model(self, token_ids: list[list[int]]) -> Vectors:
        """Return one row for each list of token ids, which are padded to the longest."""
        import numpy as np

        padded = np.zeros((len(token_ids), max(map(len, token_ids))), dtype=np.int32)
        mask = np.zeros_like(padded)
        for row, ids in enumerate(token_ids):
            padded[row, : len(ids)] = ids
            mask[row, : len(ids)] = 1
        (embedding,) = self._load().session.run(["embedding"], {"input_ids": padded, "attention_mask": mask})
        return np.asarray(embedding, dtype=np.float32)


def _cut_head(text: str) -> str:
    """Return the start of a long text, cut between words, so that its tokens are those of the whole text."""
    if len(text) <= HEAD_CHARS:
        return text
    head = text[:HEAD_CHARS]
    words = head.rsplit(None, 1)
    return words[0] if len(words) == 2 else head

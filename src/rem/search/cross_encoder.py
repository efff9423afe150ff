"""A cross-encoder that runs in this process, on ONNX Runtime: it reads the query and a text together."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rem.errors import RerankerError
from rem.search.cross_encoder_loader import MAX_TOKENS, LoadedModel, model_error
from rem.search.thread_pool import BatchThreadPool, plan_batches
from rem.text import clean_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Encoding, Tokenizer

BATCH_PAIRS = 64
TOKENIZER_BATCH_PAIRS = 32
MAX_HEAD_CHARS = 32 * MAX_TOKENS
"""Only the start of a long text is tokenised: few tokens have more than 32 characters."""


class CrossEncoder:
    """A model that `load` returns at its first use. Scores are logits. Long texts are cut at the end."""

    def __init__(self, name: str, load: Callable[[], LoadedModel], *, threads: int) -> None:
        self.name = name
        self._read = load
        self._workers: BatchThreadPool[Sequence[int]] = BatchThreadPool(threads)
        self._loading = threading.Lock()
        self._loaded: LoadedModel | None = None
        self._closed = False

    async def scores(self, question: str, texts: Sequence[str]) -> list[float]:
        """Return one score per text, in their order. Raise RerankerError if the model fails."""
        try:
            return await self._scores(question, texts)
        except (RuntimeError, asyncio.CancelledError) as error:
            # Closing cancels calls that wait for a thread. That is an error for the caller, not a cancellation.
            task = asyncio.current_task()
            if self._closed and not (task and task.cancelling()):
                raise RerankerError(f"The reranker {self.name} was closed.") from error
            raise

    async def close(self) -> None:
        """Release the threads and the memory of the model."""
        self._closed = True
        await self._workers.close()
        self._loaded = None

    async def _scores(self, question: str, texts: Sequence[str]) -> list[float]:
        import numpy as np

        encoded: dict[int, Encoding] = {}
        scores = np.empty(len(texts), dtype=np.float64)

        def tokenise(positions: Sequence[int]) -> None:
            model = self._load()
            cut = _cut_question(model.tokenizer, question, model.max_question_tokens)
            pairs = [(cut, _cut(texts[position])) for position in positions]
            encoded.update(zip(positions, model.tokenizer.encode_batch_fast(pairs), strict=True))

        def run(positions: Sequence[int]) -> None:
            scores[list(positions)] = self._run([encoded[position] for position in positions])

        every = range(len(texts))
        tokenizer_batches = [every[start : start + TOKENIZER_BATCH_PAIRS] for start in every[::TOKENIZER_BATCH_PAIRS]]
        await self._workers.run(tokenise, tokenizer_batches)
        await self._workers.run(run, plan_batches([len(encoded[position]) for position in every], BATCH_PAIRS))
        result: list[float] = scores.tolist()
        return result

    def _load(self) -> LoadedModel:
        with self._loading:
            if self._loaded is None:
                self._loaded = self._read()
            return self._loaded

    def _run(self, pairs: list[Encoding]) -> NDArray[np.float64]:
        model = self._load()
        try:
            (output,) = model.session.run([model.output], _make_inputs(model, pairs))
        except Exception as error:  # its errors have no common root but Exception
            raise model_error(model.graph, f"failed: {error}") from error
        return _to_logits(model.graph, output, len(pairs))


def _cut(text: str) -> str:
    return clean_text(text[:MAX_HEAD_CHARS], " ")


def _cut_question(tokenizer: Tokenizer, question: str, max_tokens: int) -> str:
    """Return a question of at most this many tokens, with those that mark its beginning and end."""
    question = _cut(question)
    offsets = tokenizer.encode(question, add_special_tokens=False).offsets
    return question if len(offsets) <= max_tokens - 2 else question[: offsets[max_tokens - 3][1]]


def _make_inputs(model: LoadedModel, pairs: list[Encoding]) -> dict[str, NDArray[Any]]:
    """Return the inputs of the graph: one row for each pair, padded to the longest."""
    import numpy as np

    shape = (len(pairs), max(map(len, pairs)))
    feed: dict[str, NDArray[Any]] = {
        name: np.full(shape, model.pad_id if name == "input_ids" else 0, dtype=kind)
        for name, kind in model.inputs.items()
    }
    for row, pair in enumerate(pairs):
        columns = {"input_ids": pair.ids, "attention_mask": pair.attention_mask, "token_type_ids": pair.type_ids}
        for name, values in feed.items():
            values[row, : len(pair)] = columns[name]
    return feed


def _to_logits(graph: Path, output: Any, count: int) -> NDArray[np.float64]:
    """Return how sure the model is that each text answers, from one logit per pair, or from two for no and yes."""
    import numpy as np

    logits = np.asarray(output, dtype=np.float64)
    if logits.shape == (count,):
        logits = logits[:, None]
    if logits.ndim != 2 or len(logits) != count:
        raise model_error(
            graph, f"answers {count} pairs with numbers of shape {logits.shape}, so it is no cross-encoder"
        )
    if logits.shape[1] not in (1, 2):
        raise model_error(graph, f"has {logits.shape[1]} labels; a reranker has one, or two for no and yes")
    if not np.isfinite(logits).all():
        raise model_error(graph, "answered with a number that is not finite")
    return logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]

"""A cross-encoder in this process, on ONNX Runtime: it reads the question and a text together."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rem.embeddings.thread_pool import BatchThreadPool, plan_batches
from rem.errors import RerankerError
from rem.retrieval.cross_encoder_loader import MAX_TOKENS, LoadedModel, find_model_folder, load_model, model_error
from rem.text import clean_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Encoding

_BATCH_SIZE = 64
_TOKENISED_AT_ONCE = 32
# No need to tokenise a whole book for its first 512 tokens: few tokens have more than 32 characters.
_HEAD_CHARACTERS = 32 * MAX_TOKENS


class CrossEncoder:
    """An exported model, loaded at its first use. Scores are from 0 to 1; of long texts the start is read."""

    def __init__(self, path: Path, *, threads: int) -> None:
        self.name = find_model_folder(path).name
        self._path = path
        self._workers: BatchThreadPool[Sequence[int]] = BatchThreadPool(threads)
        self._loading = threading.Lock()
        self._loaded: LoadedModel | None = None
        self._closed = False

    async def scores(self, question: str, texts: Sequence[str]) -> list[float]:
        """One score per text, in their order."""
        try:
            return await self._scores(question, texts)
        except (RuntimeError, asyncio.CancelledError) as error:
            # Closing drops what waits for a thread; the caller did not cancel, and must not look as if.
            task = asyncio.current_task()
            if self._closed and not (task and task.cancelling()):
                raise RerankerError(f"The reranker {self.name} was closed.") from error
            raise

    async def close(self) -> None:
        """Give back the threads and the model's memory."""
        self._closed = True
        await self._workers.close()
        self._loaded = None

    async def _scores(self, question: str, texts: Sequence[str]) -> list[float]:
        import numpy as np

        pairs = [(_head(question), _head(text)) for text in texts]
        encoded: dict[int, Encoding] = {}
        found = np.empty(len(texts), dtype=np.float64)

        def tokenise(numbers: Sequence[int]) -> None:
            tokenizer = self._load().tokenizer
            encoded.update(
                zip(numbers, tokenizer.encode_batch_fast([pairs[number] for number in numbers]), strict=True)
            )

        def run(numbers: Sequence[int]) -> None:
            found[list(numbers)] = self._run([encoded[number] for number in numbers])

        every = range(len(texts))
        await self._workers.run(tokenise, [every[at : at + _TOKENISED_AT_ONCE] for at in every[::_TOKENISED_AT_ONCE]])
        await self._workers.run(run, plan_batches([len(encoded[number]) for number in every], _BATCH_SIZE))
        scores: list[float] = found.tolist()
        return scores

    def _load(self) -> LoadedModel:
        with self._loading:
            if self._loaded is None:
                self._loaded = load_model(self._path)
            return self._loaded

    def _run(self, pairs: list[Encoding]) -> NDArray[np.float64]:
        model = self._load()
        try:
            (answer,) = model.session.run([model.output], _feed(model, pairs))
        except Exception as error:  # its errors have no common root but Exception
            raise model_error(model.graph, f"failed: {error}") from error
        return _probabilities(model.graph, answer, len(pairs))


def _head(text: str) -> str:
    return clean_text(text[:_HEAD_CHARACTERS], " ")


def _feed(model: LoadedModel, pairs: list[Encoding]) -> dict[str, NDArray[Any]]:
    """What the graph takes of the pairs: one row each, filled up to the longest."""
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


def _probabilities(graph: Path, answer: Any, count: int) -> NDArray[np.float64]:
    """How probable it is that each text answers the question, by one number per pair or by those for no and yes."""
    import numpy as np

    logits = np.asarray(answer, dtype=np.float64)
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
    yes = logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]
    with np.errstate(over="ignore"):  # far below zero the probability is 0
        probabilities: NDArray[np.float64] = 1 / (1 + np.exp(-yes))
    return probabilities

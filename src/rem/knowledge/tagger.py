"""The tagger: a small encoder that labels each word of a text. It runs in this process, without torch or network."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from rem.search.thread_pool import BatchThreadPool, plan_batches, thread_count

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    from rem.search.models.files import SessionWithWords

Encoding: TypeAlias = Any
"""An `Encoding` of the tokenizers library, which has no types."""

PERSON, ORGANIZATION, PLACE = "person", "organization", "place"
KINDS = (PERSON, ORGANIZATION, PLACE)
"""The kinds in the order of the labels: 0 is no name, 1 begins a person, 2 continues it, 3 begins an organisation …"""
MAX_WINDOW_WORDS = 120
BATCH_TEXTS = 32
MIN_CONFIDENCE = 0.9
"""Less certain names are left out. Chosen on names_open.yaml of the tests: precision .92, recall .79."""
_WORD = re.compile(r"['’]s\b|[\w@#]+(?:[-'’.&](?!s\b)\w+)*|[^\w\s]")
_SENTENCE_END = frozenset(".!?")
_TITLES = frozenset({"mr", "mrs", "ms", "miss", "dr", "prof", "professor", "sir", "herr", "herrn", "frau"})
"""Words before a family name, which are no part of it."""


@dataclass(frozen=True, slots=True)
class TaggedName:
    """A name in a text."""

    text: str
    kind: str
    """`person`, `organization` or `place`."""
    start: int
    end: int
    """The offset after the name."""
    confidence: float
    """From 0 to 1."""


@dataclass(frozen=True, slots=True)
class _Window:
    """Consecutive words of a text that are read together."""

    text_index: int
    words: list[re.Match[str]]


@dataclass(frozen=True, slots=True)
class _LoadedModel:
    tokenizer: Tokenizer
    session: SessionWithWords


class Tagger:
    """Finds names in texts. `get_tagger` returns the one of the process."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._loading = threading.Lock()
        self._loaded: _LoadedModel | None = None

    async def find_names(self, texts: Sequence[str], min_confidence: float = MIN_CONFIDENCE) -> list[list[TaggedName]]:
        """Return the names in each text, in their order, without those of less confidence."""
        model = await asyncio.to_thread(self._load)
        windows = await asyncio.to_thread(
            lambda: [window for index, text in enumerate(texts) for window in _split_windows(index, text)]
        )
        encodings: list[Encoding] = [None] * len(windows)
        found: list[list[TaggedName]] = [[] for _ in windows]

        def encode_batch(batch: Sequence[int]) -> None:
            words = [[word.group() for word in windows[position].words] for position in batch]
            encoded = model.tokenizer.encode_batch(words, is_pretokenized=True)
            for position, encoding in zip(batch, encoded, strict=True):
                encodings[position] = encoding

        def tag_batch(batch: Sequence[int]) -> None:
            rows = _compute_probabilities(model, [(windows[position], encodings[position]) for position in batch])
            for position, probabilities in zip(batch, rows, strict=True):
                places = _first_tokens(encodings[position].word_ids)
                names = _read_names(windows[position].words, places, probabilities)
                found[position] = [name for name in names if name.confidence >= min_confidence]

        pool: BatchThreadPool[Sequence[int]] = BatchThreadPool(self._threads)
        try:
            positions = range(len(windows))
            await pool.run(encode_batch, [positions[i : i + BATCH_TEXTS] for i in positions[::BATCH_TEXTS]])
            await pool.run(tag_batch, plan_batches([len(encoding.ids) for encoding in encodings], BATCH_TEXTS))
        finally:
            await pool.close()
        by_text: list[list[TaggedName]] = [[] for _ in texts]
        for window, in_window in zip(windows, found, strict=True):
            by_text[window.text_index] += in_window
        return by_text

    def _load(self) -> _LoadedModel:
        """Return the model. It is loaded at the first call, which takes a while: not in the event loop."""
        from rem.search.models.files import TAGGER, load_tokenizer, open_graph

        with self._loading:
            if self._loaded is None:
                self._loaded = _LoadedModel(load_tokenizer(), open_graph(TAGGER))
            return self._loaded


def _compute_probabilities(model: _LoadedModel, batch: Sequence[tuple[_Window, Encoding]]) -> NDArray[np.float32]:
    """Return the probability of each label for each token of each window."""
    import numpy as np

    shape = len(batch), max(len(encoding.ids) for _, encoding in batch)
    ids, cases, mask = (np.zeros(shape, dtype=np.int32) for _ in range(3))
    for row, (window, encoding) in enumerate(batch):
        ids[row, : len(encoding.ids)] = encoding.ids
        mask[row, : len(encoding.ids)] = 1
        word_cases = [_letter_case(word.group()) for word in window.words]
        cases[row, : len(encoding.ids)] = [0 if word is None else word_cases[word] for word in encoding.word_ids]
    feed = {"input_ids": ids, "cases": cases, "attention_mask": mask}
    (probabilities,) = model.session.run(["probabilities"], feed)
    return np.asarray(probabilities, dtype=np.float32)


@cache
def get_tagger() -> Tagger:
    """Return the tagger of this process."""
    return Tagger(thread_count(0))


def _split_windows(text_index: int, text: str) -> Iterator[_Window]:
    """Yield the words of a text in windows that end with a sentence where possible."""
    words = list(_WORD.finditer(text))
    start = 0
    while start < len(words):
        end = min(len(words), start + MAX_WINDOW_WORDS)
        if end < len(words):
            second_half = range(end, start + MAX_WINDOW_WORDS // 2, -1)
            end = next((place for place in second_half if _ends_sentence(text, words, place)), end)
        yield _Window(text_index, words[start:end])
        start = end


def _ends_sentence(text: str, words: Sequence[re.Match[str]], place: int) -> bool:
    """Return whether a sentence or a line ends before the word at `place`."""
    last = words[place - 1]
    return last.group() in _SENTENCE_END or "\n" in text[last.end() : words[place].start()]


def _letter_case(word: str) -> int:
    """Return 0 for lower case and no letters, 1 for Capitalised, 2 for CAPITALS, 3 for mIxed."""
    if word.lower() == word:
        return 0
    if word[:1].isupper() and word[1:].lower() == word[1:]:
        return 1
    return 2 if word.upper() == word else 3


def _first_tokens(word_ids: Sequence[int | None]) -> list[int]:
    """Return the place of the first token of each word. Words after the last token have none."""
    places: list[int] = []
    for place, word in enumerate(word_ids):
        if word is not None and word == len(places):
            places.append(place)
    return places


def _read_names(
    words: Sequence[re.Match[str]], places: Sequence[int], probabilities: NDArray[np.float32]
) -> Iterator[TaggedName]:
    """Yield the names in a window, from the probabilities of each token's labels."""
    rows = probabilities[list(places)]
    labels = rows.argmax(axis=1)
    start = 0
    while start < len(places):
        kind = (int(labels[start]) + 1) // 2
        if kind == 0:
            start += 1
            continue
        end = start + 1
        while end < len(places) and labels[end] == 2 * kind:
            end += 1
        yield _make_name(words[start:end], kind, rows[start:end])
        start = end


def _make_name(words: Sequence[re.Match[str]], kind: int, rows: NDArray[Any]) -> TaggedName:
    while len(words) > 1 and (words[0].group().lower() in _TITLES or not words[0].group()[0].isalnum()):
        words, rows = words[1:], rows[1:]
    start, end = words[0].start(), words[-1].end()
    confidence = float(rows[:, 2 * kind - 1 : 2 * kind + 1].sum(axis=1).min())
    return TaggedName(words[0].string[start:end], KINDS[kind - 1], start, end, confidence)

"""The reader: one small model that reads questions, rows and messages.

In one run over a question and a row it says how relevant the row is, whether it holds the answer, and which sentence
answers. Of a message it says what kind it is, and whether it continues the one before it. The model orders rows only
together with the score of SEARCH: alone it chooses worse. Whether a newer text replaces an older one is read by a
model of its own, which does it better.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any

from rem.errors import EmbeddingMisconfiguredError, EmbeddingUnavailableError, RerankerError
from rem.models.message import MessageKind
from rem.search.cross_encoder import CrossEncoder
from rem.search.cross_encoder_loader import REPLACEMENT_MODEL, load_replacement_model
from rem.search.models.files import FOLDER, READER, SessionWithWords, load_tokenizer, open_graph
from rem.search.thread_pool import BatchThreadPool, plan_batches
from rem.text import clean_text, find_sentence_spans

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

MODEL = "rem-read-1"
PAIR_HEAD = ("relevance", "answers", "replaces")
"""The outputs of the head that reads a question with a row, as logits. The last one is of two texts; `replaces` asks a
model of its own instead, which finds more."""
MAX_TOKENS = 256
MAX_QUESTION_TOKENS = 62
MAX_SPAN_TOKENS = 40
MAX_READ_CHARS = 32 * MAX_TOKENS
"""Only the start of a long text is tokenised: few tokens have more than 32 characters."""
MAX_LONG_ROWS = 8
LONG_ROW_CHARS = 400
"""Reading takes some 30 ms for a long row: no more than `MAX_LONG_ROWS` of them are read for a question."""
MAX_REPLACED_CHARS = 400
REPLACEMENT_LOGIT = 1.0
"""The logit at which a newer text is as likely to replace the older one as not. A wrong mark is worse than none."""
BATCH_PAIRS = 64
TOKENIZER_BATCH_PAIRS = 32
_CLS, _SEP = 101, 102
_BEFORE = "{} | "
_LATER = " | later: "
"""What stands between the message before and a row, and between an older and a newer text. Training writes the same."""
_WRAPPED_LINE_CHARS = 40
_UNFINISHED_LINE = re.compile(r"[\w,;\-–]\s*\Z")
_match_lower_start = re.compile(r"\s*[a-zà-ÿ(]").match


class MessageType(StrEnum):
    """What a message is. The first seven are questions, by what answers them."""

    FACT = "fact"
    LIST = "list"
    COUNT = "count"
    SUM = "sum"
    MAXIMUM = "maximum"
    MINIMUM = "minimum"
    YES_NO = "yes_no"
    STATEMENT = "statement"
    SMALL_TALK = "small_talk"
    COMMAND = "command"


QUESTION_TYPES = tuple(MessageType)[:7]
_OTHER_KINDS = {
    MessageType.STATEMENT: MessageKind.STATEMENT,
    MessageType.SMALL_TALK: MessageKind.SMALL_TALK,
    MessageType.COMMAND: MessageKind.COMMAND,
}
MESSAGE_HEAD = (*MessageType, "continues")
"""The outputs of the head that reads a message, as logits; the last one alone, the others together."""


@dataclass(frozen=True, slots=True)
class RowText:
    """What is read of a row. `heading` is the speaker of a message or the title of a note."""

    text: str
    heading: str = ""
    before: str = ""
    """The message before it in its session."""


@dataclass(frozen=True, slots=True)
class RowReading:
    """What the reader says about a row, for one question. Offsets are places in `RowText.text`."""

    relevance: float
    """A logit. Add it to the score of SEARCH with a small weight."""
    answers: float
    """How sure it is that the row holds the answer, from 0 to 1."""
    sentence: tuple[int, int]
    """The sentence with the best span."""
    span: tuple[int, int]
    """The likeliest piece of the answer. It is often cut too short or too long: show the sentence."""
    span_score: float
    """The log probability of the span's start and end among all tokens of the row."""


@dataclass(frozen=True, slots=True)
class MessageReading:
    """What the reader says about a message."""

    types: Mapping[MessageType, float]
    """The probability of each type."""
    continues: float
    """How sure it is that the message is understood only with the one before it, from 0 to 1."""

    @property
    def type(self) -> MessageType:
        """The likeliest type."""
        return max(self.types, key=self.types.__getitem__)

    @property
    def question(self) -> float:
        """How sure it is that the message asks, whatever it asks for."""
        return sum(self.types[kind] for kind in QUESTION_TYPES)

    @property
    def kind(self) -> MessageKind:
        """What the message is for the memory of its author."""
        others = {kind: self.types[message_type] for message_type, kind in _OTHER_KINDS.items()}
        best = max(others, key=others.__getitem__)
        return MessageKind.QUESTION if self.question > others[best] else best


class Reader:
    """Reads in threads. The model is loaded at its first use. Methods raise RerankerError if it fails."""

    def __init__(self, load: Callable[[], LoadedReader] | None = None, *, threads: int = 1) -> None:
        self.name = MODEL
        self._read_files = load or load_reader
        self._workers: BatchThreadPool[Sequence[int]] = BatchThreadPool(threads)
        self._replacements = CrossEncoder(REPLACEMENT_MODEL, load_replacement_model, threads=threads)
        self._loading = threading.Lock()
        self._loaded: LoadedReader | None = None
        self._closed = False

    async def read(self, question: str, rows: Sequence[RowText]) -> list[RowReading | None]:
        """Return what each row says about a question; None for long rows beyond the first `MAX_LONG_ROWS`."""
        places = list(_choose_read(rows))
        texts = [_join_row(rows[place]) for place in places]
        found: list[RowReading | None] = [None] * len(rows)
        outputs = await self._run([(question, text) for text, _ in texts])
        for place, (_, start), output in zip(places, texts, outputs, strict=True):
            found[place] = _to_reading(rows[place].text, start, output)
        return found

    async def scores(self, question: str, texts: Sequence[str]) -> list[float]:
        """Return the relevance of each text as a logit, in their order."""
        outputs = await self._run([(question, clean_text(text[:MAX_READ_CHARS], " ")) for text in texts])
        return [float(output.pair[PAIR_HEAD.index("relevance")]) for output in outputs]

    async def replaces(self, question: str, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Return how sure it is that the newer text replaces the older one as an answer, from 0 to 1.

        A pair is the newer and the older text. The reader does not know which one is newer.
        """
        logits = await self._replacements.scores(question, [join_replaced(newer, older) for newer, older in pairs])
        return [_sigmoid(logit - REPLACEMENT_LOGIT) for logit in logits]

    async def classify(self, message: str, previous: str | None = None) -> MessageReading:
        """Return what kind a message is, and whether it continues the one before it."""
        before = clean_text(previous[:MAX_READ_CHARS], " ") if previous else None
        (output,) = await self._run([(message, before)])
        return to_message_reading(output.message)

    async def close(self) -> None:
        """Release the threads and the memory of the model."""
        self._closed = True
        await self._workers.close()
        await self._replacements.close()
        self._loaded = None

    async def _run(self, pairs: Sequence[tuple[str, str | None]]) -> list[Output]:
        """Return the outputs of the model for questions and texts, in their order."""
        encoded: dict[int, EncodedPair] = {}
        outputs: dict[int, Output] = {}

        def tokenise(places: Sequence[int]) -> None:
            model = self._load()
            encoded.update((place, model.encode(*pairs[place])) for place in places)

        def run(places: Sequence[int]) -> None:
            found = self._load().run([encoded[place] for place in places])
            outputs.update(zip(places, found, strict=True))

        every = range(len(pairs))
        try:
            batches = [every[start : start + TOKENIZER_BATCH_PAIRS] for start in every[::TOKENIZER_BATCH_PAIRS]]
            await self._workers.run(tokenise, batches)
            lengths = [len(encoded[place].ids) for place in every]
            await self._workers.run(run, plan_batches(lengths, BATCH_PAIRS))
        except (RuntimeError, asyncio.CancelledError) as error:
            # Closing cancels calls that wait for a thread. That is an error for the caller, not a cancellation.
            task = asyncio.current_task()
            if self._closed and not (task and task.cancelling()):
                raise RerankerError(f"The reader {self.name} was closed.") from error
            raise
        return [outputs[place] for place in every]

    def _load(self) -> LoadedReader:
        with self._loading:
            if self._loaded is None:
                self._loaded = self._read_files()
            return self._loaded


@dataclass(frozen=True, slots=True)
class EncodedPair:
    """The tokens of a question and of a text, with the offsets of those of the text."""

    ids: list[int]
    first: int
    """The position of the first token of the text."""
    offsets: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Output:
    """What the heads say about one pair; `span` of the tokens of the text, whose offsets are `offsets`."""

    pair: NDArray[np.float32]
    span: NDArray[np.float32]
    message: NDArray[np.float32]
    offsets: list[tuple[int, int]]


class LoadedReader:
    """The tokenizer and the graph of the reader. `run` may be called in several threads."""

    def __init__(self, session: SessionWithWords) -> None:
        self._session = session
        self._tokenizer: Tokenizer = load_tokenizer()
        self._tokenizer.no_truncation()
        # Special tokens in a text are ordinary words: otherwise a text with [SEP] in it would end there.
        self._tokenizer.encode_special_tokens = True

    def encode(self, question: str, text: str | None) -> EncodedPair:
        """Return `[CLS] question [SEP] text [SEP]`, of which long texts are cut at their ends."""
        asked = self._tokenizer.encode(clean_text(question[:MAX_READ_CHARS], " "), add_special_tokens=False)
        head = [_CLS, *asked.ids[:MAX_QUESTION_TOKENS], _SEP]
        if text is None:
            return EncodedPair(head, len(head), [])
        size = MAX_TOKENS - len(head) - 1
        encoded = self._tokenizer.encode(text[:MAX_READ_CHARS], add_special_tokens=False)
        return EncodedPair([*head, *encoded.ids[:size], _SEP], len(head), encoded.offsets[:size])

    def run(self, pairs: Sequence[EncodedPair]) -> list[Output]:
        """Return the outputs of the graph."""
        import numpy as np

        shape = (len(pairs), max(len(pair.ids) for pair in pairs))
        feed = {name: np.zeros(shape, dtype=np.int32) for name in ("input_ids", "token_type_ids", "attention_mask")}
        for row, pair in enumerate(pairs):
            size = len(pair.ids)
            feed["input_ids"][row, :size] = pair.ids
            feed["token_type_ids"][row, pair.first : size] = 1
            feed["attention_mask"][row, :size] = 1
        try:
            pair_out, span_out, message_out = self._session.run(["pair", "span", "message"], feed)
        except Exception as error:  # its errors have no common root but Exception
            raise RerankerError(f"{FOLDER / READER} failed: {error}") from error
        return [
            Output(
                pair_out[row],
                span_out[row, pair.first : pair.first + len(pair.offsets)],
                message_out[row],
                pair.offsets,
            )
            for row, pair in enumerate(pairs)
        ]


@cache
def load_reader(folder: Path = FOLDER) -> LoadedReader:
    """Load the reader of the package, once for the whole process. Raise RerankerError if its files are damaged."""
    try:
        return LoadedReader(open_graph(READER, folder))
    except (EmbeddingMisconfiguredError, EmbeddingUnavailableError) as error:
        raise RerankerError(str(error)) from error


def join_replaced(newer: str, older: str) -> str:
    """Return two texts as the reader was trained to compare them."""
    return clean_text(older[:MAX_REPLACED_CHARS] + _LATER + newer[:MAX_REPLACED_CHARS], " ")


def join_row(row: RowText) -> tuple[str, int]:
    """Return a row as the reader was trained to read it, and where its own text begins."""
    before = _BEFORE.format(row.before) if row.before else ""
    head = f"{before}{row.heading}: " if row.heading else before
    return head + row.text, len(head)


def _join_row(row: RowText) -> tuple[str, int]:
    """Return the row for the tokenizer. Characters that it refuses are replaced one by one, so that offsets stay."""
    text, start = join_row(row)
    return clean_text(text[:MAX_READ_CHARS], " "), start


def _choose_read(rows: Iterable[RowText]) -> Iterator[int]:
    """Yield the places of the rows to read."""
    long_rows = 0
    for place, row in enumerate(rows):
        long_rows += len(row.text) > LONG_ROW_CHARS
        if len(row.text) <= LONG_ROW_CHARS or long_rows <= MAX_LONG_ROWS:
            yield place


def _to_reading(text: str, start: int, output: Output) -> RowReading:
    """Return the reading of a row whose own text begins at `start` of what was read."""
    first, last, score = _find_best_span(output, start)
    span = (max(0, first - start), max(0, min(last - start, len(text))))
    relevance, answers, _ = output.pair
    return RowReading(float(relevance), _sigmoid(answers), find_sentence(text, *span), span, score)


def _find_best_span(output: Output, start: int) -> tuple[int, int, float]:
    """Return the likeliest span of at most MAX_SPAN_TOKENS at or after an offset, and its log probability."""
    import numpy as np

    inside = [place for place, (left, right) in enumerate(output.offsets) if left >= start and right > left]
    if not inside:
        return start, start, -np.inf
    logits = output.span - _log_sum_exp(output.span)
    begins, ends = logits[inside, 0], logits[inside, 1]
    sums = begins[:, None] + ends[None, :]
    distance = np.arange(len(inside))[None, :] - np.arange(len(inside))[:, None]
    sums[(distance < 0) | (distance >= MAX_SPAN_TOKENS)] = -np.inf
    begin, end = divmod(int(sums.argmax()), len(inside))
    return output.offsets[inside[begin]][0], output.offsets[inside[end]][1], float(sums[begin, end])


def find_sentence(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the offsets of the sentence in which a span begins, without white space; of a wrapped line, all of it."""
    found = [(0, len(text)), *find_reading_sentences(text)]
    left, right = next((sentence for sentence in found[1:] if sentence[1] > start), found[-1])
    return left, max(right, min(end, len(text)))


def find_reading_sentences(text: str) -> Iterator[tuple[int, int]]:
    """Yield the offsets of each sentence without white space. A line that was wrapped is no end of a sentence."""
    held: tuple[int, int] | None = None
    for start, end in find_sentence_spans(text):
        piece = text[start:end]
        stripped = (start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip()))
        if stripped[0] >= stripped[1]:
            continue
        if held is not None and _is_wrapped(text, held, stripped):
            held = (held[0], stripped[1])
            continue
        if held is not None:
            yield held
        held = stripped
    if held is not None:
        yield held


def _is_wrapped(text: str, held: tuple[int, int], following: tuple[int, int]) -> bool:
    """Return whether a line break inside a sentence separates two spans."""
    between = text[held[1] : following[0]]
    line = text[text.rfind("\n", 0, held[1]) + 1 : held[1]]
    return (
        between.count("\n") == 1
        and len(line) >= _WRAPPED_LINE_CHARS
        and _UNFINISHED_LINE.search(line) is not None
        and _match_lower_start(text, following[0]) is not None
    )


def to_message_reading(logits: NDArray[np.float32]) -> MessageReading:
    """Return the probabilities of the outputs of the head for messages."""
    import numpy as np

    kinds = logits[: len(MessageType)].astype(np.float64)
    shares = np.exp(kinds - _log_sum_exp(kinds))
    types = {kind: float(share) for kind, share in zip(MessageType, shares, strict=True)}
    return MessageReading(types, _sigmoid(logits[len(MessageType)]))


def _log_sum_exp(values: NDArray[Any]) -> Any:
    """Return the logarithm of the sum over the first axis."""
    import numpy as np

    largest = values.max(axis=0)
    return largest + np.log(np.exp(values - largest).sum(axis=0))


def _sigmoid(logit: Any) -> float:
    import numpy as np

    return float(1 / (1 + np.exp(-float(logit))))

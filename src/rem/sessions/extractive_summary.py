"""Summarize messages by extracting their most informative sentences, without a language model."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rem.models import Message, Role
from rem.sessions.message import message_key
from rem.sessions.tokens import count_tokens, truncate_to_tokens
from rem.text import STOP_WORDS, collapse_spaces, split_sentences

Summarizer: TypeAlias = Callable[[str | None, list[Message]], Awaitable[str]]
"""Returns one summary of the previous summary, if there is one, and the messages after it."""

WORD_PATTERN = re.compile(r"\w{3,}")
SUMMARY_LINE_PATTERN = re.compile(r"^- (user|assistant|system): (.*) \[(\S+)\]$", re.MULTILINE)
MAX_SENTENCE_CHARS = 240
MIN_LINE_TOKENS = 30
"""The key in a line alone takes most of these tokens, so less room is not worth a line."""
MAX_SENTENCES_PER_MESSAGE = 40
"""Only the first sentences are read: what matters is rarely further down."""
IMPORTANT_FACTOR = 2.0
USER_FACTOR = 1.5

DECISION_PATTERNS = (
    r"\b(?:we|i)(?:'ve| have| finally)? (?:decided|agreed|chose|settled on|opted)\b",
    r"\b(?:we|i)(?:'ll| will) (?:go with|use|stick (?:with|to)|switch to)\b",
    r"\b(?:the |our |my )?(?:final )?decision(?: is|:| was)",
    r"\blet(?:'s|’s| us) (?:go with|use|stick (?:with|to)|switch to)\b",
    r"\b(?:approved|signed off|deal)\b[.!]",
)
KEY_FACT_PATTERNS = (
    r"\b(?:remember|note|keep in mind|don'?t forget)(?: that|:| this)",
    r"\bfor the record\b",
    r"\b(?:it is |it's |this is |very )?important(?:ly)?(?: that|:|,| to (?:know|remember|note))",
    r"\bmy (?:full )?(?:name|birthday|address|phone(?: number)?|e-?mail(?: address)?|allerg(?:y|ies)|job|employer|"
    r"wife|husband|partner|daughter|son|doctor) (?:is|are)\b",
    r"\bi(?:'m| am) (?:allergic|vegetarian|vegan|diabetic|pregnant)\b",
    r"\bi (?:always|never) \w+",
    r"\bthe deadline (?:is|was moved)\b",
    r"\bdue (?:on|by) \w+",
)
IMPORTANT_PATTERN = re.compile("|".join((*DECISION_PATTERNS, *KEY_FACT_PATTERNS)), re.IGNORECASE)
MAX_IMPORTANT_SCAN_CHARS = 20_000
"""Important facts come early, and a pasted book must not keep the process busy."""


@dataclass(frozen=True, slots=True)
class _Sentence:
    role: str
    text: str
    key: str

    @property
    def line(self) -> str:
        return f"- {self.role}: {self.text} [{self.key}]"


def is_important(text: str) -> bool:
    """Return True if the text states a decision or a key fact, by common English phrases."""
    return IMPORTANT_PATTERN.search(text[:MAX_IMPORTANT_SCAN_CHARS].replace("’", "'")) is not None


def extract_summary(previous: str | None, messages: Sequence[Message], max_tokens: int) -> str:
    """Return the most informative sentences of the previous summary and the messages, in order, each with its key.

    Text of the previous summary that a language model wrote is kept in front of them, in at most half of the tokens.
    """
    prose = truncate_to_tokens(_extract_prose(previous), max_tokens // 2)
    sentences = [*_parse_summary_lines(previous), *_split_messages(messages)]
    word_weights = _weigh_words(sentences)
    # Ties go to the earlier sentence, so that the result is deterministic.
    ranked = sorted(
        range(len(sentences)), key=lambda position: (-_weigh_sentence(sentences[position], word_weights), position)
    )
    chosen, remaining_tokens = [], max_tokens - (count_tokens(prose) + 1 if prose else 0)
    for position in ranked:
        if remaining_tokens < MIN_LINE_TOKENS:
            break
        line_tokens = count_tokens(sentences[position].line) + 1
        if line_tokens <= remaining_tokens:
            remaining_tokens -= line_tokens
            chosen.append(position)
    return "\n".join([*([prose] if prose else []), *(sentences[position].line for position in sorted(chosen))])


def _extract_prose(previous: str | None) -> str:
    """Return the lines of a summary that are not extracted sentences: a language model wrote them."""
    lines = (previous or "").splitlines()
    return "\n".join(line for line in lines if line.strip() and not SUMMARY_LINE_PATTERN.fullmatch(line))


def _parse_summary_lines(previous: str | None) -> Iterator[_Sentence]:
    for role, text, key in SUMMARY_LINE_PATTERN.findall(previous or ""):
        yield _Sentence(role, text, key)


def _split_messages(messages: Iterable[Message]) -> Iterator[_Sentence]:
    """Yield the sentences of the messages, without tool messages and repetitions."""
    seen: set[str] = set()
    for message in messages:
        if message.role == Role.TOOL:
            continue
        key = message_key(message.session_id, message.message_index)
        for sentence in split_sentences(message.content)[:MAX_SENTENCES_PER_MESSAGE]:
            text = collapse_spaces(sentence)[:MAX_SENTENCE_CHARS]
            if WORD_PATTERN.search(text) and text not in seen:
                seen.add(text)
                yield _Sentence(message.role.value, text, key)


def _content_words(text: str) -> list[str]:
    return [word for word in WORD_PATTERN.findall(text.lower()) if word not in STOP_WORDS]


def _weigh_words(sentences: Sequence[_Sentence]) -> dict[str, float]:
    """Return a weight for each word: high if several sentences have it, low if nearly all of them have it."""
    counts = Counter(word for sentence in sentences for word in set(_content_words(sentence.text)))
    return {word: math.log1p(count) * math.log((len(sentences) + 1) / count) for word, count in counts.items()}


def _weigh_sentence(sentence: _Sentence, word_weights: dict[str, float]) -> float:
    words = set(_content_words(sentence.text))
    weight = sum(word_weights[word] for word in words) / math.sqrt(len(words) + 3)
    if sentence.role != Role.ASSISTANT.value:
        weight *= USER_FACTOR
    if sentence.text.endswith(("?", "？")):
        weight /= USER_FACTOR
    return weight * (IMPORTANT_FACTOR if is_important(sentence.text) else 1)

"""Summaries of what has left the window: by a language model, or by the sentences that say most."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rem.memory.message import message_key
from rem.memory.tokens import count_tokens, truncate_to_tokens
from rem.models import Message, Role

_DECISION = (
    r"\b(?:we|i)(?:'ve| have| finally)? (?:decided|agreed|chose|settled on|opted)\b",
    r"\b(?:we|i)(?:'ll| will) (?:go with|use|stick (?:with|to)|switch to)\b",
    r"\b(?:the |our |my )?(?:final )?decision(?: is|:| was)",
    r"\blet(?:'s|’s| us) (?:go with|use|stick (?:with|to)|switch to)\b",
    r"\b(?:approved|signed off|deal)\b[.!]",
)
_KEY_FACT = (
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
_PATTERN = re.compile("|".join((*_DECISION, *_KEY_FACT)), re.IGNORECASE)
_READ = 20_000
"""In characters: what matters is said early, and a pasted book must not keep the process busy."""


def is_important(text: str) -> bool:
    """Whether the text says a decision or a key fact."""
    return _PATTERN.search(text[:_READ].replace("’", "'")) is not None


Summarizer: TypeAlias = Callable[[str | None, list[Message]], Awaitable[str]]
"""Makes one summary of the one so far, if there is one, and of what was said since."""

_SENTENCE = re.compile(r"\S[^\n]*?(?:[.!?]+(?=\s|$)|[。！？]+|$)", re.MULTILINE)
_WORD = re.compile(r"\w{3,}")
_LINE = re.compile(r"^- (user|assistant|system): (.*) \[(\S+)\]$", re.MULTILINE)
_LONGEST_SENTENCE = 240
_SHORTEST_LINE = 30
"""In tokens; the key alone takes most of them."""
_MOST_SENTENCES = 40
"""Of one message, from its beginning: what matters is rarely further down."""
_IMPORTANT_FACTOR = 2.0
_USER_FACTOR = 1.5
_COMMON = re.compile(
    r"(?:the|and|for|are|was|were|you|your|with|that|this|have|has|had|not|but|from|they|what|when|where|which|who|will|"
    r"would|can|could|should|about|there|their|then|than|them|its|our|out|all|any|how|did|does|just|also|into|here|some|"
    r"more|very|please|thanks|thank|okay|yes|sure)"
)


@dataclass(frozen=True, slots=True)
class _Sentence:
    role: str
    text: str
    key: str

    @property
    def line(self) -> str:
        return f"- {self.role}: {self.text} [{self.key}]"


def extract_summary(previous: str | None, messages: Sequence[Message], most_tokens: int) -> str:
    """The sentences of an earlier summary and of some messages that say most, in their order, each with its key.

    What a language model wrote before is kept in front of them, within half of the tokens.
    """
    prose = truncate_to_tokens(_prose(previous), most_tokens // 2)
    sentences = [*_sentences_before(previous), *_sentences(messages)]
    weights = _weights(sentences)
    # The earlier of two that weigh the same comes first, so that the choice does not depend on chance.
    ranked = sorted(range(len(sentences)), key=lambda place: (-_weight(sentences[place], weights), place))
    chosen, left = [], most_tokens - (count_tokens(prose) + 1 if prose else 0)
    for place in ranked:
        if left < _SHORTEST_LINE:
            break
        tokens = count_tokens(sentences[place].line) + 1
        if tokens <= left:
            left -= tokens
            chosen.append(place)
    return "\n".join([*([prose] if prose else []), *(sentences[place].line for place in sorted(chosen))])


def _prose(previous: str | None) -> str:
    lines = (previous or "").splitlines()
    return "\n".join(line for line in lines if line.strip() and not _LINE.fullmatch(line))


def _sentences_before(previous: str | None) -> Iterator[_Sentence]:
    for role, text, key in _LINE.findall(previous or ""):
        yield _Sentence(role, text, key)


def _sentences(messages: Iterable[Message]) -> Iterator[_Sentence]:
    seen: set[str] = set()
    for message in messages:
        if message.role == Role.TOOL:
            continue
        key = message_key(message.session_id, message.message_index)
        for found in _SENTENCE.findall(message.content)[:_MOST_SENTENCES]:
            text = " ".join(found.split())[:_LONGEST_SENTENCE]
            if _WORD.search(text) and text not in seen:
                seen.add(text)
                yield _Sentence(message.role.value, text, key)


def _words(text: str) -> list[str]:
    return [word for word in _WORD.findall(text.lower()) if not _COMMON.fullmatch(word)]


def _weights(sentences: Sequence[_Sentence]) -> dict[str, float]:
    """How much a word tells: one that comes back is what all this is about, one that is everywhere says little."""
    within = Counter(word for sentence in sentences for word in set(_words(sentence.text)))
    return {word: math.log1p(count) * math.log((len(sentences) + 1) / count) for word, count in within.items()}


def _weight(sentence: _Sentence, weights: dict[str, float]) -> float:
    words = set(_words(sentence.text))
    weight = sum(weights[word] for word in words) / math.sqrt(len(words) + 3)
    if sentence.role != Role.ASSISTANT.value:
        weight *= _USER_FACTOR
    if sentence.text.endswith(("?", "？")):
        weight /= _USER_FACTOR
    return weight * (_IMPORTANT_FACTOR if is_important(sentence.text) else 1)

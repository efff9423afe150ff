"""Summary: the few sentences of an episode that say most of what it was about."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rem.dreaming.sentences import find_sentence_spans
from rem.dreaming.text.secrets import mask_secrets
from rem.dreaming.text.words import compute_rarity, extract_content_words, has_digit

MAX_SUMMARY_CHARS = 600
MAX_SENTENCES = 4
MAX_SENTENCE_CHARS = 280
_READ_OF_TEXT = 20_000
"""In characters: so much of one text is looked through."""
_ASSISTANT_SHARE = 0.3
_QUESTION_SHARE = 0.55
_FIGURE_BONUS, _NAME_BONUS, _DECISION_BONUS = 0.5, 0.4, 0.8
_LEAST_SHARE = 0.2
"""Of the best sentence's score: what says less is left out, however much room there is."""
_REPETITION = 0.6
"""Of its words: a sentence that shares more with a chosen one adds too little."""
_MARKUP = re.compile(
    r"```.*?(?:```|\Z)|(?P<code>`[^`\n]{1,300}`)|^\s*(?:[#>*+|•-]+|\d+[.)])\s+"
    # Signs of emphasis stand at the edge of a word; inside of one they belong to it: DEFAULT_MODEL.
    r"|(?<!\w)(?:\*{1,3}|_)(?=[^\s*_])|(?<=[^\s*_])(?:\*{1,3}|_)(?!\w)",
    re.DOTALL | re.MULTILINE,
)
_WIKI_LINK = re.compile(r"!?\[\[(?P<target>[^\[\]|\n]{1,500})(?:\|(?P<label>[^\[\]\n]{0,500}))?\]\]")
_TABLE_ROW = re.compile(r"^[ \t>]*\|[^\n]*\|[ \t]*$", re.MULTILINE)
_REMARK = re.compile(r"\[[^\]\n]{0,300}\](?!\()")
_SPACES = re.compile(r"\s+")
_NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]+")
_DECISION = re.compile(
    r"\b(?:decid|agree[ds]? (?:to|on)|settled on|chose|we(?:'ll| will) (?:go|use)|going with|plan(?:s|ned)? to|booked|"
    r"scheduled|signed|bought|moved|started|finished|shipped|launched|got (?:a|the|married|engaged)|my name is)",
    re.IGNORECASE,
)
_BOILERPLATE = re.compile(
    r"^(?:sure|certainly|of course|absolutely|great|got it|no problem|you're welcome|happy to|i'd be happy|i'm happy|"
    r"i can help|let me know|feel free|is there anything|how can i|hope this|hope that|i'm here|as an ai|"
    r"here (?:is|are)|that's (?:great|awesome|wonderful|amazing|so)|thanks?|thank you|hi|hello|hey|"
    r"good (?:morning|evening|night)|noted|understood|i(?:'ll| will) (?:remember|remind|keep|note)|glad)\b",
    re.IGNORECASE,
)
_BOILERPLATE_SHARE = 0.3


@dataclass(frozen=True, slots=True)
class Utterance:
    """What somebody said or wrote."""

    text: str
    speaker: str | None = None
    """Who it was, where that should be read."""
    is_assistant: bool = False


@dataclass(frozen=True, slots=True)
class _Sentence:
    place: int
    text: str
    speaker: str | None
    words: frozenset[str]
    score: float


def summarize(said: Sequence[Utterance]) -> str:
    """Two to four sentences in their order, what people state before what assistants answer; empty if nothing says
    anything."""
    sentences = _score_sentences(said)
    chosen: list[_Sentence] = []
    room = MAX_SUMMARY_CHARS
    least = _LEAST_SHARE * max((sentence.score for sentence in sentences), default=0.0)
    for sentence in sorted(sentences, key=lambda s: (-s.score, s.place)):
        if len(chosen) == MAX_SENTENCES or sentence.score <= least:
            break
        length = len(sentence.text) + len(sentence.speaker or "") + 3
        if length <= room and not any(_repeats(sentence, other) for other in chosen):
            chosen.append(sentence)
            room -= length
    return _join(sorted(chosen, key=lambda s: s.place))


def extract_sentences(text: str) -> list[str]:
    """The sentences of a text, without markup, code, rows of tables, remarks in brackets, and secrets."""
    plain = _WIKI_LINK.sub(_link_text, _TABLE_ROW.sub("", mask_secrets(text[:_READ_OF_TEXT])))
    plain = _MARKUP.sub(_remove_markup, _REMARK.sub(" ", plain))
    parts = (_SPACES.sub(" ", plain[start:end]).strip() for start, end in find_sentence_spans(plain))
    return [part for part in parts if part]


def _link_text(found: re.Match[str]) -> str:
    """What is read of a link in a wiki: its label, else what it leads to."""
    return (found["label"] or found["target"]).strip()


def _remove_markup(found: re.Match[str]) -> str:
    """Nothing in place of a mark of emphasis, a space in place of code and marks of lists; a name of code stays."""
    if found["code"]:
        return found["code"]
    return "" if set(found.group()) <= {"*", "_"} else " "


def _score_sentences(said: Sequence[Utterance]) -> list[_Sentence]:
    split = [(utterance, sentence) for utterance in said for sentence in extract_sentences(_own_words(utterance))]
    # That they call each other by name says nothing.
    names = {word for utterance in said for word in extract_content_words(utterance.speaker or "")}
    words = [frozenset(extract_content_words(sentence)) - names for _, sentence in split]
    spread = Counter(word for found in words for word in found)
    return [
        _Sentence(place, _shorten(text), utterance.speaker, found, _score(utterance, text, found, spread))
        for place, ((utterance, text), found) in enumerate(zip(split, words, strict=True))
    ]


def _own_words(utterance: Utterance) -> str:
    """What was said, without the name that some write before it."""
    speaker, text = utterance.speaker, utterance.text.lstrip()
    if speaker and text[: len(speaker) + 1].lower() == f"{speaker.lower()}:":
        return text[len(speaker) + 1 :]
    return text


def _score(utterance: Utterance, text: str, words: frozenset[str], spread: Counter[str]) -> float:
    """How much a sentence says: rare words, those that come again, figures, names and decisions."""
    if not words:
        return 0.0
    weight: float = sum(compute_rarity(word) * min(spread[word], 4) ** 0.5 for word in words) / (len(words) + 4) ** 0.5
    weight += _FIGURE_BONUS * has_digit(text) + _NAME_BONUS * (_NAME.search(text) is not None)
    if utterance.is_assistant:
        weight *= _ASSISTANT_SHARE
    elif _DECISION.search(text):
        weight += _DECISION_BONUS
    if text.endswith(("?", "？")):
        weight *= _QUESTION_SHARE
    if _BOILERPLATE.match(text):
        weight *= 0 if utterance.is_assistant else _BOILERPLATE_SHARE
    return weight


def _repeats(sentence: _Sentence, other: _Sentence) -> bool:
    smaller = min(len(sentence.words), len(other.words))
    return len(sentence.words & other.words) > _REPETITION * smaller


def _shorten(text: str) -> str:
    if len(text) <= MAX_SENTENCE_CHARS:
        return text
    cut = text[:MAX_SENTENCE_CHARS]
    end = cut.rfind(" ")
    return (cut[:end] if end > MAX_SENTENCE_CHARS // 2 else cut).rstrip(" ,;:") + " …"


def _join(sentences: Sequence[_Sentence]) -> str:
    """The sentences as one text; who speaks is said where it changes."""
    parts, speaker = [], None
    for sentence in sentences:
        text = sentence.text if sentence.text[-1] in '.!?…。！？:"”' else sentence.text + "."
        text = text[0].upper() + text[1:]
        parts.append(f"{sentence.speaker}: {text}" if sentence.speaker and sentence.speaker != speaker else text)
        speaker = sentence.speaker
    return " ".join(parts)

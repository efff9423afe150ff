"""Summary: the few sentences of an episode that say most about it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rem.answers.sources import unwrap_lines
from rem.dreams.text.secrets import mask_secrets
from rem.dreams.text.words import compute_rarity, extract_content_words, has_digit
from rem.rules import alternatives
from rem.text import collapse_spaces, find_sentence_spans

MAX_SUMMARY_CHARS = 600
MAX_SENTENCES = 4
MAX_SENTENCE_CHARS = 280
MAX_TEXT_CHARS = 20_000
"""Characters of one text that are read."""
QUESTION_WEIGHT = 0.55
BOILERPLATE_WEIGHT = 0.3
DIGIT_BONUS = 0.5
NAME_BONUS = 0.4
DECISION_BONUS = 0.8
MIN_SCORE_SHARE = 0.2
"""Of the best sentence's score: a sentence with less is left out, even if there is room."""
MAX_WORD_OVERLAP = 0.6
"""A sentence that shares more of its words with a selected one adds too little."""
_MARKUP = re.compile(
    r"```.*?(?:```|\Z)|(?P<code>`[^`\n]{1,300}`)|^[^\S\n]*(?:[#>*+|•-]+|\d+[.)])\s+"
    # Emphasis stands at the edge of a word; inside of a word the signs belong to it: DEFAULT_MODEL.
    r"|(?<!\w)(?:\*{1,3}|_)(?=[^\s*_])|(?<=[^\s*_])(?:\*{1,3}|_)(?!\w)",
    re.DOTALL | re.MULTILINE,
)
_WIKI_LINK = re.compile(r"!?\[\[(?P<target>[^\[\]|\n]{1,500})(?:\|(?P<label>[^\[\]\n]{0,500}))?\]\]")
_TABLE_ROW = re.compile(r"^[ \t>]*\|[^\n]*\|[ \t]*$", re.MULTILINE)
_ACTION_IN_BRACKETS = re.compile(r"\[[^\]\n]{0,300}\](?!\()")
_NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]+")
_DECISION = re.compile(rf"\b{alternatives('summary.decisions')}", re.IGNORECASE)
_BOILERPLATE = re.compile(rf"^{alternatives('summary.boilerplate')}\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Utterance:
    """A text of one author."""

    text: str
    speaker: str | None = None
    """Name of the author, if the summary should contain it."""


@dataclass(frozen=True, slots=True)
class _ScoredSentence:
    position: int
    text: str
    speaker: str | None
    words: frozenset[str]
    score: float


def summarize(utterances: Sequence[Utterance]) -> str:
    """Return the best sentences of some texts in their order, or an empty text if none says anything.

    Statements count more than questions, which files and mails may contain.
    """
    sentences = _score_sentences(utterances)
    selected: list[_ScoredSentence] = []
    chars_left = MAX_SUMMARY_CHARS
    min_score = MIN_SCORE_SHARE * max((sentence.score for sentence in sentences), default=0.0)
    for sentence in sorted(sentences, key=lambda s: (-s.score, s.position)):
        if len(selected) == MAX_SENTENCES or sentence.score <= min_score:
            break
        chars = len(sentence.text) + len(sentence.speaker or "") + 3
        if chars <= chars_left and not any(_repeats(sentence, other) for other in selected):
            selected.append(sentence)
            chars_left -= chars
    return _join(sorted(selected, key=lambda s: s.position))


def extract_sentences(text: str) -> list[str]:
    """Return the sentences of a text without markup, code, table rows, actions in brackets, and secrets."""
    plain = _WIKI_LINK.sub(_link_text, _TABLE_ROW.sub("", mask_secrets(unwrap_lines(text[:MAX_TEXT_CHARS]))))
    plain = _MARKUP.sub(_remove_markup, _ACTION_IN_BRACKETS.sub(" ", plain))
    sentences = (collapse_spaces(plain[start:end]) for start, end in find_sentence_spans(plain))
    return [sentence for sentence in sentences if sentence]


def _link_text(link: re.Match[str]) -> str:
    """Return the label of a wiki link, or its target if it has none."""
    return (link["label"] or link["target"]).strip()


def _remove_markup(markup: re.Match[str]) -> str:
    """Return inline code as it is, nothing for signs of emphasis, and a space for code blocks and list signs."""
    if markup["code"]:
        return markup["code"]
    return "" if set(markup.group()) <= {"*", "_"} else " "


def _score_sentences(utterances: Sequence[Utterance]) -> list[_ScoredSentence]:
    sentences = [
        (utterance, sentence)
        for utterance in utterances
        for sentence in extract_sentences(_remove_speaker_prefix(utterance))
    ]
    # Speakers who call each other by name say nothing by that.
    names = {word for utterance in utterances for word in extract_content_words(utterance.speaker or "")}
    words = [frozenset(extract_content_words(sentence)) - names for _, sentence in sentences]
    sentence_counts = Counter(word for sentence_words in words for word in sentence_words)
    return [
        _ScoredSentence(
            position,
            _shorten(text),
            utterance.speaker,
            sentence_words,
            _score(text, sentence_words, sentence_counts),
        )
        for position, ((utterance, text), sentence_words) in enumerate(zip(sentences, words, strict=True))
    ]


def _remove_speaker_prefix(utterance: Utterance) -> str:
    """Return the text without the "Name:" that some write before it."""
    speaker, text = utterance.speaker, utterance.text.lstrip()
    if speaker and text[: len(speaker) + 1].lower() == f"{speaker.lower()}:":
        return text[len(speaker) + 1 :]
    return text


def _score(text: str, words: frozenset[str], sentence_counts: Counter[str]) -> float:
    """Return how much a sentence says: rare words, words of several sentences, digits, names and decisions."""
    if not words:
        return 0.0
    score: float = sum(compute_rarity(word) * min(sentence_counts[word], 4) ** 0.5 for word in words)
    score /= (len(words) + 4) ** 0.5
    score += DIGIT_BONUS * has_digit(text) + NAME_BONUS * (_NAME.search(text) is not None)
    if _DECISION.search(text):
        score += DECISION_BONUS
    if text.endswith(("?", "？")):
        score *= QUESTION_WEIGHT
    if _BOILERPLATE.match(text):
        score *= BOILERPLATE_WEIGHT
    return score


def _repeats(sentence: _ScoredSentence, other: _ScoredSentence) -> bool:
    smaller = min(len(sentence.words), len(other.words))
    return len(sentence.words & other.words) > MAX_WORD_OVERLAP * smaller


def _shorten(text: str) -> str:
    """Return the text cut at a space, with an ellipsis, if it is too long."""
    if len(text) <= MAX_SENTENCE_CHARS:
        return text
    cut = text[:MAX_SENTENCE_CHARS]
    end = cut.rfind(" ")
    return (cut[:end] if end > MAX_SENTENCE_CHARS // 2 else cut).rstrip(" ,;:") + " …"


def _join(sentences: Sequence[_ScoredSentence]) -> str:
    """Return the sentences as one text, with the speaker's name where the speaker changes."""
    parts, speaker = [], None
    for sentence in sentences:
        text = sentence.text if sentence.text[-1] in '.!?…。！？:"”' else sentence.text + "."
        text = text[0].upper() + text[1:]
        parts.append(f"{sentence.speaker}: {text}" if sentence.speaker and sentence.speaker != speaker else text)
        speaker = sentence.speaker
    return " ".join(parts)

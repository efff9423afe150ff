"""Recognise what a message is: a statement, a question, a command, small talk or a quotation.

REM keeps every message in its session. Only statements become memories: dreams read nothing else, and SEARCH over
everything does not rank questions and commands as answers. The rules are in `rem/rules` (English, German, French,
Spanish). What they take for a statement in English goes through a small model (`rem/message_kind_model.py`); no
language model is needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache

from rem.message_kind_model import estimate_kind
from rem.models.message import MessageKind, Role
from rem.rules import alternatives, word_set
from rem.text import FUNCTION_WORDS, SMALL_TALK_WORDS, find_sentence_spans, split_words

MAX_CLASSIFIED_CHARS = 20_000
"""The rest of a longer text is not looked at. It is a statement, unless all before it is one request."""
MAX_COURTESY_WORDS = 6
MAX_ATTRIBUTION_WORDS = 6
MAX_TOPIC_WORDS = 6
MIN_PAST_CHARS = 4
"""A longer word with the ending -ed is likely a verb in the past."""
_CLOSING_SIGNS = "".join(map(chr, range(9, 14))) + " \"'”’)]!?？"
"""What may stand between a question mark and the end of a sentence, and other question marks."""
_QUESTION_PARTICLE = re.compile(r"(?:か|吗)[。．]?\Z")
_QUERY = re.compile(r"(?:REM\s+)?(?:LOOKUP|FUZZY|SEARCH|TRAVERSE|SQL|SELECT|WITH)\s|/[a-z]+\b")
_QUOTED_TEXT = re.compile(r"\A(?:\"[^\"]+\"|“[^”]+”|„[^“”]+[“”]|«[^»]+»|```.*```)\s*(.*)", re.DOTALL)
_CLAUSE_END = re.compile(r"[,;:]\s+|(?<!\s)\s+[-–—]\s+")
_WORDLIKE = re.compile(r"\w")
_WORD = re.compile(r"[^\W\d_]+")
_PERSON_PRONOUN = re.compile(r"\b(?:he|him|his|she|her|hers|they|them|their|theirs)\b")
_KEYS_BESIDE = {
    "a": "qwsz",
    "c": "xvdf",
    "e": "wrsd",
    "h": "gjyubn",
    "i": "uojk",
    "n": "bhjm",
    "o": "ipkl",
    "r": "etdf",
    "s": "adwezx",
    "t": "ryfg",
    "w": "qeas",
    "y": "tugh",
}
"""The keys beside those of question words."""
MIN_PROBABILITY = 0.5
MIN_SURE_PROBABILITY = 0.9
MIN_QUESTION_PROBABILITY = 0.7
"""A statement that is taken for a question is not remembered, so the model must be sure: "did the dishes"."""
_SUBJECT_FIRST = re.compile(
    r"\A(?:\s*(?:(?:i|we|he|she|they|it|there|this|that)(?:'?(?:m|ve|d|ll|re|s))?\b"
    r"|when (?:i|we|he|she|they) (?:was|were)\b))",
    re.IGNORECASE,
)
"""Nobody asks without a question mark in the order of a statement: "I'm learning how to sail"."""
_match_asked_name = re.compile(
    r"(?:[Ii]s|[Aa]re|[Dd]oes|[Ww]ill) [A-Z][\w'-]+(?: [A-Z][\w'-]+)? [^\W\d_]++(?![^\n]*\.\s*\Z)"
).match
"""A question for yes or no about somebody: "is Lars married"."""
MAX_REFERENCE_CHARS = 200
"""The subject of a message is named at its beginning."""


def classify_message(text: str) -> MessageKind:
    """Return the kind of a user's message. A message with a statement in it is a statement."""
    if _is_quotation(text):
        return MessageKind.QUOTATION
    if _QUERY.match(text.lstrip()):
        return MessageKind.COMMAND
    kinds = {kind for kind, _, _ in _classify_sentences(text)}
    for kind in (MessageKind.STATEMENT, MessageKind.QUESTION, MessageKind.COMMAND):
        if kind in kinds:
            return kind
    return MessageKind.SMALL_TALK


def get_kind(role: Role, text: str) -> MessageKind | None:
    """Return the kind of a message to be stored; None for messages of tools and the system."""
    match role:
        case Role.USER:
            return classify_message(text)
        case Role.ASSISTANT:
            return MessageKind.ANSWER
    return None


def find_statement_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end offset of each statement in a message, in their order."""
    for kind, start, end in _classify_sentences(text):
        if kind is MessageKind.STATEMENT:
            yield start, end


def refers_back(text: str) -> bool:
    """Return whether a message begins like one about what was just said: "It's on Thursday", "Actually no"."""
    return _references().match(text[:MAX_CLASSIFIED_CHARS].lstrip().lower().replace("’", "'")) is not None


def continues_earlier(text: str) -> bool:
    """Return whether a message is about a subject that only an earlier message names.

    It has a pronoun for somebody without a name or noun before it ("He works at the Crown", "lent him 30"), or begins
    with a verb of somebody else ("starts in October").
    """
    head = text[:MAX_REFERENCE_CHARS].lower().replace("’", "'")
    lead = _leads().match(head)
    start = lead.end() if lead else 0
    if refers_back(text) or _continuations().match(head, start):
        return True
    pronoun = _PERSON_PRONOUN.search(head)
    if pronoun is None:
        return False
    before = split_words(head[start : pronoun.start()].replace("'", ""))
    return all(word in FUNCTION_WORDS or _is_verb(word) for word in before)


def is_reminder(text: str) -> bool:
    """Return whether a message asks to be reminded of something, such as "Remind me to call Lone"."""
    head = text[:MAX_CLASSIFIED_CHARS].lower().replace("’", "'").lstrip()
    lead = _leads().match(head)
    return _reminders().match(head, lead.end() if lead else 0) is not None


def _is_verb(word: str) -> bool:
    return word in _verb_words() or (len(word) > MIN_PAST_CHARS and word.endswith("ed"))


def _classify_sentences(text: str) -> Iterator[tuple[MessageKind, int, int]]:
    """Yield the kind and the offsets of each sentence. Of a statement with a question after it, both are yielded."""
    head = _classify_head(text[:MAX_CLASSIFIED_CHARS])
    yield from head
    # What follows thousands of words of one question or command belongs to it.
    is_request = len(head) == 1 and head[0][0] in (MessageKind.QUESTION, MessageKind.COMMAND)
    if len(text) > MAX_CLASSIFIED_CHARS and not is_request:
        yield MessageKind.STATEMENT, MAX_CLASSIFIED_CHARS, len(text)


# Several parts of REM classify the same message while it is answered, and a long one takes a while.
@lru_cache(maxsize=16)
def _classify_head(text: str) -> tuple[tuple[MessageKind, int, int], ...]:
    head = text.replace("’", "'")
    found: list[tuple[MessageKind, int, int]] = []
    for start, end in _merge_closing(head, find_sentence_spans(head)):
        sentence = head[start:end]
        if _WORDLIKE.search(sentence):
            found += [(kind, start + first, start + last) for kind, first, last in _classify_sentence(sentence)]
    if {kind for kind, _, _ in found} == {MessageKind.STATEMENT} and not _find_note(head):
        kind = _estimate_other_kind(head)
        if kind is not None and not any(_is_surely_statement(head[start:end]) for _, start, end in found):
            return ((kind, 0, len(head)),)
    return tuple(found)


def _estimate_other_kind(text: str) -> MessageKind | None:
    """Return what a message is that the rules take for a statement; None if it is one, or if the model is not sure."""
    lead = _leads().match(text.lower())
    rest = text[lead.end() if lead else 0 :]
    kind, probability = estimate_kind(rest)
    if kind is MessageKind.QUESTION:
        return kind if probability >= MIN_QUESTION_PROBABILITY and not _SUBJECT_FIRST.match(rest) else None
    return kind if kind is not MessageKind.STATEMENT and probability >= MIN_PROBABILITY else None


def _is_surely_statement(sentence: str) -> bool:
    """Return whether the model is sure of a statement: "The crane broke." in "What a day! The crane broke."."""
    kind, probability = estimate_kind(sentence)
    return kind is MessageKind.STATEMENT and probability >= MIN_SURE_PROBABILITY


def _find_note(text: str) -> bool:
    """Return whether a message asks to note what follows: "Remember that …"."""
    return _find_note_request(text.lower(), (0, len(text) - len(text.lstrip())), is_question=False) is not None


def _merge_closing(text: str, spans: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the spans, each with the closing quotes and white space after it."""
    previous: tuple[int, int] | None = None
    for start, end in spans:
        if previous is not None:
            yield previous[0], start
        previous = start, end
    if previous is not None:
        yield previous[0], len(text)


def _classify_sentence(sentence: str) -> Iterator[tuple[MessageKind, int, int]]:
    """Yield the parts of one sentence, each with its kind and offsets."""
    offset = len(sentence) - len(sentence.lstrip())
    end = len(sentence.rstrip())
    folded = sentence.lower()
    is_question = _ends_as_question(sentence)
    begin = _leads().match(folded, offset)
    start = begin.end() if begin else offset
    note = _find_note_request(folded, (offset, start), is_question)
    if note is not None:
        yield MessageKind.STATEMENT, note, end
        return
    if _match_small_talk()(folded, offset):
        yield MessageKind.SMALL_TALK, offset, end
        return
    if _match_command()(folded, start) or _reminders().match(folded, start):
        yield MessageKind.COMMAND, offset, end
        return
    if is_question:
        clause = _find_clause(folded, start)
        if clause is not None:
            yield MessageKind.STATEMENT, start, clause
        yield MessageKind.QUESTION, start if clause is None else clause, end
        return
    is_asked = _begins_as_question(folded, start) or _match_asked_name(sentence, start) is not None
    if is_asked or _asks_at_end(folded[start:end]):
        yield MessageKind.QUESTION, offset, end
    elif _is_courtesy(folded[start:end]):
        yield MessageKind.SMALL_TALK, offset, end
    else:
        yield MessageKind.STATEMENT, offset, end


def _begins_as_question(sentence: str, start: int) -> bool:
    """Return whether a sentence begins like a question, perhaps with a misspelt question word: "waht is my code"."""
    if _match_question()(sentence, start):
        return True
    word = _WORD.match(sentence, start)
    meant = _misspelt_question_words().get(word.group(), ()) if word else ()
    return any(_match_question()(f"{other}{sentence[word.end() :]}") for other in meant if word)


def _ends_as_question(sentence: str) -> bool:
    """Return whether a sentence ends with a question mark, perhaps with closing quotes and brackets behind it."""
    # A regular expression would try every question mark of a long row of them.
    stripped = sentence.rstrip()
    end = stripped[len(stripped.rstrip(_CLOSING_SIGNS)) :]
    return "?" in end or "？" in end or _QUESTION_PARTICLE.search(stripped[-2:]) is not None


def _find_note_request(sentence: str, starts: tuple[int, ...], is_question: bool) -> int | None:
    """Return where the fact begins in "Remember that …", or None. "Can you remember that …?" is such a request too."""
    for start in starts:
        request = _note_requests().match(sentence, start)
        if request is not None and (not is_question or " you " in request.group()):
            return request.end()
    return None


def _find_clause(sentence: str, start: int) -> int | None:
    """Return the end of the statement before the question in a sentence, or None if all of it is a question."""
    if not _clauses().match(sentence, start):
        return None
    for boundary in _CLAUSE_END.finditer(sentence, start):
        if _tags().match(sentence, boundary.end()):
            return None
        if _requests().match(sentence, boundary.end()):
            return boundary.start()
    return None


def _asks_at_end(sentence: str) -> bool:
    """Return whether a sentence is a thing and then a question about it: "the plumber, what's his number"."""
    for boundary in _CLAUSE_END.finditer(sentence):
        topic = split_words(sentence[: boundary.start()].replace("'", ""))
        topic = topic[1:] if topic[:1] in (["my"], ["our"]) else topic
        if len(topic) > MAX_TOPIC_WORDS or any(_is_verb(word) for word in topic):
            return False
        if topic and _match_closing_question()(sentence, boundary.end()):
            return True
    return False


def _is_courtesy(sentence: str) -> bool:
    """Return whether a short sentence has no word with content."""
    words = split_words(sentence.replace("'", ""))
    if len(words) > MAX_COURTESY_WORDS or any(word.isdigit() for word in words):
        return False
    return all(word in _courtesy_words() for word in words)


def _is_quotation(text: str) -> bool:
    """Return whether a message is nothing but a quotation, perhaps with the name of its author."""
    lines = [line for line in text[:MAX_CLASSIFIED_CHARS].splitlines() if line.strip()]
    if lines and all(line.lstrip().startswith(">") for line in lines):
        return _WORDLIKE.search(text) is not None
    quoted = _QUOTED_TEXT.fullmatch(text[:MAX_CLASSIFIED_CHARS].strip())
    if quoted is None:
        return False
    rest = quoted.group(1).strip()
    return not rest or (rest[0] in "-–—~(" and len(rest.split()) <= MAX_ATTRIBUTION_WORDS)


@cache
def _courtesy_words() -> frozenset[str]:
    """Return the words without content. A short answer such as "On Tuesday" has content."""
    contracted = frozenset(word.replace("'", "") for word in FUNCTION_WORDS)
    times = word_set("names.calendar_words") | word_set("message_kinds.time_words")
    return (FUNCTION_WORDS | SMALL_TALK_WORDS | contracted) - times


@cache
def _verb_words() -> frozenset[str]:
    return frozenset(word.replace("'", "") for word in word_set("message_kinds.verb_words") | word_set("tags.verbs"))


@cache
def _references() -> re.Pattern[str]:
    return re.compile(alternatives("changes.references"))


@cache
def _continuations() -> re.Pattern[str]:
    return re.compile(alternatives("message_kinds.continuations"))


@cache
def _leads() -> re.Pattern[str]:
    return re.compile(rf"(?>{alternatives('message_kinds.leads')}\b[\s,.!:-]*)+(?=\S)")


@cache
def _match_question() -> Callable[..., re.Match[str] | None]:
    return re.compile(alternatives("message_kinds.questions")).match


@cache
def _misspelt_question_words() -> dict[str, tuple[str, ...]]:
    """Return what a misspelt question word may mean.

    A letter is missing, doubled, in the place of the next one, or that of a key beside its own.
    """
    meant: dict[str, set[str]] = {}
    for word in word_set("message_kinds.question_words"):
        for place, letter in enumerate(word):
            before, after = word[:place], word[place + 1 :]
            beside = (f"{before}{other}{after}" for other in ("", letter * 2, *_KEYS_BESIDE[letter]))
            for misspelt in (*beside, f"{before}{after[:1]}{letter}{after[1:]}"):
                meant.setdefault(misspelt, set()).add(word)
    real = word_set("message_kinds.question_words") | word_set("message_kinds.no_question_words")
    return {word: tuple(sorted(others)) for word, others in meant.items() if len(word) > 2 and word not in real}


@cache
def _match_closing_question() -> Callable[..., re.Match[str] | None]:
    return re.compile(rf"{alternatives('message_kinds.closing_questions')}[\s.!…]*", re.DOTALL).fullmatch


@cache
def _clauses() -> re.Pattern[str]:
    return re.compile(alternatives("message_kinds.clauses"))


@cache
def _requests() -> re.Pattern[str]:
    return re.compile(alternatives("message_kinds.requests"))


@cache
def _tags() -> re.Pattern[str]:
    return re.compile(alternatives("message_kinds.tags"))


@cache
def _note_requests() -> re.Pattern[str]:
    return re.compile(rf"{alternatives('message_kinds.note_requests')}\s*(?=\S)")


@cache
def _match_command() -> Callable[..., re.Match[str] | None]:
    return re.compile(alternatives("message_kinds.commands")).match


@cache
def _reminders() -> re.Pattern[str]:
    return re.compile(alternatives("message_kinds.reminders"))


@cache
def _match_small_talk() -> Callable[..., re.Match[str] | None]:
    courtesy = alternatives("message_kinds.small_talk")
    # Several of them one after the other: "cheers, speak later".
    return re.compile(rf"{courtesy}(?:[\s.!?,)…]+{courtesy}){{0,3}}[\s.!?,)…]*\Z").match

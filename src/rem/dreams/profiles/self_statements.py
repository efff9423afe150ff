"""Extract the facts that users state about themselves ("I live in Porto"), as lines of a profile.

A statement counts if it is in the first person, about the present, and stated as a fact: no question, no condition, and
not the words of another person. A retraction ("I don't live there any more") ends the statement before it. A name after
"moved to" or "started at" can also be a tool, a team or a page; such names do not count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from rem.dreams.claims import ClaimSource, RowRef
from rem.dreams.entities.introductions import MAX_ORGANIZATION_WORDS, may_be_organization
from rem.dreams.entities.name_parsing import is_capitalised, parse_name_after
from rem.dreams.entities.own_name import OWN_NAME, parse_own_name
from rem.dreams.text.masking import is_fiction, is_text_task, mask_other_speakers, mask_quotes
from rem.dreams.text.secrets import contains_secret, is_sensitive, mask_secrets
from rem.dreams.text.statements import mask_other_kinds
from rem.rules import alternatives, word_set
from rem.text import find_sentence_spans

NAME_KIND, NAME_LINE = "name", "is called {}"
MAX_SELF_STATEMENTS = 30
MAX_LINE_CHARS = 80
MAX_SENTENCE_CHARS = 600
"""People do not speak longer sentences, and the search in them would be slow."""
MAX_PHRASE_WORDS = 5
MAX_TOPIC_WORDS = 2
"""A topic with a capital may have more words."""
_I_AM = r"(?:I['’]m|I am)"
_NOW = rf"(?: {alternatives('self_statements.now_words')})*"
_NOT_FACT = re.compile(rf"\b{alternatives('self_statements.not_facts')}\b|\w['’]s like\b", re.IGNORECASE)
"""Before a statement in its sentence: then it is no fact, or another person says it."""
_NEGATION = re.compile(rf"\b{alternatives('self_statements.negations')}\b", re.IGNORECASE)
"""Before a statement in its clause: then the statement is denied."""
_CORRECTION = re.compile(rf"\b{alternatives('self_statements.corrections')}\b", re.IGNORECASE)
"""Anywhere in a sentence: then its statements are not true."""
_INSTRUCTION = re.compile(rf"\b{alternatives('self_statements.instructions')}\b", re.IGNORECASE)
"""Words to the reader of a profile, who may be a language model. They are no facts about the user."""
_CLAUSE_START = re.compile(
    rf"(?:[,;:–—]\s*|\s(?={alternatives('self_statements.conjunctions')}\s))"
    rf"(?=(?:[\w'’]{{1,20}} ){{0,3}}{alternatives('self_statements.own_pronouns')}\b)",
    re.IGNORECASE,
)
"""The beginning of a further statement in the first person."""
_RETRACTIONS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"\b(I|we) (?:no longer|do(?:n['’]?t| not)) (?=(?:live|work|study|play|speak|have)\b)", re.IGNORECASE
        ),
        r"\1 ",
    ),
    (re.compile(rf"\b{_I_AM} (?:no longer|not) ", re.IGNORECASE), "I am "),
    (re.compile(r"\b(ich (?:bin|habe)) keine?n? (\w+)(?: mehr)?\b", re.IGNORECASE), r"\1 \2"),
)
"""Negated beginnings of a statement, with the positive form."""
_NO_MORE = re.compile(r" (?:any ?more|no more|any longer|nicht mehr)\b", re.IGNORECASE)
_PHRASE_END = re.compile(rf"[,.;:!?()\n–—]|\s-\s|\s{alternatives('self_statements.phrase_ends')}\b", re.IGNORECASE)
_NOT_TOPIC = re.compile(rf"\A(?:{alternatives('self_statements.not_topics')}\b|.*[\d'’])", re.IGNORECASE)
_SKILL = re.compile(rf"to {alternatives('self_statements.skills')} ?", re.IGNORECASE)
_LIST_END = re.compile(r"[.;!?\n]| (?:but|because|so|aber|weil)\b")
_match_past_marker = re.compile(
    rf"[^.;!?]{{0,40}}\b{alternatives('self_statements.past_markers')}\b", re.IGNORECASE
).match
"""After a statement: then it is about the past, and may have ended."""
_CONDITION = re.compile(rf"\b{alternatives('self_statements.conditions')}(?: [\w'’]+)?\s*\Z", re.IGNORECASE)
"""Directly before a statement: then it is about the future or the past."""
_PLAIN_NAME = re.compile(r"[^\W\d_]['’]?[^\W\d_A-Z]*(?:[-'’ ][^\W\d_]+)*\.?")
"""A name without a capital inside a word, which only products have."""
MAX_CONDITION_CHARS = 100
"""Characters before a statement in which a condition may stand."""
_match_not_place_suffix = re.compile(rf"\s+{alternatives('self_statements.not_place_suffixes')}", re.IGNORECASE).match
_THE_PLACES = word_set("self_statements.the_places")
_NOT_PLACES = word_set("self_statements.not_places")
_NOT_ROLES = word_set("self_statements.not_roles")
_NOT_EMPLOYERS = word_set("self_statements.not_employers")


@dataclass(frozen=True, slots=True)
class SelfStatement:
    """A fact that a user stated about themselves."""

    kind: str
    text: str
    """The line of the profile, such as "lives in Porto"."""
    at: datetime
    source: ClaimSource


@dataclass(frozen=True, slots=True)
class SelfStatements:
    """The current self-statements of a user."""

    lines: tuple[SelfStatement, ...]
    sources: tuple[ClaimSource, ...]
    """The messages with these statements, and the messages that ended their other statements. Without the latter, the
    ended statements would be valid again."""

    @property
    def name(self) -> str | None:
        """The name by which the user introduced themselves."""
        names = (line.text.removeprefix(NAME_LINE.format("")) for line in self.lines if line.kind == NAME_KIND)
        return next(names, None)


@dataclass(slots=True)
class _Slot:
    """The present statement about one matter, such as the home, or one game that the user plays."""

    line: SelfStatement | None = None
    stated_in: set[RowRef] = field(default_factory=set)
    latest: tuple[ClaimSource, ...] = ()
    """The message with the latest statement, and the message that retracted it."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """A pattern for one kind of statement."""

    kind: str
    pattern: re.Pattern[str]
    template: str
    parse: Callable[[str, re.Match[str]], str]
    """Return the value for the template from a text and the match of the pattern; empty if it is not valid."""
    is_single: bool = False
    """A user has one at a time, so that a newer one replaces the older one."""


def extract_self_statements(messages: Iterable[tuple[str, datetime, ClaimSource]]) -> SelfStatements:
    """Return the user's current self-statements. `messages` must be oldest first."""
    slots: dict[tuple[str, str], _Slot] = {}
    for content, at, source in messages:
        for rule, value, is_retracted in _match_message(content):
            name = (rule.kind, "" if rule.is_single else value.casefold())
            line = SelfStatement(rule.kind, rule.template.format(value), at, source)
            before = slots.get(name, _Slot())
            if is_retracted:
                if before.line is None or before.line.text.casefold() != line.text.casefold():
                    continue
                slots[name] = _Slot(None, before.stated_in, (before.line.source, source))
            else:
                # Insert it again at the end, because slots are ordered by their latest statement.
                slots.pop(name, None)
                slots[name] = _Slot(line if value else None, before.stated_in, (source,))
            slots[name].stated_in.add(source.ref)
    newest = [slot.line for slot in reversed(slots.values()) if slot.line][:MAX_SELF_STATEMENTS]
    order = list(dict.fromkeys(rule.kind for rule in _RULES))
    lines = {line.text.casefold(): line for line in sorted(newest, key=lambda line: order.index(line.kind))}
    sources = _add_ending_sources([line.source for line in lines.values()], slots.values())
    return SelfStatements(tuple(lines.values()), sources)


def _add_ending_sources(sources: Iterable[ClaimSource], slots: Iterable[_Slot]) -> tuple[ClaimSource, ...]:
    """Add the messages with the latest state of every other statement in the given messages."""
    by_ref = {source.ref: source for source in sources}
    known = -1
    while known < len(by_ref):
        known = len(by_ref)
        for slot in slots:
            if not slot.stated_in.isdisjoint(by_ref):
                by_ref.update((source.ref, source) for source in slot.latest)
    return tuple(by_ref.values())


def _match_message(content: str) -> Iterator[tuple[_Rule, str, bool]]:
    """Yield the rules that match a message, each with its value and whether the message retracts it.

    The value is empty if the statement is sensitive. It then only ends the statement that it replaces.
    """
    if is_text_task(content) or is_fiction(content):
        return
    text = mask_other_speakers(mask_quotes(mask_other_kinds(mask_secrets(content))))
    for start, end in find_sentence_spans(text):
        sentence = mask_other_speakers(text[start:end])
        if end - start > MAX_SENTENCE_CHARS or _CORRECTION.search(sentence):
            continue
        for clause, rest in _split_clauses(sentence):
            yield from _match_clause(clause, rest)
            if _NOT_FACT.search(clause):
                break


def _match_clause(clause: str, rest: str) -> Iterator[tuple[_Rule, str, bool]]:
    """Yield the rules that match a clause, as `_match_message` does. `rest` is the text after the clause."""
    positive, negation = _undo_negation(clause)
    has_ended = _NO_MORE.search(clause) is not None
    for rule in _RULES:
        for match in rule.pattern.finditer(positive):
            start = match.start()
            if negation < start or _NOT_FACT.search(positive, 0, start) or _NEGATION.search(positive, 0, start):
                break
            value = " ".join(rule.parse(positive + rest, match).split())
            line = rule.template.format(value)
            if not value or len(line) > MAX_LINE_CHARS or contains_secret(line) or _INSTRUCTION.search(line):
                continue
            is_retracted = has_ended or negation == start
            if not is_sensitive(line):
                yield rule, value, is_retracted
            elif rule.is_single and not is_retracted:
                yield rule, "", False


def _split_clauses(sentence: str) -> Iterator[tuple[str, str]]:
    """Yield the clauses of a sentence with one self-statement each, and some text after each clause."""
    start = 0
    for match in _CLAUSE_START.finditer(sentence):
        yield sentence[start : match.end()], sentence[match.end() : match.end() + MAX_LINE_CHARS]
        start = match.end()
    yield sentence[start:], ""


def _undo_negation(clause: str) -> tuple[str, int]:
    """Return a negated clause in its positive form, and the offset of the negation; the end if there is none."""
    positive = _NO_MORE.sub("", clause)
    for pattern, replacement in _RETRACTIONS:
        match = pattern.search(positive)
        if match:
            return positive[: match.start()] + match.expand(replacement) + positive[match.end() :], match.start()
    return positive, len(positive)


def _parse_place(text: str, match: re.Match[str]) -> str:
    words, end = parse_name_after(text, match.end())
    return _add_country(text, " ".join(words), end) if words else ""


def _parse_new_home(text: str, match: re.Match[str]) -> str:
    """Parse the place to which the user moved. Return nothing if it may be no place, or if the move was long ago."""
    words, end = parse_name_after(text, match.end())
    name = " ".join(words)
    may_be_place = _PLAIN_NAME.fullmatch(name) and words[0].lower() not in _NOT_PLACES
    if not may_be_place or _match_not_place_suffix(text, end) or not _is_current(text, match, end):
        return ""
    if match.group().rstrip().lower().endswith(" the") and words[0].lower() not in _THE_PLACES:
        return ""
    return _add_country(text, name, end)


def _add_country(text: str, place: str, end: int) -> str:
    """Return "Porto, Portugal" if a comma and a name follow the place, which ends at `end`."""
    country, _ = parse_name_after(text, end + 2) if text[end : end + 2] == ", " else ([], end)
    return f"{place}, {' '.join(country[:3])}" if country else place


def _parse_organization(text: str, match: re.Match[str]) -> str:
    words, _ = parse_name_after(text, match.end(), allow_capitals=True, max_words=MAX_ORGANIZATION_WORDS)
    return " ".join(words) if may_be_organization(words) else ""


def _parse_new_employer(text: str, match: re.Match[str]) -> str:
    """Parse the present employer. Return nothing if the user is only a guest or customer there."""
    words, end = parse_name_after(text, match.end(), allow_capitals=True, max_words=MAX_ORGANIZATION_WORDS)
    # A word such as "hospital" is an employer only with the rest of its name.
    is_name = may_be_organization(words) or (len(words) > 1 and may_be_organization(words[1:]))
    role = (match.groupdict().get("role") or "").split()
    if not is_name or words[0].lower() in _NOT_EMPLOYERS or (role and role[-1].lower() in _NOT_ROLES):
        return ""
    return " ".join(words) if _is_current(text, match, end) else ""


def _parse_new_role(text: str, match: re.Match[str]) -> str:
    """Parse the user's role at an employer with a name."""
    return match.group("role") if _parse_new_employer(text, match) else ""


def _parse_new_german_role(text: str, match: re.Match[str]) -> str:
    """Parse a role in German, where it has a capital."""
    role = _parse_new_role(text, match)
    return role if role and is_capitalised(role.split()[-1]) else ""


def _is_current(text: str, match: re.Match[str], end: int) -> bool:
    return not _CONDITION.search(
        text, max(0, match.start() - MAX_CONDITION_CHARS), match.start()
    ) and not _match_past_marker(text, end)


def _parse_phrase(text: str, match: re.Match[str]) -> str:
    """Parse the words up to the end of the phrase. Return nothing for more than MAX_PHRASE_WORDS."""
    rest = text[match.end() : match.end() + MAX_LINE_CHARS].lstrip()
    end = _PHRASE_END.search(rest)
    words = (rest[: end.start()] if end else rest).split()
    return " ".join(words) if 0 < len(words) <= MAX_PHRASE_WORDS else ""


def _parse_topic(text: str, match: re.Match[str]) -> str:
    phrase = _parse_phrase(text, match)
    if _SKILL.match(phrase):
        return phrase
    is_short = len(phrase.split()) <= MAX_TOPIC_WORDS or is_capitalised(phrase.split()[0])
    return phrase if is_short and not _NOT_TOPIC.match(phrase) else ""


def _parse_list(text: str, match: re.Match[str]) -> str:
    """Parse the text up to the end of the sentence."""
    return _LIST_END.split(text[match.end() :])[0].strip(" ,:")


def _get_group(_text: str, match: re.Match[str]) -> str:
    return match.group(1)


def _parse_named_pets(_text: str, match: re.Match[str]) -> str:
    pet = match.group("pet").lower()
    pet = _ENGLISH_PETS.get(pet, pet)
    return f"{pet if pet.endswith('s') else f'a {pet}'} called {match.group('name')}"


def _rule(
    kind: str, pattern: str, template: str, parse: Callable[[str, re.Match[str]], str], *, single: bool = False
) -> _Rule:
    return _Rule(kind, re.compile(pattern, re.IGNORECASE), template, parse, single)


_COUNT = alternatives("self_statements.counts")
_CHILDREN = alternatives("self_statements.children")
_DIET = alternatives("self_statements.diets")
_INSTRUMENT = alternatives("self_statements.instruments")
_SPORT = alternatives("self_statements.sports")
_LANGUAGE = alternatives("self_statements.languages")
_ENGLISH_PETS = {"hund": "dog", "katze": "cat", "katzen": "cats", "hunde": "dogs"}
_PET_NAME = r"(?-i:[A-ZÀ-ÖØ-Þ])[\w'’-]{1,30}"
_PETS = rf"(?:cats?|dogs?|katzen?|hunde?)(?:,? (?:called|named|namens) {_PET_NAME}(?:,? (?:and|und) {_PET_NAME})?)?"
_PET_NAMES = rf"(?P<name>{_PET_NAME}(?:,? (?:and|und) {_PET_NAME})?)"
_END = r"(?=[.,;!)\n]|\s+(?:and|but|who|so|now|at home|aged|too|und|aber|die|der|zu hause)\b|\s*\Z)"
_I_WORK = rf"\bI{_NOW} (?:live in [^.;!?]{{1,40}} and )?work{_NOW}|\b{_I_AM}{_NOW} working"
_ICH_ARBEITE = rf"\bich (?:(?:wohne|lebe) [^.;!?]{{1,40}} und )?arbeite{_NOW}"
_I_STARTED = r"\bI(?:['’]ve| have)?(?: just| recently| finally| now)? started(?: working| work| a new job| my new job)?"
_ROLE = r"(?P<role>(?:an? |the )(?:[^\W\d_]{2,20}[ -]){0,3}[^\W\d_]{3,25})"
_GERMAN_ROLE = r"(?P<role>(?:eine? )?[^\W\d_]{4,30})"
_WE_HAVE = rf"\b(?:I|we|ich|wir){_NOW} (?:have|habe|haben)"
_RULES = (
    _rule(NAME_KIND, OWN_NAME, NAME_LINE, parse_own_name, single=True),
    _rule("home", rf"\b(?:I|we){_NOW} live{_NOW} in (?:the )?", "lives in {}", _parse_place, single=True),
    _rule("home", rf"\b{_I_AM}{_NOW} (?:living|based) in (?:the )?", "lives in {}", _parse_place, single=True),
    _rule(
        "home",
        rf"\b(?:ich|wir) (?:wohnen?|leben?){_NOW}(?: seit [\w ]{{2,20}})? in (?:der )?",
        "lives in {}",
        _parse_place,
        single=True,
    ),
    _rule(
        "home",
        r"\b(?:I|we)(?:['’]ve| have)?(?: just| recently| finally| now| all)* moved"
        r"(?: house| back| over| away| again)? to (?:the )?",
        "lives in {}",
        _parse_new_home,
        single=True,
    ),
    _rule(
        "home",
        r"\b(?:ich bin|wir sind)(?: [^\W\d_]{2,12}){0,3} nach (?=[^.;!?]{2,40} (?:um)?gezogen\b)",
        "lives in {}",
        _parse_new_home,
        single=True,
    ),
    _rule("role", rf"(?:{_I_WORK}) as (?=an? |the )|{_ICH_ARBEITE} als ", "works as {}", _parse_phrase, single=True),
    _rule("employer", rf"(?:{_I_WORK}) (?:at|for) ", "works at {}", _parse_organization, single=True),
    _rule("employer", rf"{_ICH_ARBEITE} bei (?:der |dem )?", "works at {}", _parse_organization, single=True),
    _rule(
        "employer", rf"(?:{_I_WORK}) as {_ROLE} (?:at|for) (?:the )?", "works at {}", _parse_new_employer, single=True
    ),
    _rule(
        "employer",
        rf"{_ICH_ARBEITE} als {_GERMAN_ROLE} bei (?:der |dem )?",
        "works at {}",
        _parse_new_employer,
        single=True,
    ),
    _rule("role", rf"\b{_I_AM}{_NOW} {_ROLE} (?:at|for) (?:the )?", "works as {}", _parse_new_role, single=True),
    _rule("role", rf"{_I_STARTED} as {_ROLE} (?:at|for|with) ", "works as {}", _parse_new_role, single=True),
    _rule(
        "role",
        rf"\bich bin{_NOW} {_GERMAN_ROLE} bei (?:der |dem )?",
        "works as {}",
        _parse_new_german_role,
        single=True,
    ),
    _rule(
        "employer", rf"\b{_I_AM}{_NOW} {_ROLE} (?:at|for) (?:the )?", "works at {}", _parse_new_employer, single=True
    ),
    _rule(
        "employer", rf"{_I_STARTED}(?: as {_ROLE})? (?:at|for|with) ", "works at {}", _parse_new_employer, single=True
    ),
    _rule(
        "employer",
        rf"\bich bin{_NOW} {_GERMAN_ROLE} bei (?:der |dem )?",
        "works at {}",
        _parse_new_employer,
        single=True,
    ),
    _rule(
        "employer",
        r"\bich habe(?: [^\W\d_]{2,12}){0,3} bei (?:der |dem )?(?=[^.;!?]{2,40} (?:angefangen|begonnen)\b)",
        "works at {}",
        _parse_new_employer,
        single=True,
    ),
    _rule("studies", rf"\bI{_NOW} study |\b{_I_AM}{_NOW} studying ", "studies {}", _parse_topic, single=True),
    _rule("studies", rf"\bich studiere{_NOW} ", "studies {}", _parse_topic, single=True),
    _rule("children", rf"{_WE_HAVE} ({_COUNT} {_CHILDREN}){_END}", "has {}", _get_group, single=True),
    _rule(
        "pets",
        rf"{_WE_HAVE} ({_COUNT} {_PETS}(?: (?:and|und) {_COUNT} {_PETS})?){_END}",
        "has {}",
        _get_group,
        single=True,
    ),
    _rule(
        "pet names",
        rf"\b(?:my|our) (?P<pet>cats?|dogs?)(?:['’]s| is| are) (?:called|named) {_PET_NAMES}{_END}",
        "has {}",
        _parse_named_pets,
    ),
    _rule(
        "pet names",
        rf"\b(?:meine?|unsere?) (?P<pet>katzen?|hunde?) heiß(?:t|en) {_PET_NAMES}{_END}",
        "has {}",
        _parse_named_pets,
    ),
    _rule("diet", rf"\b{_I_AM}{_NOW} (?:an? )?(?:strict )?({_DIET}){_END}", "is {}", _get_group, single=True),
    _rule("diet", rf"\bich bin{_NOW} ({_DIET}){_END}", "is {}", _get_group, single=True),
    _rule("learns", rf"\b{_I_AM}{_NOW} learning (?:how )?|\bich lerne{_NOW} ", "is learning {}", _parse_topic),
    _rule("plays", rf"\bI{_NOW} play{_NOW} ((?:the )?{_INSTRUMENT}|{_SPORT}){_END}", "plays {}", _get_group),
    _rule("plays", rf"\bich spiele{_NOW} ({_INSTRUMENT}|{_SPORT}){_END}", "plays {}", _get_group),
    _rule("speaks", rf"\bI{_NOW} speak (?:fluent )?({_LANGUAGE})\b", "speaks {}", _get_group),
    _rule("speaks", rf"\bich spreche{_NOW} (?:fließend )?({_LANGUAGE})\b", "speaks {}", _get_group),
    _rule("hobby", r"\bmy (?:favou?rite |main )?hobb(?:y is|ies are) ", "hobby: {}", _parse_list),
    _rule("hobby", r"\bmein hobby ist |\bmeine hobbys sind ", "hobby: {}", _parse_list),
)
"""In the order of the lines in a profile."""

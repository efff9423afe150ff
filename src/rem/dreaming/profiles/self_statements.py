"""Changes: where users say that they moved somewhere, or what they are at which employer, as lines of a profile.

A name after "moved to" or "started at" may be a tool, a team or a page as well; what may be one of these tells nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from rem.dreaming.claims import ClaimSource, RowRef
from rem.dreaming.entities.introductions import may_be_organization
from rem.dreaming.entities.name_parsing import is_capitalised, parse_name_after, word_set
from rem.dreaming.profiles.sensitive import is_sensitive
from rem.dreaming.text.masking import is_fiction, is_text_task, mask_other_speakers, mask_quotes
from rem.dreaming.text.secrets import contains_secret, mask_secrets
from rem.text import find_sentence_spans

_LONG_AGO = re.compile(
    r"[^.;!?]{0,40}\b(?:in (?:the )?(?:19|20)\d\d|years ago|back then|at the time|as an? (?:kid|child|student)"
    r"|when (?:i|we)|(?:but|and)(?: then)?(?: \w+)? (?:back|left|quit|returned)"
    r"|for (?:a|an|one|two|three|\w+ty|\d+) (?:\w+ )?(?:days?|weeks?|months?|years?)"
    r"|(?:damals|vor \w+ jahren|als kind|als ich))\b",
    re.IGNORECASE,
)
"""After what is said: then it tells of the past, and may have ended since."""
_CONDITION = re.compile(
    r"\b(?:when|once|as soon as|after|in case|the (?:day|year|time)|sobald|nachdem|als)(?: [\w'’]+)?\s*\Z",
    re.IGNORECASE,
)
"""Right before it: it will be so, or was so then."""
_PLAIN_NAME = re.compile(r"[^\W\d_]['’]?[^\W\d_A-Z]*(?:[-'’ ][^\W\d_]+)*\.?")
"""No capital inside of a word, as products like them."""
_THE_PLACES = word_set("netherlands uk us usa united philippines bahamas maldives algarve azores alps ruhr hague")
_NO_PLACE = word_set(
    """
    linux ubuntu debian fedora arch windows mac macos android ios iphone pixel chrome firefox safari edge brave vim
    neovim emacs python rust golang java kotlin swift ruby rails django flask react vue angular svelte node deno bun
    elixir scala haskell julia postgres mysql sqlite mongo redis kafka oracle snowflake spark excel word outlook
    gmail google microsoft apple amazon azure slack discord teams zoom notion obsidian evernote trello asana jira
    linear basecamp confluence github gitlab git bitbucket docker podman kubernetes terraform ansible heroku vercel
    netlify cloudflare shopify stripe paypal spotify netflix whatsapp signal telegram dropbox proton fastmail claude
    gemini copilot cursor team project plan phase level step chapter page room building floor unit section tab
    branch version stage tier sprint group department sales marketing engineering finance operations support product
    design management research legal procurement logistics consulting accounting plant premium pro standard basic
    """
)
_NO_PLACE_AFTER = re.compile(
    r"\s+(?:team|group|department|project|channel|tab|plan|branch|board|server|account|tier|office|desk|framework|app"
    r"|version|column|folder|list|phase|stage|\d)",
    re.IGNORECASE,
)
_NO_ROLE = word_set(
    """
    guest customer client member patient regular visitor fan beginner user student pupil stranger newcomer bit little
    lot volunteer speaker attendee subscriber shareholder kunde kundin mitglied gast patientin besucher besucherin fan
    studentin schüler schülerin
    """
)
_NO_EMPLOYER = word_set("page chapter level step phase room gate line section platform door table seat stage unit noon")


def parse_new_home(text: str, found: re.Match[str]) -> str:
    """Where somebody moved to, if it may be a place and nothing tells that it was long ago."""
    words, end = parse_name_after(text, found.end())
    name = " ".join(words)
    may_be_place = _PLAIN_NAME.fullmatch(name) and words[0].lower() not in _NO_PLACE
    if not may_be_place or _NO_PLACE_AFTER.match(text, end) or not _is_current(text, found, end):
        return ""
    if found.group().rstrip().lower().endswith(" the") and words[0].lower() not in _THE_PLACES:
        return ""
    country, _ = parse_name_after(text, end + 2) if text[end : end + 2] == ", " else ([], end)
    return ", ".join([name, " ".join(country[:3])] if country else [name])


def parse_new_employer(text: str, found: re.Match[str]) -> str:
    """For whom somebody works by now; nothing for who is only a guest or a customer there."""
    words, end = parse_name_after(text, found.end(), shouted=True, most=5)
    # Of what is only a kind of house (a hospital), the rest of the name tells that it is one of them.
    is_name = may_be_organization(words) or (len(words) > 1 and may_be_organization(words[1:]))
    role = (found.groupdict().get("role") or "").split()
    if not is_name or words[0].lower() in _NO_EMPLOYER or (role and role[-1].lower() in _NO_ROLE):
        return ""
    return " ".join(words) if _is_current(text, found, end) else ""


def parse_new_role(text: str, found: re.Match[str]) -> str:
    """What somebody is at an employer that has a name."""
    return found.group("role") if parse_new_employer(text, found) else ""


def parse_new_german_role(text: str, found: re.Match[str]) -> str:
    """The same in German, where a role has a capital."""
    role = parse_new_role(text, found)
    return role if role and is_capitalised(role.split()[-1]) else ""


def _is_current(text: str, found: re.Match[str], end: int) -> bool:
    return not _CONDITION.search(text, 0, found.start()) and not _LONG_AGO.match(text, end)


MAX_SELF_STATEMENTS = 30
MAX_LINE_CHARS = 80
MAX_SENTENCE_CHARS = 600
"""What is longer nobody says, and it would take long to look through."""
MAX_TOPIC_WORDS = 2
"""In words; a name may have more of them."""
_NOW = r"(?: (?:currently|now|still|also|actually|just|jetzt|derzeit|zurzeit|gerade|inzwischen|auch|noch))*"
_AM = r"(?:I['’]m|I am)"
_NO_FACT = re.compile(
    r"\b(?:if|would|could|might|may|maybe|perhaps|wish|imagine|suppose|pretend|assume|hypothetically|unless|whether"
    r"|act as|until|before|when i was|should|said|says|told|tells|asks|asked|writes|wrote|wenn|falls|würde|könnte"
    r"|angenommen|stell dir vor|vielleicht|ob|als ich|sagt|sagte|meinte|schrieb|sollte|think|thinks|thought|believes?"
    r"|believed|claims?|claimed|heard|dream\w*|traum|träum\w*|denkt|denken|glaubt|glauben|behauptet|behaupten"
    r"|(?:was|were|is|am|are|be|been|being|all|just) like)\b|\w['’]s like\b",
    re.IGNORECASE,
)
"""Before what is said, anywhere in its sentence: then it is not said as a fact, or by another."""
_DENIES = re.compile(r"\b(?:not|never|nicht|nie|\w+n['’]t)\b", re.IGNORECASE)
"""Before it in its clause: then it is what is denied."""
_UNSAID = re.compile(
    r"\b(?:wrong|untrue|not true|false|a lie|kidding|joking|jk|stimmt nicht|falsch|gelogen|scherz|in (?:my|a|the|meinem"
    r"|einem) (?:dreams?|game|simulation|traum|spiel))\b",
    re.IGNORECASE,
)
"""Anywhere in a sentence: then what it says is not so."""
_ORDERS = re.compile(
    r"\b(?:ignor\w+|disregard\w*|reveal\w*|overrid\w+|bypass\w*|jailbreak\w*|obey\w*|instructions?|anweisung\w*"
    r"|system ?(?:prompts?|messages?)|prompts?|your|you)\b",
    re.IGNORECASE,
)
"""What speaks to whoever reads a profile, and tells nothing of its owner."""
_ASKS = re.compile(r"\?\s*\Z")
_CLAUSE = re.compile(
    r"(?:[,;:–—]\s*|\s(?=(?:and|but|so|because|since|yet|und|aber|denn|weil|sondern)\s))"
    r"(?=(?:[\w'’]{1,20} ){0,3}(?:I|I['’]m|we|my|ich|wir|meine?)\b)",
    re.IGNORECASE,
)
"""Where somebody begins to say something else of themself."""
_TAKEN_BACK: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"\b(I|we) (?:no longer|do(?:n['’]?t| not)) (?=(?:live|work|study|play|speak|have)\b)", re.IGNORECASE
        ),
        r"\1 ",
    ),
    (re.compile(rf"\b{_AM} (?:no longer|not) ", re.IGNORECASE), "I am "),
    (re.compile(r"\b(ich (?:bin|habe)) keine?n? (\w+)(?: mehr)?\b", re.IGNORECASE), r"\1 \2"),
)
"""How a clause says that something is not so, and how it would say that it is."""
_NO_MORE = re.compile(r" (?:any ?more|no more|any longer|nicht mehr)\b", re.IGNORECASE)
_PHRASE_END = re.compile(
    r"[,.;:!?()\n–—]|\s-\s|\s(?:and|but|or|so|because|since|with|at|in|for|from|on|while|which|who|that|as|right now"
    r"|these days|lately|now|again|this|und|aber|oder|weil|seit|mit|bei|im|am|an|für|als|damit|der|die|das)\b",
    re.IGNORECASE,
)
_NO_TOPIC = re.compile(
    r"(?:an?|the|and|to|lots|about|that|this|it|so|from|more|much|new|how|what|why|stuff|things?|something|everything"
    r"|for|hard|my|your|by|as|fast|slowly|viel|mehr|für|dass|wie|was|etwas|aus|zu|die|der|das|eine?)\b|.*[\d'’]",
    re.IGNORECASE,
)
_SKILL = re.compile(
    r"to (?:play|cook|bake|code|program|drive|swim|ski|snowboard|surf|sail|row|knit|sew|crochet|draw|paint|dance|sing"
    r"|dive|climb|ride|speak|read|write|fly|juggle|skate|garden|weld) ?",
    re.IGNORECASE,
)
_INSTRUMENTS = (
    r"(?:violin|viola|cello|double bass|bass|guitar|piano|keyboard|organ|drums|flute|clarinet|oboe|saxophone|trumpet"
    r"|trombone|harp|ukulele|banjo|accordion|geige|bratsche|gitarre|klavier|orgel|schlagzeug|flöte|klarinette|saxophon"
    r"|trompete|harfe)"
)
_SPORTS = (
    r"(?:chess|tennis|table tennis|football|soccer|basketball|volleyball|badminton|squash|golf|hockey|rugby|handball"
    r"|cricket|baseball|padel|schach|tischtennis|fußball)"
)
_LANGUAGES = (
    r"(?:english|german|french|spanish|italian|portuguese|dutch|polish|czech|russian|ukrainian|turkish|arabic|persian"
    r"|hindi|urdu|bengali|chinese|mandarin|cantonese|japanese|korean|vietnamese|thai|greek|hebrew|swedish|norwegian"
    r"|danish|finnish|hungarian|romanian|swahili|deutsch|englisch|französisch|spanisch|italienisch|portugiesisch|niederländisch|polnisch"
    r"|russisch|türkisch|arabisch|chinesisch|japanisch)"
)
_COUNTS = r"(?:an?|one|two|three|four|five|six|\d|einen?|zwei|drei|vier|fünf|sechs)"
_CHILDREN = r"(?:kids?|child|children|sons?|daughters?|kind|kinder|söhne|sohn|töchter|tochter)"
_DIETS = r"(?:vegetarian|vegan|pescatarian|vegetarier(?:in)?|veganer(?:in)?)"
_PET_NAME = r"(?-i:[A-ZÀ-ÖØ-Þ])[\w'’-]{1,30}"
_PET_CALLED = {"hund": "dog", "katze": "cat", "katzen": "cats", "hunde": "dogs"}
_PETS = rf"(?:cats?|dogs?|katzen?|hunde?)(?:,? (?:called|named|namens) {_PET_NAME}(?:,? (?:and|und) {_PET_NAME})?)?"
_NAMES = rf"(?P<name>{_PET_NAME}(?:,? (?:and|und) {_PET_NAME})?)"
_NAMED_PETS = rf"(?P<pet>cats?|dogs?)(?:['’]s| is| are) (?:called|named) {_NAMES}"
_BENANNTE = rf"(?P<pet>katzen?|hunde?) heiß(?:t|en) {_NAMES}"
_END = r"(?=[.,;!)\n]|\s+(?:and|but|who|so|now|at home|aged|too|und|aber|die|der|zu hause)\b|\s*\Z)"


@dataclass(frozen=True, slots=True)
class SelfStatement:
    """Something that a user said of themself."""

    kind: str
    text: str
    """As a profile says it: lives in Porto."""
    at: datetime
    source: ClaimSource


@dataclass(frozen=True, slots=True)
class SelfStatements:
    """All that a user said of themself and that holds."""

    lines: tuple[SelfStatement, ...]
    sources: tuple[ClaimSource, ...]
    """The messages that say it, and those that ended what else these say: without them it would hold again."""


@dataclass(slots=True)
class _Slot:
    """What one line can be about: a home, or a game that is played."""

    line: SelfStatement | None = None
    said_in: set[RowRef] = field(default_factory=set)
    latest: tuple[ClaimSource, ...] = ()
    """The messages that tell how it is by now: who said it last, and who took that back."""


@dataclass(frozen=True, slots=True)
class _Rule:
    kind: str
    pattern: re.Pattern[str]
    says: str
    value: Callable[[str, re.Match[str]], str]
    is_single: bool = False
    """Whether one holds at a time: a newer one takes the place of the older."""


def told(messages: Iterable[tuple[str, datetime, ClaimSource]]) -> SelfStatements:
    """What holds by now of what messages say, the oldest of them first."""
    places: dict[tuple[str, str], _Slot] = {}
    for content, at, source in messages:
        for rule, value, is_taken_back in _match_message(content):
            name = (rule.kind, "" if rule.is_single else value.casefold())
            line = SelfStatement(rule.kind, rule.says.format(value), at, source)
            before = places.get(name, _Slot())
            if is_taken_back:
                if before.line is None or before.line.text.casefold() != line.text.casefold():
                    continue
                places[name] = _Slot(None, before.said_in, (before.line.source, source))
            else:
                # The one that was said last is the last one.
                places.pop(name, None)
                places[name] = _Slot(line if value else None, before.said_in, (source,))
            places[name].said_in.add(source.ref)
    newest = [place.line for place in reversed(places.values()) if place.line][:MAX_SELF_STATEMENTS]
    order = list(dict.fromkeys(rule.kind for rule in _RULES))
    lines = {line.text.casefold(): line for line in sorted(newest, key=lambda line: order.index(line.kind))}
    return SelfStatements(
        tuple(lines.values()), _add_ending_sources([line.source for line in lines.values()], places.values())
    )


def _add_ending_sources(sources: Iterable[ClaimSource], places: Iterable[_Slot]) -> tuple[ClaimSource, ...]:
    """Some messages, with those that tell how all that they say is by now."""
    kept = {source.ref: source for source in sources}
    known = -1
    while known < len(kept):
        known = len(kept)
        for place in places:
            if not place.said_in.isdisjoint(kept):
                kept.update((source.ref, source) for source in place.latest)
    return tuple(kept.values())


def _match_message(content: str) -> Iterator[tuple[_Rule, str, bool]]:
    """Which rules a message follows, with what it says by them, and whether it takes that back.

    What says something that does not belong into a profile says nothing, but ends the one that it takes the place of.
    """
    if is_text_task(content) or is_fiction(content):
        return
    text = mask_other_speakers(mask_quotes(mask_secrets(content)))
    for start, end in find_sentence_spans(text):
        sentence = mask_other_speakers(text[start:end])
        if end - start > MAX_SENTENCE_CHARS or _ASKS.search(sentence) or _UNSAID.search(sentence):
            continue
        for clause, rest in _split_clauses(sentence):
            yield from _match_clause(clause, rest)
            if _NO_FACT.search(clause):
                break


def _match_clause(clause: str, rest: str) -> Iterator[tuple[_Rule, str, bool]]:
    """What a clause says by each rule, and whether it takes that back; `rest` is how its sentence goes on."""
    plain, denied = _undo_negation(clause)
    has_ended = _NO_MORE.search(clause) is not None
    for rule in _RULES:
        for found in rule.pattern.finditer(plain):
            at = found.start()
            if denied < at or _NO_FACT.search(plain, 0, at) or _DENIES.search(plain, 0, at):
                break
            value = " ".join(rule.value(plain + rest, found).split())
            line = rule.says.format(value)
            if not value or len(line) > MAX_LINE_CHARS or contains_secret(line) or _ORDERS.search(line):
                continue
            is_taken_back = has_ended or denied == at
            if not is_sensitive(line):
                yield rule, value, is_taken_back
            elif rule.is_single and not is_taken_back:
                yield rule, "", False


def _split_clauses(sentence: str) -> Iterator[tuple[str, str]]:
    """The parts of a sentence in which somebody says one thing of themself, each with some of what follows it."""
    start = 0
    for found in _CLAUSE.finditer(sentence):
        yield sentence[start : found.end()], sentence[found.end() : found.end() + MAX_LINE_CHARS]
        start = found.end()
    yield sentence[start:], ""


def _undo_negation(clause: str) -> tuple[str, int]:
    """A clause that says that something is not so as one that says that it is; and where that begins, else its end."""
    plain = _NO_MORE.sub("", clause)
    for pattern, words in _TAKEN_BACK:
        found = pattern.search(plain)
        if found:
            return plain[: found.start()] + found.expand(words) + plain[found.end() :], found.start()
    return plain, len(plain)


def _parse_place(text: str, found: re.Match[str]) -> str:
    words, end = parse_name_after(text, found.end())
    country, _ = parse_name_after(text, end + 2) if text[end : end + 2] == ", " else ([], end)
    return ", ".join(" ".join(part) for part in (words, country[:3]) if part) if words else ""


def _parse_organization(text: str, found: re.Match[str]) -> str:
    words, _ = parse_name_after(text, found.end(), shouted=True, most=5)
    return " ".join(words) if may_be_organization(words) else ""


def _parse_phrase(text: str, found: re.Match[str], most: int = 5) -> str:
    """What follows, up to where something else begins."""
    rest = text[found.end() : found.end() + MAX_LINE_CHARS].lstrip()
    end = _PHRASE_END.search(rest)
    words = (rest[: end.start()] if end else rest).split()
    return " ".join(words) if 0 < len(words) <= most else ""


def _parse_topic(text: str, found: re.Match[str]) -> str:
    phrase = _parse_phrase(text, found)
    if _SKILL.match(phrase):
        return phrase
    is_short = len(phrase.split()) <= MAX_TOPIC_WORDS or is_capitalised(phrase.split()[0])
    return phrase if is_short and not _NO_TOPIC.match(phrase) else ""


def _parse_list(text: str, found: re.Match[str]) -> str:
    """What follows, up to the end of the sentence."""
    return re.split(r"[.;!?\n]| (?:but|because|so|aber|weil)\b", text[found.end() :])[0].strip(" ,:")


def _get_group(_text: str, found: re.Match[str]) -> str:
    return found.group(1)


def _parse_named_pets(_text: str, found: re.Match[str]) -> str:
    kind = found.group("pet").lower()
    kind = _PET_CALLED.get(kind, kind)
    return f"{kind if kind.endswith('s') else f'a {kind}'} called {found.group('name')}"


def _rule(
    kind: str, pattern: str, says: str, value: Callable[[str, re.Match[str]], str], *, single: bool = False
) -> _Rule:
    return _Rule(kind, re.compile(pattern, re.IGNORECASE), says, value, single)


_WORK = rf"\bI{_NOW} (?:live in [^.;!?]{{1,40}} and )?work{_NOW}|\b{_AM}{_NOW} working"
_ARBEITE = rf"\bich (?:(?:wohne|lebe) [^.;!?]{{1,40}} und )?arbeite{_NOW}"
_BEGAN = r"\bI(?:['’]ve| have)?(?: just| recently| finally| now)? started(?: working| work| a new job| my new job)?"
_ROLE = r"(?P<role>(?:an? |the )(?:[^\W\d_]{2,20}[ -]){0,3}[^\W\d_]{3,25})"
_ROLLE = r"(?P<role>(?:eine? )?[^\W\d_]{4,30})"
_HAVE = rf"\b(?:I|we|ich|wir){_NOW} (?:have|habe|haben)"
_RULES = (
    _rule("home", rf"\b(?:I|we){_NOW} live{_NOW} in (?:the )?", "lives in {}", _parse_place, single=True),
    _rule("home", rf"\b{_AM}{_NOW} (?:living|based) in (?:the )?", "lives in {}", _parse_place, single=True),
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
        parse_new_home,
        single=True,
    ),
    _rule(
        "home",
        r"\b(?:ich bin|wir sind)(?: [^\W\d_]{2,12}){0,3} nach (?=[^.;!?]{2,40} (?:um)?gezogen\b)",
        "lives in {}",
        parse_new_home,
        single=True,
    ),
    _rule("role", rf"(?:{_WORK}) as (?=an? |the )|{_ARBEITE} als ", "works as {}", _parse_phrase, single=True),
    _rule("employer", rf"(?:{_WORK}) (?:at|for) ", "works at {}", _parse_organization, single=True),
    _rule("employer", rf"{_ARBEITE} bei (?:der |dem )?", "works at {}", _parse_organization, single=True),
    _rule("employer", rf"(?:{_WORK}) as {_ROLE} (?:at|for) (?:the )?", "works at {}", parse_new_employer, single=True),
    _rule("employer", rf"{_ARBEITE} als {_ROLLE} bei (?:der |dem )?", "works at {}", parse_new_employer, single=True),
    _rule("role", rf"\b{_AM}{_NOW} {_ROLE} (?:at|for) (?:the )?", "works as {}", parse_new_role, single=True),
    _rule("role", rf"{_BEGAN} as {_ROLE} (?:at|for|with) ", "works as {}", parse_new_role, single=True),
    _rule("role", rf"\bich bin{_NOW} {_ROLLE} bei (?:der |dem )?", "works as {}", parse_new_german_role, single=True),
    _rule("employer", rf"\b{_AM}{_NOW} {_ROLE} (?:at|for) (?:the )?", "works at {}", parse_new_employer, single=True),
    _rule("employer", rf"{_BEGAN}(?: as {_ROLE})? (?:at|for|with) ", "works at {}", parse_new_employer, single=True),
    _rule("employer", rf"\bich bin{_NOW} {_ROLLE} bei (?:der |dem )?", "works at {}", parse_new_employer, single=True),
    _rule(
        "employer",
        r"\bich habe(?: [^\W\d_]{2,12}){0,3} bei (?:der |dem )?(?=[^.;!?]{2,40} (?:angefangen|begonnen)\b)",
        "works at {}",
        parse_new_employer,
        single=True,
    ),
    _rule("studies", rf"\bI{_NOW} study |\b{_AM}{_NOW} studying ", "studies {}", _parse_topic, single=True),
    _rule("studies", rf"\bich studiere{_NOW} ", "studies {}", _parse_topic, single=True),
    _rule("children", rf"{_HAVE} ({_COUNTS} {_CHILDREN}){_END}", "has {}", _get_group, single=True),
    _rule(
        "pets",
        rf"{_HAVE} ({_COUNTS} {_PETS}(?: (?:and|und) {_COUNTS} {_PETS})?){_END}",
        "has {}",
        _get_group,
        single=True,
    ),
    _rule("pet names", rf"\b(?:my|our) {_NAMED_PETS}{_END}", "has {}", _parse_named_pets),
    _rule("pet names", rf"\b(?:meine?|unsere?) {_BENANNTE}{_END}", "has {}", _parse_named_pets),
    _rule("diet", rf"\b{_AM}{_NOW} (?:an? )?(?:strict )?({_DIETS}){_END}", "is {}", _get_group, single=True),
    _rule("diet", rf"\bich bin{_NOW} ({_DIETS}){_END}", "is {}", _get_group, single=True),
    _rule("learns", rf"\b{_AM}{_NOW} learning (?:how )?|\bich lerne{_NOW} ", "is learning {}", _parse_topic),
    _rule("plays", rf"\bI{_NOW} play{_NOW} ((?:the )?{_INSTRUMENTS}|{_SPORTS}){_END}", "plays {}", _get_group),
    _rule("plays", rf"\bich spiele{_NOW} ({_INSTRUMENTS}|{_SPORTS}){_END}", "plays {}", _get_group),
    _rule("speaks", rf"\bI{_NOW} speak (?:fluent )?({_LANGUAGES})\b", "speaks {}", _get_group),
    _rule("speaks", rf"\bich spreche{_NOW} (?:fließend )?({_LANGUAGES})\b", "speaks {}", _get_group),
    _rule("hobby", r"\bmy (?:favou?rite |main )?hobb(?:y is|ies are) ", "hobby: {}", _parse_list),
    _rule("hobby", r"\bmein hobby ist |\bmeine hobbys sind ", "hobby: {}", _parse_list),
)
"""In the order in which a profile tells them."""

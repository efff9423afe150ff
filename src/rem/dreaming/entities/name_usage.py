"""Uses: names that stand where a person stands ("Tom told me …", "lunch with Tom"), and what that tells of the name.

One use makes nobody known. What several of them show together does: that it is a person, that it is one of those whom
the memory's owner deals with, and that it is a name also inside a sentence, where a capital tells something.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rem.dreaming.entities.evidence import PERSON, Evidence, EvidenceKind, UsageTrait
from rem.dreaming.entities.introductions import RELATION_WORDS
from rem.dreaming.entities.name_parsing import (
    PARTICLES,
    STOP_WORDS,
    TITLES,
    get_sentence_at,
    is_capitalised,
    is_sentence_start,
    word_set,
)
from rem.dreaming.text.masking import is_fiction, is_text_task, mask_quotes
from rem.text import find_sentence_spans

Traits = frozenset[UsageTrait]
_HUMAN, _PERSONAL, _PLAIN = Traits({UsageTrait.HUMAN}), Traits({UsageTrait.PERSONAL}), Traits()
_BOTH = _HUMAN | _PERSONAL

_ADVERBS = r"(?:(?:just|also|already|still|finally|always|then|now|later|really|actually|only|once|recently) )*"
_HAS = rf"(?: (?:has|had|have|will|would|did|does|can|could|may|might)(?:n['’]t| not)?)? (?:never )?{_ADVERBS}"
_ME = r"(?:me|us|my \w+|our \w+)\b"
_DOES = (
    r"(?:said|says?|told|tells?|asked|asks?|wrote|writes?|thinks?|thought|called|calls?|emailed|texted|phoned|messaged"
    r"|replied|replies|answered|promised|suggested|suggests?|explained|recommended|recommends?|sent|sends?|mentioned"
    r"|wants?|agreed|offered|forgot|helped|helps?|lent|gave|gives?|showed|brought|paid|reminded|warned|complained"
    r"|apologi[sz]ed|knows?|likes?|hates?|loves?|believes?)"
)
_MAY = r"(?: (?:have|had|will|would|should|must|need to|want to|have to|can|did))?"
_I = rf"\b(?:I|we)(?:['’](?:ve|ll|d))?{_MAY} {_ADVERBS}"
_DO_TO = (
    r"(?:call(?:ed|ing)?|phoned?|text(?:ed|ing)?|ask(?:ed|ing)?|tell|told|telling|e?mail(?:ed|ing)?|thank(?:ed)?"
    r"|messaged?|remind(?:ed)?|ping(?:ed)?|pay|paid|owed?|help(?:ed)?|answer(?:ed)?|show(?:ed)?|g[ai]ve|sen[dt]"
    r"|(?:write|wrote|writing|reply|replied|speak|spoke|talk|talked|talking|explain|explained|lend|lent)"
    r" (?:back )?(?:to|with))"
)
_RELATIVES = (
    r"(?:wife|husband|brother|sister|mother|father|mom|mum|dad|son|daughter|kids?|child|children|parents|boyfriend"
    r"|girlfriend|fiancée?|cousin|uncle|aunt|birthday|wedding|phone number|frau|mann|bruder|schwester|mutter|vater|sohn"
    r"|tochter|kinder|eltern|freundin|freund|geburtstag|hochzeit)"
)
_WORDS = r" (?:(?!nie\b|niemals\b)[\w-]+ ){0,8}"
_ICH_HABE = r"\b(?:habe?|haben) (?:ich |wir )?(?:(?:gestern|heute|dann|auch|gerade|schon|neulich|vorhin) )*"


def _compiled(patterns: Iterable[tuple[str, Traits]], frame: str) -> tuple[tuple[re.Pattern[str], Traits], ...]:
    return tuple((re.compile(frame.format(pattern), re.IGNORECASE), traits) for pattern, traits in patterns)


AFTER = _compiled(
    (
        (r" (?:and|or|und|&) (?:I|ich)\b", _BOTH),
        (rf"{_HAS}{_DOES}\b", _PLAIN),
        (rf"{_HAS}{_DOES} (?:to )?{_ME}", _PERSONAL),
        (rf"{_HAS}(?:invited|introduced|hugged|kissed|visited|married|drove|joined|accompanied|picked) {_ME}", _BOTH),
        (r"(?: is| was| will be) on (?:\w+ )?(?:leave|holiday|vacation)\b", _HUMAN),
        (r"(?: is| was) (?:ill|sick|pregnant|retired|engaged|married)\b", _HUMAN),
        (rf"{_HAS}(?:laughed|smiled|cried|sleeps|got married|got engaged|gave birth|turned \d\d)\b", _HUMAN),
        (rf"{_HAS}(?:(?:is )?coming over|c[ao]me over|dropped by|stopped by|is visiting (?:me|us))\b", _BOTH),
        (rf"['’]s? {_RELATIVES}\b", _HUMAN),
        (
            rf" hat (?:mir|uns){_WORDS}(?:gesagt|erzählt|geschrieben|geschickt|geholfen|versprochen|empfohlen|gezeigt"
            r"|gegeben|geantwortet|erklärt)\b",
            _PERSONAL,
        ),
        (rf" hat (?:mich|uns){_WORDS}(?:gefragt|angerufen|gebeten|erinnert)\b", _PERSONAL),
        (rf" hat (?:mich|uns){_WORDS}(?:eingeladen|besucht|umarmt|abgeholt)\b", _BOTH),
        (r" (?:sagte?|meinte?|erzählte?|fragte?|schrieb|schreibt|rief|bat|will|möchte|kommt)\b", _PLAIN),
        (r" (?:sagte?|erzählte?|fragte?|schrieb|bat) (?:mir|mich|uns)\b", _PERSONAL),
        (r" ist (?:krank|schwanger|im urlaub|in elternzeit|verheiratet|verlobt)\b", _HUMAN),
        (r" kommt (?:zu besuch|vorbei)\b", _BOTH),
    ),
    "{}",
)
"""What follows a name at once."""
BEFORE = _compiled(
    (
        (rf"{_I}(?:met|meet|hug|hugged|married|dated|invited?|picked up|hang out with|hung out with)", _BOTH),
        (rf"{_I}{_DO_TO}", _PERSONAL),
        (
            r"(?:^|[.!?,;:]\s*|\b(?:please|to|and|can you|could you|(?:should|shall|do|did|must) I|let['’]s) )"
            rf"{_DO_TO}",
            _PERSONAL,
        ),
        (r"\b(?:lunch|dinner|breakfast|brunch|coffee|tea|drinks?|beers?|a walk|a date) with", _BOTH),
        (r"\b(?:my|our|a|the) (?:\w+ )?(?:call|chat|meeting|appointment|conversation|lesson) with", _PERSONAL),
        (r"\b(?:ich|wir) (?:traf|trafen|treffen?|besuchen?|heirate)(?: (?:heute|morgen|gestern))?", _BOTH),
        (r"\b(?:ich|wir) (?:fragen?|fragte|rufe|rief)", _PERSONAL),
        (r"(?:^|[.!?,;:]\s*|\bbitte )(?:frage?|ruf|schreibe?(?: an)?|sage?|erinnere)", _PERSONAL),
    ),
    r"(?:{}) \Z",
)
"""What a name follows at once."""
AROUND = tuple(
    (re.compile(rf"{before}\Z", re.IGNORECASE), re.compile(rf"{_WORDS}(?:{after})\b", re.IGNORECASE), traits)
    for before, after, traits in (
        (_ICH_HABE, r"getroffen|eingeladen|kennengelernt|geheiratet|abgeholt|umarmt", _BOTH),
        (_ICH_HABE, r"angerufen|gefragt|gebeten|erinnert|besucht", _PERSONAL),
        (r"\bmit ", r"gegessen|essen|verabredet|befreundet|verheiratet|spazieren", _BOTH),
        (r"\bmit ", r"telefoniert|gesprochen|geredet|getroffen", _PERSONAL),
    )
)
"""German has the verb at the end."""

NOT_SO = re.compile(
    r"\b(?:if|unless|whether|wish(?:ed|es)?|imagine[ds]?|suppose|pretend|never|wenn|falls|ob|nie|niemals)\b[^,;:]*\Z",
    re.IGNORECASE,
)
"""Before what the owner does to a name: then it is not done."""
_REACHED = r"(?:call(?:ed|ing|s)?|phoned?|rang|e?mail(?:ed|ing)?|messaged?|texted|wrote|paid|pay|rief|rufe)"
REACHED = (
    re.compile(
        rf"\b(?:{_REACHED}|(?:write|wrote|writing|reply|replied|speak|spoke|talk|talked|talking|call|chat|conversation)"
        r" (?:back )?(?:to|with)) \Z",
        re.IGNORECASE,
    ),
    re.compile(rf"{_HAS}{_REACHED}\b", re.IGNORECASE),
)
"""Before a name, and after it: whoever is reached there may be a firm, and "she" the one who answers for it."""

CREATURE = re.compile(
    r"\b(?:dog|cat|puppy|kitten|horse|pony|hamster|rabbit|bunny|parrot|goldfish|turtle|pet|hund|hündin|katze|kater|welpe"
    r"|pferd|hase|kaninchen|papagei|character|hero|heroine|villain|wizard|knight|figur|held|heldin)"
    r"(?:,| is| was| heißt|'s name is)?(?: called| named| namens)? \Z",
    re.IGNORECASE,
)
"""Before the name of an animal, or of somebody who is made up."""
NOT_LIFE = re.compile(
    r"\b(?:films?|movies?|series|episodes?|season|books?|games?|plays?|scenes?|characters?|songs?|bands?|albums?|lyrics"
    r"|concerts?|fans?|articles?|headlines?|news(?:paper)?|press|journalists?|interview(?:s|ed)?"
    r"|podcasts?|vet|dogs?|cats?|pupp(?:y|ies)|kittens?|leash|paws?|hamsters?|rabbits?|parrots?|horses?"
    r"|buch|bücher|serie|folge|staffel|spiel|lied|artikel|zeitung|nachrichten|tierarzt|hund|katze|pferd|leine)\b",
    re.IGNORECASE,
)
"""A message that speaks of this may name somebody who is none of the owner's people."""


MAX_MESSAGE_CHARS = 1200
"""What is longer was pasted rather than said, and its "I" is anyone's."""
MAX_NAME_WORDS = 3
MIN_WORD_CHARS = 3
_WORD = re.compile(r"[^\W\d_]{1,40}(?:['’\-][^\W\d_]{1,40}){0,3}")
_IN_SHORT = re.compile(r"['’](?:s|d|m|re|ve|ll|t)?\Z", re.IGNORECASE)
_GENITIVE = re.compile(r"['’]s?\Z")
_INNER_CAPITAL = re.compile(r"(?<!\bMc)(?<!\bMac)(?<=[a-zß-öø-ÿ])[A-ZÀ-Þ]")
_GRAMMAR = STOP_WORDS | PARTICLES
_NO_NAME = word_set(
    """
    alexa siri cortana chatgpt claude gemini copilot bixby gpt bot
    mom mum mommy mama mutti mami dad daddy papa vati papi oma opa omi opi grandma grandpa granny nana mother father
    mutter vater tante onkel auntie aunt uncle sis bro bruder schwester boss chef chefin kollege kollegin kollegen
    kunde kundin kunden nachbar nachbarin nachbarn vermieter vermieterin lehrer lehrerin arzt ärztin freund freundin
    freunde leute jemand niemand einer keiner alle frau mann kind kinder eltern geschwister doctor doc nurse teacher
    professor coach sir madam lady lord king queen prince princess president mayor captain king santa jesus
    god gott allah satan lord jesus moses nobody everyone everybody someone somebody anyone people customers students
    street road avenue lane square bridge park hill river lake valley station airport straße weg platz gasse allee
    brücke bahnhof inc ltd llc corp gmbh ag bank airways airlines university institute college school academy hospital
    clinic church council club agency ministry department office team group labs lab company hotel restaurant cafe
    times post journal party support service services center centre store shop insurance embassy court police federal
    bahn versicherung amt verein stadt gemeinde universität schule klinik praxis firma
    english german french spanish italian american british european christmas easter weihnachten ostern spring summer
    autumn winter frühling sommer herbst apparently yesterday luckily sadly maybe perhaps anyway meanwhile although
    because since while once later well sorry great gestern heute leider dann als wenn weil vielleicht endlich neulich
    """
)
"""What has a capital where a person may stand, and is none of the owner's people."""
_BEFORE_NO_NAME = word_set(
    """
    the a an this that these those my our your his her their its every each some any no another der die das den dem
    des ein eine einen einem einer eines mein meine meinen meinem meiner unser unsere unseren unserem dein deine
    ihre ihr ihren seine sein seinen kein keine keinen
    """
)
_PRONOUN = re.compile(r"\b(?:he|she|his|her|him|himself|herself|er|ihm|seine[mnrs]?)\b", re.IGNORECASE)
_PEOPLE_NOUNS = RELATION_WORDS | word_set(
    "man woman guy girl boy lady kid driver agent clerk representative employee advisor someone somebody"
)
MAX_CONTEXT_CHARS = 100
"""So far from a name something may still be about it."""


@dataclass(frozen=True, slots=True)
class _Name:
    """A run of words that may be a name."""

    words: tuple[str, ...]
    start: int
    end: int


def uses(text: str, place: int) -> Iterator[Evidence]:
    """Where a text that somebody says uses a name as that of a person; or as that of an animal or a figure."""
    if len(text) > MAX_MESSAGE_CHARS:
        return
    is_life = NOT_LIFE.search(text) is None and not is_text_task(text)
    said = mask_quotes(text)
    spans = list(find_sentence_spans(said))
    for number, (start, end) in enumerate(spans):
        until = spans[number + 1][1] if number + 1 < len(spans) else end
        for name in _find_names(said, start, end):
            traits = _find_traits(said, name, start, end, until)
            if traits is not None and (is_life or UsageTrait.OTHER in traits):
                yield Evidence(
                    kind=EvidenceKind.USE,
                    entity_type=PERSON,
                    words=name.words,
                    place=place,
                    start=name.start,
                    confidence=0.0,
                    traits=traits,
                    says=get_sentence_at(text, name.start),
                )


def is_about_fiction(texts: Sequence[str]) -> bool:
    """Whether a conversation is about something made up."""
    return any(map(is_fiction, texts))


def _find_traits(text: str, name: _Name, start: int, end: int, until: int) -> Traits | None:
    """What a use tells of the name; None if it is not used as a person's."""
    before, after = text[max(start, name.start - MAX_CONTEXT_CHARS) : name.start], text[name.end : end]
    previous = before.split()[-1].strip(".,:").lower() if before.split() else ""
    if CREATURE.search(before):
        return Traits({UsageTrait.OTHER})
    if previous in _BEFORE_NO_NAME or previous in TITLES:
        return None
    found = [traits for pattern, traits in AFTER if pattern.match(after)]
    if not NOT_SO.search(before):
        found += [traits for pattern, traits in BEFORE if pattern.search(before)]
        found += [traits for left, right, traits in AROUND if left.search(before) and right.match(after)]
    if not found:
        return None
    is_reached = REACHED[0].search(before) or REACHED[1].match(after)
    if not is_reached and _continues_with_pronoun(text[name.end : until]):
        found.append(Traits({UsageTrait.HUMAN}))
    if not is_sentence_start(text, name.start):
        found.append(Traits({UsageTrait.INSIDE}))
    return Traits().union(*found)


def _continues_with_pronoun(following: str) -> bool:
    """Whether what follows a name goes on with a pronoun that can mean nobody else."""
    found = _PRONOUN.search(following[:MAX_CONTEXT_CHARS])
    if found is None:
        return False
    between = [word.group() for word in _WORD.finditer(following, 0, found.start())]
    others = [word for word in between if is_capitalised(word) and word.lower() not in STOP_WORDS]
    return not others and not any(word.lower() in _PEOPLE_NOUNS for word in between)


def _find_names(text: str, start: int, end: int) -> Iterator[_Name]:
    """The runs of words with capitals in a sentence that may be names."""
    run: list[re.Match[str]] = []
    for found in _WORD.finditer(text, start, end):
        if run and (text[run[-1].end() : found.start()] != " " or _GENITIVE.search(run[-1].group())):
            yield from _parse_name(run)
            run = []
        if is_capitalised(found.group()) or (run and found.group() in PARTICLES):
            run.append(found)
        else:
            yield from _parse_name(run)
            run = []
    yield from _parse_name(run)


def _parse_name(run: Sequence[re.Match[str]]) -> Iterator[_Name]:
    words = [found.group() for found in run]
    first = 0
    while first < len(words) and _is_function_word(words[first]):
        first += 1
    last = len(words)
    while last > first and _is_function_word(words[last - 1]):
        last -= 1
    if last == first:
        return
    ending = _GENITIVE.search(words[last - 1])
    plain = [*words[first : last - 1], _GENITIVE.sub("", words[last - 1])]
    if _may_be_name(plain):
        yield _Name(tuple(plain), run[first].start(), run[last - 1].end() - (len(ending.group()) if ending else 0))


def _is_function_word(word: str) -> bool:
    """Whether it is a word of the grammar, also in short: I'll, That's."""
    return _IN_SHORT.sub("", word.lower()) in _GRAMMAR


def _may_be_name(words: Sequence[str]) -> bool:
    own = [word for word in words if word not in PARTICLES]
    return (
        0 < len(own) <= MAX_NAME_WORDS
        and own[0].lower() not in TITLES
        and all(word.lower() not in _NO_NAME and not _INNER_CAPITAL.search(word) for word in own)
        and not any(map(_is_function_word, own))
        and (len(own) > 1 or len(own[0]) >= MIN_WORD_CHARS)
        and any(len(word) >= MIN_WORD_CHARS for word in own)
    )

"""Use patterns: in which places of a sentence only a person stands, or somebody whom the owner deals with."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rem.dreaming.entities.evidence import Trait

Traits = frozenset[Trait]
_HUMAN, _PERSONAL, _PLAIN = Traits({Trait.HUMAN}), Traits({Trait.PERSONAL}), Traits()
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

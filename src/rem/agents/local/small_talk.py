"""What `rem:local` understands of a conversation: what needs no search, and what a short question refers to."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rem.agents.local.excerpts import ELSE, NOTICE, shorten
from rem.errors import QuerySyntaxError
from rem.query.language.grammar import VERBS
from rem.query.language.parser import parse_query

MAX_QUESTION_CHARS = 2_000
_LONGEST_REFERRED = 500
_MOST_LISTED = 10
_ONLY_REPEATED = f"{NOTICE}, so I can only repeat what was said."
_MOST_WORDS = 8
"""A follow-up is short; a longer question says what it is about."""

_MUCH = r"(?: (?:there|rem|all|everyone|a lot|so much|very much|again))?"
_GREETING = re.compile(
    r"(?:(?:hi|hello|hey|hiya|yo|hallo|hola|salut|bonjour|ciao|servus|moin|good (?:morning|afternoon|evening|day)|"
    rf"guten (?:tag|morgen|abend)|test|ping|help|what can you do|who are you|how are you){_MUCH})?"
)
_THANKS = re.compile(
    rf"(?:(?:ok|okay|great|perfect|cool|nice) )?(?:many )?(?:thanks|thank you|thx|ty|danke|merci|gracias){_MUCH}"
    r"(?: for (?:that|this|your help|the help))?"
)
_ASSENT = re.compile(r"ok|okay|all right|alright|got it|great|perfect|cool|nice|good|fine|i see")
_FAREWELL = re.compile(rf"(?:bye(?: bye)?|goodbye|good bye|good night|see you|tschüss){_MUCH}")

_LEAD = (
    r"(?:(?:and|so|ok|okay|please|hey) )*"
    r"(?:do you (?:still )?(?:remember|know|recall) |(?:(?:can|could) you )?(?:please )?(?:tell me|remind me|repeat) )?"
)
_I = r"what (?:did |have |had )?i "
_SAY = r"(?:ask|asked|say|said|tell|told|write|written|wrote)(?: to)?(?: you)?"
_MESSAGE = r"(?:question|message|prompt|request)"
_THING = r"thing (?:that )?i (?:asked|said|told|wrote)(?: to)?(?: you)?"
_FIRST = re.compile(
    rf"{_LEAD}(?:{_I}(?:first|initially|originally) {_SAY}|"
    rf"{_I}{_SAY} (?:first|at first|initially|originally|(?:at|in) the (?:beginning|start))|"
    rf"(?:what was )?my (?:very )?first {_MESSAGE}|what was the (?:very )?first {_THING})"
)
_LAST = re.compile(
    rf"{_LEAD}(?:{_I}(?:just |last |previously )?{_SAY}"
    r"(?: just now| just| last| before(?: that| this)?| previously| a moment ago| right now)?|"
    rf"(?:what was )?my (?:(?:last|previous|latest) )?{_MESSAGE}|what was the (?:last|previous) {_THING})"
)
_HERE = r"(?: so far| until now| just now| here| before| in this (?:conversation|chat|session))?"
_ALL = re.compile(
    rf"{_LEAD}(?:what (?:did|have|had|were|are) we (?:just |been )*"
    rf"(?:talk(?:ed|ing)?|speak(?:ing)?|spoken|chat(?:ted|ting)?|discuss(?:ed|ing)?)(?: about)?{_HERE}|"
    r"what(?:s| is| was) this (?:conversation|chat|session|talk) about|"
    rf"what (?:did |have )i {_SAY}(?: so far| until now| in this (?:conversation|chat|session))|"
    r"(?:what were |list |show )(?:all )?my questions(?: so far)?)"
)
_TO_REMEMBER = re.compile(
    r"(?:(?:please|also|and)[,\s]+|(?P<asks>(?:can|could|would|will) you\s+(?:please\s+)?))*"
    r"(?:remember|memori[sz]e|keep in mind|do(?:n['’]?t| not) forget|note|make a note|take a note)"
    r"(?:\s*:|\s+this\s*:|\s+(?=(?:that|my|i|i['’]?m|we|our|the|to)\b))\s*(?:that\s+)?(?P<fact>\S.*)",
    re.IGNORECASE | re.DOTALL,
)

_WORDS = re.compile(r"[\w'’-]+")
_CONTINUES = re.compile(r"\s*(?:and|but|also|what about|how about)\b", re.IGNORECASE)
_PRONOUN = re.compile(
    r"\b(?:[Ii]ts?|(?i:he|she|him|her|his|hers|they|them|their|theirs|these|those)|"
    r"(?i:this|that)(?! (?:week|month|quarter|year|time|morning|afternoon|evening|day)\b))\b"
)
_ASKING = frozenset(["who", "whom", "whose", "what", "when", "where", "why", "which", "how"])
_LITTLE = _ASKING | frozenset(
    [
        "for",
        "since",
        "until",
        "by",
        "with",
        "from",
        "to",
        "is",
        "was",
        "not",
        "so",
        "long",
        "much",
        "many",
        "often",
        "far",
    ]
)


def reply_without_search(question: str, earlier: Sequence[str]) -> str | None:
    """The answer to what needs no search, from what the user said earlier in the conversation; None for the rest."""
    plain = _plain(question)
    if _FIRST.fullmatch(plain):
        return _repeated("Of what I still have of this conversation, you first said", earlier[:1])
    if _LAST.fullmatch(plain):
        return _repeated("Before this you said", earlier[-1:])
    if _ALL.fullmatch(plain):
        # Without a conversation so far, an earlier one is meant, and that has to be searched.
        return _listed(earlier) if earlier else None
    return _courtesy(plain) or _noted(question)


def resolve_follow_up(question: str, earlier: Sequence[str]) -> tuple[str, ...]:
    """The question; before it, if it is a short one that leaves open what it is about, the one that it follows."""
    if not _is_follow_up(question):
        return (question,)
    said = (text for text in reversed(earlier) if not _is_about_the_talk(_plain(text)) and not _is_follow_up(text))
    followed = next(said, None)
    if followed is None:
        return (question,)
    if is_query(followed):
        # The verb of a query is no word to search for.
        followed = followed.split(maxsplit=1)[1]
    return (followed.strip()[:_LONGEST_REFERRED], question)


def is_query(text: str) -> bool:
    """Whether somebody wrote a query of REM's own language."""
    verb = text.split(maxsplit=1)[0] if text.strip() else ""
    if verb not in (*VERBS, "SELECT", "WITH") or len(text) > MAX_QUESTION_CHARS:
        return False
    try:
        parse_query(text)
    except QuerySyntaxError:
        return False
    return True


def _courtesy(plain: str) -> str | None:
    if _THANKS.fullmatch(plain):
        return f"You are welcome. {ELSE}"
    if _ASSENT.fullmatch(plain):
        return f"All right. {ELSE}"
    if _FAREWELL.fullmatch(plain):
        return f"Goodbye. {ELSE}"
    if _GREETING.fullmatch(plain):
        return (
            "Hello! Ask me about anything that you have stored: a name such as `sarah-chen`, a question in words, "
            f'or a query such as `SEARCH "database migration" LIMIT 5`. {NOTICE}, so I answer with extracts '
            "from memory; set `LLM__DEFAULT_MODEL` to change that."
        )
    return None


def _noted(question: str) -> str | None:
    """The answer to what is only to be kept."""
    found = _TO_REMEMBER.fullmatch(question.strip())
    if found is None or (question.rstrip().endswith("?") and not found["asks"]):
        return None
    return (
        f"Noted: “{shorten(found['fact'])}” It is kept in this conversation. If that has a session, it is stored, and "
        f"later questions find it, also from other conversations.\n\n{NOTICE}, so I keep it word for word."
    )


def _repeated(opening: str, said: Sequence[str]) -> str:
    if not said:
        return f"This is the first message of our conversation that I have.\n\n{_ONLY_REPEATED}"
    return f"{opening}: “{shorten(said[0])}”\n\n{_ONLY_REPEATED}"


def _listed(said: Sequence[str]) -> str:
    lines = [f"{number}. “{shorten(text)}”" for number, text in enumerate(said[-_MOST_LISTED:], start=1)]
    which = (
        "This is what you said" if len(said) <= _MOST_LISTED else f"These are the last {_MOST_LISTED} things you said"
    )
    return "\n".join([f"{which} in this conversation:", "", *lines, "", _ONLY_REPEATED])


def _is_about_the_talk(plain: str) -> bool:
    """Whether a message has nothing in it that a later one could refer to."""
    patterns = (_FIRST, _LAST, _ALL, _THANKS, _ASSENT, _FAREWELL, _GREETING)
    return any(pattern.fullmatch(plain) for pattern in patterns)


def _is_follow_up(question: str) -> bool:
    if len(question) > MAX_QUESTION_CHARS or is_query(question):
        return False
    words = _WORDS.findall(question)
    if not words or len(words) > _MOST_WORDS:
        return False
    if _CONTINUES.match(question) or _PRONOUN.search(question):
        return True
    first, *others = words
    if all(word.lower() in _LITTLE for word in words):
        return True
    return first.lower() in _ASKING and len(words) <= 2 and not any(word[0].isupper() for word in others)


def _plain(text: str) -> str:
    """The words in small letters; a long text is no small talk, whatever it begins with."""
    if len(text) > MAX_QUESTION_CHARS:
        return "a long text"
    return " ".join(re.sub(r"[^\w\s]", " ", re.sub(r"['’]", "", text)).split()).casefold()

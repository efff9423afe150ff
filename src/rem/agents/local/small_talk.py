"""Recognize messages that `rem:local` answers without a search, and resolve short follow-up questions."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rem.agents.decisions import parse_confirmation
from rem.agents.local.excerpts import CONFIRMATION, ELSE, NOTICE, shorten
from rem.errors import QuerySyntaxError
from rem.message_kinds import classify_message, is_reminder, is_topic, keep_statements, list_requests
from rem.models.message import MessageKind
from rem.query.language.grammar import VERBS
from rem.query.language.parser import parse_query
from rem.text import FUNCTION_WORDS, split_words
from rem.tools.help import answer_about_rem

MAX_QUESTION_CHARS = 2_000
MAX_FOLLOWED_CHARS = 500
"""Length of the earlier question that is searched together with its follow-up."""
MAX_LISTED_MESSAGES = 10
_REPEAT_NOTICE = f"{NOTICE}, so I can only repeat what was said."
MAX_FOLLOW_UP_WORDS = 8
"""A longer question usually names its subject."""

_OPTIONAL_ENDING = r"(?: (?:there|rem|all|everyone|a lot|so much|very much|again))?"
_GREETING = re.compile(
    r"(?:(?:hi|hello|hey|hiya|yo|hallo|hola|salut|bonjour|ciao|servus|moin|good (?:morning|afternoon|evening|day)|"
    rf"guten (?:tag|morgen|abend)|test|ping|how are you){_OPTIONAL_ENDING})?"
)
_THANKS = re.compile(
    r"(?:(?:ok|okay|great|perfect|cool|nice) )?(?:many )?"
    rf"(?:thanks|thank you|thx|ty|danke|merci|gracias){_OPTIONAL_ENDING}"
    r"(?: for (?:that|this|your help|the help))?"
)
_ASSENT = re.compile(r"ok|okay|all right|alright|got it|great|perfect|cool|nice|good|fine|i see")
_UNDO = re.compile(
    r"(?:please )?(?:undo|revert|roll back|take (?:it|that) back)(?: (?:it|that|this|the last one))?(?: please)?"
)
_FAREWELL = re.compile(rf"(?:bye(?: bye)?|goodbye|good bye|good night|see you|tschüss){_OPTIONAL_ENDING}")

_POLITE_LEAD = (
    r"(?:(?:and|so|ok|okay|please|hey) )*"
    r"(?:do you (?:still )?(?:remember|know|recall) |(?:(?:can|could) you )?(?:please )?(?:tell me|remind me|repeat) )?"
)
_I = r"what (?:did |have |had )?i "
_SAY = r"(?:ask|asked|say|said|tell|told|write|written|wrote)(?: to)?(?: you)?"
_MESSAGE = r"(?:question|message|prompt|request)"
_THING = r"thing (?:that )?i (?:asked|said|told|wrote)(?: to)?(?: you)?"
_ASKS_FIRST = re.compile(
    rf"{_POLITE_LEAD}(?:{_I}(?:first|initially|originally) {_SAY}|"
    rf"{_I}{_SAY} (?:first|at first|initially|originally|(?:at|in) the (?:beginning|start))|"
    rf"(?:what was )?my (?:very )?first {_MESSAGE}|what was the (?:very )?first {_THING})"
)
_ASKS_LAST = re.compile(
    rf"{_POLITE_LEAD}(?:{_I}(?:just |last |previously )?{_SAY}"
    r"(?: just now| just| last| before(?: that| this)?| previously| a moment ago| right now)?|"
    rf"(?:what was )?my (?:(?:last|previous|latest) )?{_MESSAGE}|what was the (?:last|previous) {_THING})"
)
_HERE = r"(?: so far| until now| just now| here| before| in this (?:conversation|chat|session))?"
_ASKS_ALL = re.compile(
    rf"{_POLITE_LEAD}(?:what (?:did|have|had|were|are) we (?:just |been )*"
    rf"(?:talk(?:ed|ing)?|speak(?:ing)?|spoken|chat(?:ted|ting)?|discuss(?:ed|ing)?)(?: about)?{_HERE}|"
    r"what(?:s| is| was) this (?:conversation|chat|session|talk) about|"
    rf"what (?:did |have )i {_SAY}(?: so far| until now| in this (?:conversation|chat|session))|"
    r"(?:what were |list |show )(?:all )?my questions(?: so far)?)"
)
_WORDS = re.compile(r"[\w'’-]+")
_CONTINUATION = re.compile(r"\s*(?:and|but|also|what about|how about)\b", re.IGNORECASE)
_PRONOUN = re.compile(
    r"\b(?:[Ii]ts?|(?i:he|she|him|her|his|hers|they|them|their|theirs|these|those)|"
    r"(?i:this|that)(?! (?:week|month|quarter|year|time|morning|afternoon|evening|day)\b))\b"
)
_NAMED_AFTER = re.compile(r"(?: again)?,? (?:the|my|our) \w", re.IGNORECASE)
"""After a pronoun: what it means, as in "Where was it again, the parking spot?"."""
_QUESTION_WORDS = frozenset(["who", "whom", "whose", "what", "when", "where", "why", "which", "how"])
_EMPTY_WORDS = _QUESTION_WORDS | frozenset(
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
    """Return the answer to small talk, a statement or a question about this session or REM; None if it must search.

    `earlier` are the earlier user messages of the session.
    """
    plain = _simplify(question)
    if _ASKS_FIRST.fullmatch(plain):
        return _quote_message("Of what I still have of this conversation, you first said", earlier[:1])
    if _ASKS_LAST.fullmatch(plain):
        return _quote_message("Before this you said", earlier[-1:])
    if _ASKS_ALL.fullmatch(plain):
        # At the beginning of a session the question means an earlier session, which must be searched.
        return _list_messages(earlier) if earlier else None
    return (
        answer_about_rem(question)
        or _reply_to_courtesy(plain)
        or _reply_to_decision(question, plain)
        or _reply_to_statement(question)
        or _reply_to_chatter(question)
    )


def resolve_follow_up(question: str, earlier: Sequence[str]) -> tuple[str, ...]:
    """Return the question; for a short follow-up, the question that it follows and then the question."""
    if not _is_follow_up(question):
        return (question,)
    candidates = (text for text in reversed(earlier) if not _is_small_talk(_simplify(text)) and not _is_follow_up(text))
    followed = next(candidates, None)
    if followed is None:
        return (question,)
    if is_query(followed):
        # The verb of a query is not a word to search for.
        followed = followed.split(maxsplit=1)[1]
    return (followed.strip()[:MAX_FOLLOWED_CHARS], question)


def is_query(text: str) -> bool:
    """Return whether a text is a valid query in REM's query language."""
    verb = text.split(maxsplit=1)[0] if text.strip() else ""
    if verb not in (*VERBS, "SELECT", "WITH") or len(text) > MAX_QUESTION_CHARS:
        return False
    try:
        parse_query(text)
    except QuerySyntaxError:
        return False
    return True


def _reply_to_courtesy(plain: str) -> str | None:
    if _THANKS.fullmatch(plain):
        return f"You are welcome. {ELSE}"
    if _ASSENT.fullmatch(plain):
        return f"All right. {ELSE}"
    if _FAREWELL.fullmatch(plain):
        return f"Goodbye. {ELSE}"
    if _GREETING.fullmatch(plain):
        return (
            "Hello! Tell me something, and I note it. Ask me about anything that you have stored: a name, a question "
            f'in words, or a query such as `SEARCH "database migration" LIMIT 5`. {NOTICE}, so I answer with excerpts '
            "from memory; set `LLM__DEFAULT_MODEL` to change that."
        )
    return None


def _reply_to_decision(message: str, plain: str) -> str | None:
    """Return the answer to a yes, no or undo. A decision on a change that waits for it does not come this far."""
    if _UNDO.fullmatch(plain):
        return (
            "There is nothing that I can undo. What was corrected or said wrongly can be corrected again (“correction: "
            "…”), and what was forgotten is gone for good."
        )
    decision = parse_confirmation(message)
    if decision is None or decision.numbers is not None:
        return None
    return (
        "There is nothing to confirm or to drop: no change waits for your answer. A request to forget or correct "
        "something lapses after some minutes, or when something else is said; then ask for it again."
    )


def _reply_to_statement(message: str) -> str | None:
    """Return the answer to a message that only states something; None if it also asks something."""
    confirmation = confirm_statements(message)
    if confirmation is None or list_requests(message):
        return None
    return f"{confirmation}\n\n{NOTICE}, so I only note it. In a stored session, later questions find it."


def _reply_to_chatter(message: str) -> str | None:
    """Return the answer to a request for a reminder, and to small talk without a reply of its own."""
    if is_reminder(message):
        return f"{CONFIRMATION}{shorten(message)}” I cannot remind you by myself, but later questions find it."
    is_small_talk = bool(split_words(message)) and classify_message(message) is MessageKind.SMALL_TALK
    return f"All right. {ELSE}" if is_small_talk else None


def confirm_statements(message: str) -> str | None:
    """Return the confirmation of the statements in a message; None if it has none or is a mere topic."""
    if is_query(message) or is_topic(message):
        return None
    statements = keep_statements(message)
    return f"{CONFIRMATION}{shorten(statements)}”" if statements else None


def _quote_message(opening: str, messages: Sequence[str]) -> str:
    if not messages:
        return f"This is the first message of our conversation that I have.\n\n{_REPEAT_NOTICE}"
    return f"{opening}: “{shorten(messages[0])}”\n\n{_REPEAT_NOTICE}"


def _list_messages(messages: Sequence[str]) -> str:
    lines = [f"{number}. “{shorten(text)}”" for number, text in enumerate(messages[-MAX_LISTED_MESSAGES:], start=1)]
    is_complete = len(messages) <= MAX_LISTED_MESSAGES
    heading = "This is what you said" if is_complete else f"These are the last {MAX_LISTED_MESSAGES} things you said"
    return "\n".join([f"{heading} in this conversation:", "", *lines, "", _REPEAT_NOTICE])


def _is_small_talk(plain: str) -> bool:
    """Return whether a message has no subject that a later one could refer to."""
    patterns = (_ASKS_FIRST, _ASKS_LAST, _ASKS_ALL, _THANKS, _ASSENT, _FAREWELL, _GREETING, _UNDO)
    return any(pattern.fullmatch(plain) for pattern in patterns) or answer_about_rem(plain) is not None


def _is_follow_up(question: str) -> bool:
    if len(question) > MAX_QUESTION_CHARS or is_query(question):
        return False
    words = _WORDS.findall(question)
    if not words or len(words) > MAX_FOLLOW_UP_WORDS:
        return False
    if _CONTINUATION.match(question) or _has_open_pronoun(question):
        return True
    first, *others = words
    if all(word.lower() in _EMPTY_WORDS for word in words):
        return True
    return first.lower() in _QUESTION_WORDS and len(words) <= 2 and not any(word[0].isupper() for word in others)


def _has_open_pronoun(question: str) -> bool:
    """Return whether the question does not have what its pronoun means, as in "When does it end?"."""
    pronoun = _PRONOUN.search(question)
    if pronoun is None or _NAMED_AFTER.match(question, pronoun.end()):
        return False
    return not set(split_words(question[: pronoun.start()])) - FUNCTION_WORDS


def _simplify(text: str) -> str:
    """Return the words in lower case, without punctuation. A long text is never small talk."""
    if len(text) > MAX_QUESTION_CHARS:
        return "a long text"
    return " ".join(re.sub(r"[^\w\s]", " ", re.sub(r"['’]", "", text)).split()).casefold()

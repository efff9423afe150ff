"""Text helpers for every part of REM: clean a text, split it into sentences and words, recognise stop words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import sqrt

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
CJK = "\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Characters of Chinese and Japanese, for use inside a character class. They are written without spaces."""
UNSTORABLE_CHARACTER = re.compile("[\0\ud800-\udfff]")
"""NUL and lone surrogates, which PostgreSQL cannot store."""
MAX_LISTED_CHOICES = 16
"""Up to this number of choices are listed in an error message."""
_MESSAGE_KEY = re.compile(r"\Asession-([0-9a-f]{4})[0-9a-f-]{32}(-msg-[0-9]+)\Z")
_ANY_WORD = re.compile(rf"[{CJK}]|[^\W_{CJK}]+")
_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+|(?<=[。！？])|\n+")
_LAST_WORD = re.compile(r"(?<![^\s(\[\"'“„])([^\W\d_]{1,8}(?:\.[^\W\d_]{1,3})*)\.\Z")
_match_next_word = re.compile(r"[\"'“„(\[]*(\w+)").match


def _parse_words(*lists: str) -> frozenset[str]:
    return frozenset(word for words in lists for word in words.split())


_ENGLISH = """
a about above across after again against ago all almost along already also although always am among an and another any
anybody anyone anything anyway are aren't around as at away back be became because become been before behind being
below between both but by came can can't cannot come comes coming could couldn't did didn't do does doesn't doing
don't done down during each either else enough even ever every everybody everyone everything except far few first for
from further get gets getting give given gives giving go goes going gone gonna got had hadn't has hasn't have haven't
having he her here hers herself him himself his how however i i'd i'll i'm i've if in instead into is isn't it it'd
it'll it's its itself just keep kept last least less let let's like likely little lot lots made make makes making many
may maybe me might mine more most much must my myself near need needed needs neither never new next no nobody none nor
not nothing now of off often on once one ones only onto or other others our ours ourselves out over own per perhaps
put quite rather really said same saw say saying says see seem seems seen several shall she should shouldn't since so
some somebody somehow someone something sometimes somewhere soon still such sure take taken takes taking tell than
that that's the their theirs them themselves then there there's these they they'd they'll they're they've thing things
think this those though through thus to together told too took toward towards tried try trying two under until up upon
us use used uses using very via wanna want wanted wants was wasn't way ways we we'd we'll we're we've well went were
weren't what what's whatever when where whether which while who who's whole whom whose why will with within without
won't would wouldn't yes yet you you'd you'll you're you've your yours yourself today yesterday tomorrow tonight
morning afternoon evening week weeks month months year years day days hour hours minute minutes time times monday
tuesday wednesday thursday friday saturday sunday january february march april june july august september october
november december
"""
_GERMAN = """
der die das den dem des ein eine einen einem einer und oder aber nicht kein keine ist sind war waren wird werden wurde
hat haben hatte ich du er sie es wir ihr mich mir dich dir uns euch mein meine dein deine sein seine ihre unser mit
von zu zum zur bei auf aus nach für über unter vor durch um im als wie wenn dass weil auch noch nur schon sehr mehr
wer wo wann heute gestern morgen
"""
_FRENCH = """
le la les un une de et ou mais ne pas est sont était je tu il elle nous vous ils elles mon ma mes ton ta tes son sa
ses notre votre leur avec pour par sur dans en au aux ce cette ces que qui quoi où quand très plus aussi
"""
_SPANISH = """
el los las una unos unas y o pero era yo tú él ella nosotros ellos mi mis tus su sus con por para al del este esta
estos quien cuando donde muy más también
"""
FUNCTION_WORDS = _parse_words(_ENGLISH, _GERMAN, _FRENCH, _SPANISH)
"""Words without content of their own: articles, pronouns, auxiliary verbs, names of days and months."""
SMALL_TALK_WORDS = _parse_words("""
absolutely actually afraid agree alright amazing anytime appreciate ask asked asking assist assistance awesome bad
basically believe best better bit bye certainly chat check cheers clear cool correct course day definitely doubt
exactly excellent excited exciting explain fair fantastic favor feel feeling fine forward free fun glad good goodbye
gosh gotcha great greetings guess guys haha happen happened happy hear heard hello help helped helpful helping helps
hey hi hmm hope hoping idea important information interested interesting kind kinda know knows learn let like lol look
looking looks love lovely mean means mind mmm moment nah need nice nope noted oh ok okay part perfect person people
place please pleasure pretty probably problem question questions quick ready real right see share so sorry sound
sounds start started stuff suggest suggestion suggestions super sweet talk talking tell thank thanks thats thought
totally true understand understood uh um update useful wait welcome wonderful wondering work works worries worry wow
yeah yep yup danke bitte hallo tschüss gut schön genau merci bonjour salut oui gracias hola adiós sí vale
""")
"""Words of greetings, thanks and polite phrases."""
STOP_WORDS = FUNCTION_WORDS | SMALL_TALK_WORDS
ABBREVIATIONS = _parse_words("""
dr mr mrs ms mx prof st sr jr mt e.g i.e eg ie vs approx cf fig vol pp hr fr dipl ing z.b d.h u.a s.o s.u bzw ca ggf
evtl inkl bspw vgl sog tel str m.e mme mlle
""")
"""A full stop after one of these never ends a sentence."""
ABBREVIATIONS_BEFORE_LOWER_CASE = _parse_words("inc ltd co corp etc usw gmbh a.m p.m bros dept est min max")
"""A full stop after one of these does not end a sentence if a lower-case letter follows."""
ABBREVIATIONS_BEFORE_DIGIT = _parse_words("no nr art abs p sec ch")
"""A full stop after one of these does not end a sentence if a digit follows."""
MAX_FRONT_MATTER_CHARS = 50_000
_FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n(?P<yaml>.*?)^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_YAML_START = re.compile(r"\A\s*(?:#[^\n]*\n\s*)*(?:[^\s:#-][^\n:]*:(?:\s|\Z)|\Z)")


class BoundedPattern:
    """A regular expression whose time may grow faster than the text: it matches no text of more than `max_chars`."""

    def __init__(self, pattern: re.Pattern[str], max_chars: int) -> None:
        self._pattern = pattern
        self.max_chars = max_chars

    def search(self, text: str) -> re.Match[str] | None:
        """Return the first match; None in a text that is too long."""
        return self._pattern.search(text) if len(text) <= self.max_chars else None

    def fullmatch(self, text: str) -> re.Match[str] | None:
        """Return the match of the whole text; None for a text that is too long."""
        return self._pattern.fullmatch(text) if len(text) <= self.max_chars else None

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """Yield each match; none in a text that is too long."""
        return self._pattern.finditer(text) if len(text) <= self.max_chars else iter(())


def compile_bounded(pattern: str, max_chars: int, flags: int = 0) -> BoundedPattern:
    """Compile a regular expression for texts of at most `max_chars` characters. A test measures it with such texts."""
    return BoundedPattern(re.compile(pattern, flags), max_chars)


def clean_text(text: str, replacement: str = REPLACEMENT) -> str:
    """Replace each character that PostgreSQL cannot store: NUL and lone surrogates."""
    if text.isascii() and "\0" not in text:
        return text
    return UNSTORABLE_CHARACTER.sub(lambda _: replacement, text)


def collapse_spaces(text: str) -> str:
    """Return the text on one line, with one space for each run of white space and none at its ends."""
    return " ".join(text.split())


def find_front_matter(text: str) -> re.Match[str] | None:
    """Return the front matter at the start of a note, with its YAML as the group `yaml`; None if there is none.

    Text between two lines of dashes is no front matter unless it begins with a name and a colon, or is empty.
    """
    match = _FRONT_MATTER.match(text[:MAX_FRONT_MATTER_CHARS])
    return match if match and _YAML_START.match(match["yaml"]) else None


def fold_text(text: str) -> str:
    """Return the text on one line in lower case, to compare it with another."""
    return collapse_spaces(text).casefold()


def split_words(text: str) -> list[str]:
    """Return every word and number of a text in lower case; in scripts without spaces, every character."""
    return [match.group().lower() for match in _ANY_WORD.finditer(text)]


def compute_word_cosine(counts: Counter[str], other: Counter[str]) -> float:
    """Return the cosine (0 to 1) of two texts by their word counts."""
    common = sum(count * other[word] for word, count in counts.items() if word in other)
    if not common:
        return 0.0
    lengths = sum(n * n for n in counts.values()) * sum(n * n for n in other.values())
    return float(common / sqrt(lengths))


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text in their order with closing quotes, without white space around them."""
    starts = [start for start, _ in find_sentence_spans(text)]
    sentences = (text[start:end].strip() for start, end in pairwise([*starts, len(text)]))
    return [sentence for sentence in sentences if sentence]


def find_sentence_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end offset of each sentence, in their order, without closing quotes.

    A line break ends a sentence.
    """
    start = 0
    for match in _SENTENCE_END.finditer(text):
        if match.start() <= start or not _is_sentence_end(text, match.start(), match.end()):
            continue
        yield start, match.start()
        start = match.end()
    if start < len(text):
        yield start, len(text)


def _is_sentence_end(text: str, before: int, after: int) -> bool:
    if "\n" in text[before:after] or after >= len(text):
        return True
    word = _LAST_WORD.search(text, max(0, before - 20), before)
    if word is None:
        return True
    last, following = word.group(1), _match_next_word(text, after)
    next_word = following.group(1) if following else ""
    if len(last) == 1 and last.isupper():
        # "S. Chen" is a name. After "plan B. We" a new sentence begins.
        return not next_word[:1].isupper() or next_word.lower() in FUNCTION_WORDS
    folded = last.lower()
    is_abbreviation = (
        folded in ABBREVIATIONS
        or (folded in ABBREVIATIONS_BEFORE_LOWER_CASE and next_word[:1].islower())
        or (folded in ABBREVIATIONS_BEFORE_DIGIT and next_word[:1].isdigit())
    )
    return not is_abbreviation


def did_you_mean(word: str, choices: Sequence[str]) -> str:
    """Return a sentence with the most similar choice; if none is similar, a list of all choices if they are few."""
    similar = find_similar(word, choices)
    if similar is not None:
        return f" Did you mean {similar}?"
    return f" There are {', '.join(choices)}." if 0 < len(choices) <= MAX_LISTED_CHOICES else ""


def find_similar(word: str, choices: Sequence[str]) -> str | None:
    """Return the most similar choice; None if none is similar."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(word.lower()[:200], choices, n=1, cutoff=0.6)), None)


def shorten_message_key(key: str) -> str:
    """Return the key of a message as people read it, without most of the id of its session; other keys as they are."""
    return _MESSAGE_KEY.sub(r"\1…\2", key)

"""Words: which of a text's words say what it is about, judged without any statistics of other texts.

What a dream says must follow from its sources alone: with counts over all memories the same night, dreamt twice, would
read differently. How rare a word is in general is told by the tokenizer, whose vocabulary is ordered by frequency.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import lru_cache

from rem.memory.tokens import encode_tokens

_CJK = "\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_TOKEN = re.compile(
    # Katakana and Chinese characters stand for content words; hiragana between them is grammar.
    r"[\u30a1-\u30fa\u30fc]{2,12}|[\u3005\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]{2,8}"
    rf"|[^\W\d_{_CJK}][^\W_{_CJK}]*(?:(?:['’.+#-]|_{{1,3}})[^\W_{_CJK}]+)*"
)
_ANY_WORD = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+")
_NUMBER = re.compile(r"\d")
_COMMONEST, _VOCABULARY = 300, 200_000
_LEAST_RARITY = 0.25

_GRAMMAR = """
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
november december der die das den dem des ein eine einen einem einer und oder aber
nicht kein keine ist sind war waren wird werden wurde hat haben hatte ich du er sie es wir ihr mich mir dich dir uns
euch mein meine dein deine sein seine ihre unser mit von zu zum zur bei auf aus nach für über unter vor durch um im
als wie wenn dass weil auch noch nur schon sehr mehr wer wo wann heute gestern morgen le la les un une de et ou mais
ne pas est sont était je tu il elle nous vous ils elles mon ma mes ton ta tes son sa ses notre votre leur avec pour
par sur dans en au aux ce cette ces que qui quoi où quand très plus aussi el los las una unos unas y o pero era yo tú
él ella nosotros ellos mi mis tus su sus con por para al del este esta estos quien cuando donde muy más también
"""
_TALK = """
absolutely actually afraid agree alright amazing anytime appreciate ask asked asking assist assistance awesome bad
basically believe best better bit bye certainly chat check cheers clear cool correct course day definitely doubt
exactly excellent excited exciting explain fair fantastic favor feel feeling fine forward free fun glad good goodbye
gosh gotcha great greetings guess guys haha happen happened happy hear heard hello help helped helpful helping helps
hey hi hmm hope hoping idea important information interested interesting kind kinda know knows learn let like lol look
looking looks love lovely mean means mind mmm moment nah need nice nope noted oh ok okay part perfect person people
place
please pleasure pretty probably problem question questions quick ready real right see share so sorry sound sounds
start started stuff suggest suggestion suggestions super sweet talk talking tell thank thanks thats thought totally
true understand understood uh um update useful wait welcome wonderful wondering work works worries worry wow yeah yep
yup danke bitte hallo tschüss gut schön genau merci bonjour salut oui gracias hola adiós sí vale
"""
FUNCTION_WORDS = frozenset(_GRAMMAR.split())
"""Words that carry no content, in the languages that are written most here."""
SMALL_TALK_WORDS = frozenset(_TALK.split())
"""Words of small talk."""
_SMALL_TALK_PHRASES = re.compile(
    r"お疲れ様|お疲れさま|御座|宜しく|有難|有り難|お願い|元気|了解|今日は|今晩は|你好|谢谢|謝謝|再见|再見|早上好|晚上好|不客气"
)


def extract_content_words(text: str) -> Iterator[str]:
    """The words that say what a text is about, in lower case, in their order, as often as they are there."""
    text = _SMALL_TALK_PHRASES.sub(" ", text)
    for found in _TOKEN.finditer(text):
        word = _strip_inflection(found.group())
        if is_content_word(word):
            yield word


def extract_distinct_words(text: str) -> frozenset[str]:
    """The words of a text in lower case, with those that say nothing by themselves."""
    return frozenset(map(_strip_inflection, _TOKEN.findall(_SMALL_TALK_PHRASES.sub(" ", text))))


def is_content_word(word: str) -> bool:
    """Whether a word in lower case says something by itself."""
    return (
        len(word) > 1
        and word not in FUNCTION_WORDS
        and word not in SMALL_TALK_WORDS
        and (compute_rarity(word) >= _LEAST_RARITY or not word.isascii())
    )


def extract_phrases(text: str) -> Iterator[tuple[str, str]]:
    """The pairs of content words that stand side by side."""
    before: tuple[str, int] | None = None
    for found in _TOKEN.finditer(text):
        word = _strip_inflection(found.group())
        if not is_content_word(word):
            before = None
            continue
        if before is not None and text[before[1] : found.start()] == " ":
            yield before[0], word
        before = word, found.end()


def split_words(text: str) -> list[str]:
    """Every word and number of a text in lower case; of scripts without spaces, every character."""
    return [found.group().lower() for found in _ANY_WORD.finditer(text)]


def has_digit(text: str) -> bool:
    """Whether a text has a figure in it."""
    return _NUMBER.search(text) is not None


@lru_cache(maxsize=50_000)
def compute_rarity(word: str) -> float:
    """How rare a word is in general: 0 for `the`, 1 for what is no word of the vocabulary."""
    numbers = encode_tokens(" " + word)
    if len(numbers) != 1:
        return 1.0
    share = math.log(max(numbers[0], _COMMONEST) / _COMMONEST) / math.log(_VOCABULARY / _COMMONEST)
    return min(share, 1.0)


def _strip_inflection(token: str) -> str:
    """A word without what only inflects it."""
    word = token.lower().replace("’", "'")
    return word.removesuffix("'s")

"""Name words: where a name begins and ends in a text. That something is a name, other evidence must say."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache


def word_set(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


_WORD = re.compile(r"[^\W\d_]{1,40}(?:['’\-][^\W\d_]{1,40}){0,4}(?:\.(?=\s))?")
_WORD_BEFORE = re.compile(r"(?:[^\W\d_]|['’\-])+\.?\Z")
_SENTENCE_END = re.compile(r"[.!?。！？\n]")
MAX_NAME_CHARS = 80
MAX_NAME_WORDS = 4
MAX_ABBREVIATION_CHARS = 3
"""With its full stop: J., Jr."""
PARTICLES = word_set(
    """
    van von der den de da di del della dos das la le el al bin ibn ter ten zu af av
    """
)
TITLES = {
    "dr": "Dr.",
    "prof": "Prof.",
    "professor": "Prof.",
    "mr": "Mr.",
    "mrs": "Mrs.",
    "ms": "Ms.",
    "herr": "Herr",
    "herrn": "Herr",
    "frau": "Frau",
    "mme": "Mme",
    "señor": "Señor",
    "señora": "Señora",
}
_CALENDAR = """
january february march april may june july august september october november december monday tuesday wednesday
thursday friday saturday sunday januar februar märz mai juni juli oktober dezember montag dienstag mittwoch
donnerstag freitag samstag sonntag janvier février mars avril juin juillet août septembre octobre novembre décembre
lundi mardi mercredi jeudi vendredi samedi dimanche enero febrero marzo abril mayo junio julio agosto septiembre
octubre noviembre diciembre lunes martes miércoles jueves viernes sábado domingo today tomorrow yesterday tonight
"""
_FUNCTION_WORDS = """
i a an the this that these those my our your his her their its we you he she it they me us them who whom whose which
what when where why how and or but nor so if then than as at by for from in into of off on onto out over to up with
without about after before is are was were be been am do does did has have had can could will would shall should
must not no yes ok okay please thanks thank hi hello hey dear also just now here there all any both each every some
such only same other another more most much many one two three first next last best kind warm regards cheers
sincerely re fwd cc bcc subject sent to-do todo note ps ich du er sie es wir ihr der die das den dem des ein eine
einen einem einer und oder aber mit ohne von vom zu zum zur bei im in am an auf aus für ist sind war nicht kein
keine ja nein bitte danke hallo liebe lieber guten tag viele grüße gruß je tu il elle nous vous ils elles le la les
un une des et ou mais avec sans de du au aux en dans sur pour est sont non oui merci bonjour yo tú él ella nosotros
ellos el los las una unos unas y o pero con sin del al en por para es son sí gracias hola tell ask email mail call
write send forward copy ping meet met invite thank remind contact cc add update reply answer let did from-to
monday's
"""
STOP_WORDS = word_set(_CALENDAR + _FUNCTION_WORDS)
WORDLIKE_NAMES = word_set(
    """
    mark will grace rob bill may june april faith hope art frank jack drew chase grant pat sue dawn joy rose ray
    penny max sky rich dean earl guy gene josh miles page reed rod skip stew ward wade iris ivy lily pearl ruby
    olive summer autumn august carol christian angel crystal heather holly ginger robin sandy victor dick don van
    ben
    """
)
"""First names that are words as well: at the start of a sentence they tell nothing."""


def is_capitalised(word: str) -> bool:
    """Whether a word is written like a name: a capital first, and not shouted."""
    letters = [character for character in word if character.isalpha()]
    if not letters or not letters[0].isupper():
        return False
    return len(letters) == 1 or not all(letter.isupper() for letter in letters)


def parse_name_after(
    text: str, start: int, *, shouted: bool = False, most: int = MAX_NAME_WORDS
) -> tuple[list[str], int]:
    """The name that begins at a place, as words, and where it ends; no words if none does."""
    words: list[str] = []
    place = start
    while place < len(text) and text[place] in " \t\"“„«'‘":
        place += 1
    end = place
    while len(words) < most + 2 and (found := _WORD.match(text, place)):
        word, is_last = _strip_ending(found.group())
        if not _continues_name(word, bool(words), shouted):
            break
        words.append(word)
        end = place + len(word)
        place = found.end()
        if is_last or text[place : place + 1] not in (" ", "\u00a0"):
            break
        place += 1
    while words and words[-1].lower() in PARTICLES:
        words.pop()
    return (words, end) if len(words) <= most else ([], start)


def parse_name_before(text: str, end: int, *, most: int = MAX_NAME_WORDS) -> list[str]:
    """The name that ends at a place, as words."""
    words: list[str] = []
    place = end
    floor = max(0, end - MAX_NAME_CHARS)
    while place > floor and text[place - 1] in " \t\"”“»'’,":
        place -= 1
    while place > floor and len(words) < most + 1 and (found := _WORD_BEFORE.search(text, floor, place)):
        word = found.group().strip("-'’")
        if (
            not word
            or (words and found.group().endswith(".") and len(word.rstrip(".")) > 3)
            or not _precedes_name(word, words)
        ):
            break
        words.insert(0, word)
        place = found.start()
        if text[place - 1 : place] not in (" ", "\u00a0"):
            break
        place -= 1
    while words and words[0].lower() in PARTICLES:
        words.pop(0)
    return words if len(words) <= most else []


def _continues_name(word: str, has_begun: bool, shouted: bool) -> bool:
    if word.lower().rstrip(".") in STOP_WORDS and not (has_begun and word in PARTICLES):
        return False
    if has_begun and word in PARTICLES:
        return True
    return is_capitalised(word) or (shouted and word.isupper())


def _precedes_name(word: str, words: list[str]) -> bool:
    if words and word in PARTICLES:
        return True
    return word.lower().rstrip(".") not in STOP_WORDS and is_capitalised(word)


def _strip_ending(word: str) -> tuple[str, bool]:
    """A word without a genitive or the full stop of its sentence, and whether a name cannot go on after it."""
    if word.endswith(".") and len(word) > MAX_ABBREVIATION_CHARS and word[:-1].lower() not in TITLES:
        return word[:-1], True
    for ending in ("'s", "’s", "'", "’"):
        if word.endswith(ending) and len(word) > len(ending) + 1:
            return word[: -len(ending)], True
    return word, False


@lru_cache(maxsize=4096)
def fold_word(word: str) -> str:
    """A word as it is written in addresses: no capitals, accents or apostrophes."""
    plain = unicodedata.normalize("NFKD", word.casefold())
    return "".join(character for character in plain if character.isalnum())


def fold_words(words: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """The words of a name, folded, without what folds to nothing."""
    return tuple(part for part in map(fold_word, words) if part)


def get_sentence_at(text: str, place: int, longest: int = 240) -> str:
    """What is said around a place, in one line."""
    floor, ceiling = max(0, place - longest), min(len(text), place + longest)
    starts = [found.end() for found in _SENTENCE_END.finditer(text, floor, place) if _ends_sentence(text, found)]
    start = starts[-1] if starts else floor
    end = next(
        (found.end() for found in _SENTENCE_END.finditer(text, place, ceiling) if _ends_sentence(text, found)), ceiling
    )
    return " ".join(text[start:end].split())[:longest].strip()


def is_sentence_start(text: str, place: int) -> bool:
    """Whether a word begins a sentence, where every word has a capital."""
    before = text[max(0, place - 4) : place].rstrip(" \t\"“„«'(*-#>")
    return not before or before[-1] in ".!?:\n。！？"


def _ends_sentence(text: str, found: re.Match[str]) -> bool:
    """A full stop ends a sentence where a space follows that is not after a title or an initial."""
    if found.group() != ".":
        return True
    after = text[found.end() : found.end() + 1]
    if after and not after.isspace():
        return False
    before = text[max(0, found.start() - 12) : found.start()].split()
    return not before or (before[-1].lower() not in TITLES and len(before[-1]) > 1)

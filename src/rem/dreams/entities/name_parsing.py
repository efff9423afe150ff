"""Find where a name begins and ends in a text, and normalize its words.

Nothing here decides whether words are a name. Other evidence does that.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from rem.rules import word_set

MAX_NAME_CHARS = 80
MAX_NAME_WORDS = 4
MAX_ABBREVIATION_CHARS = 3
"""The length of an abbreviated name with its full stop, such as "Jr."."""
MAX_SENTENCE_CHARS = 240
PARTICLES = word_set("names.particles")
STOP_WORDS = word_set("names.calendar_words") | word_set("names.function_words")
"""Words that are no part of a name, even with a capital."""
WORDLIKE_NAMES = word_set("names.wordlike_names")
"""First names that are also words. At the start of a sentence they are no evidence."""
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
"""Titles as they are written, by their lower-case form."""
_WORD = re.compile(r"[^\W\d_]{1,40}(?:['’\-][^\W\d_]{1,40}){0,4}(?:\.(?=\s))?")
_WORD_BEFORE = re.compile(r"(?:[^\W\d_]|['’\-]){1,80}\.?\Z")
_SENTENCE_END = re.compile(r"[.!?。！？\n]")


def is_capitalised(word: str) -> bool:
    """Return whether a word is written like a name: with a capital first, and not only in capitals."""
    letters = [character for character in word if character.isalpha()]
    if not letters or not letters[0].isupper():
        return False
    return len(letters) == 1 or not all(letter.isupper() for letter in letters)


def parse_name_after(
    text: str, start: int, *, allow_capitals: bool = False, max_words: int = MAX_NAME_WORDS
) -> tuple[list[str], int]:
    """Return the words of the name that begins at an offset, and the offset of its end.

    Return no words if there is no name, or if it has more than `max_words`. With `allow_capitals` a word may have
    capitals only.
    """
    words: list[str] = []
    offset = start
    while offset < len(text) and text[offset] in " \t\"“„«'‘":
        offset += 1
    end = offset
    while len(words) < max_words + 2 and (match := _WORD.match(text, offset)):
        word, is_last = _strip_ending(match.group())
        if not _continues_name(word, bool(words), allow_capitals):
            break
        words.append(word)
        end = offset + len(word)
        offset = match.end()
        if is_last or text[offset : offset + 1] not in (" ", "\u00a0"):
            break
        offset += 1
    while words and words[-1].lower() in PARTICLES:
        words.pop()
    return (words, end) if len(words) <= max_words else ([], start)


def parse_name_before(text: str, end: int, *, max_words: int = MAX_NAME_WORDS) -> list[str]:
    """Return the words of the name that ends at an offset; none if there is no name, or a longer one."""
    words: list[str] = []
    offset = end
    floor = max(0, end - MAX_NAME_CHARS)
    while offset > floor and text[offset - 1] in " \t\"”“»'’,":
        offset -= 1
    while offset > floor and len(words) < max_words + 1 and (match := _WORD_BEFORE.search(text, floor, offset)):
        word = match.group().strip("-'’")
        ends_sentence = bool(words) and match.group().endswith(".") and len(word.rstrip(".")) > 3
        if not word or ends_sentence or not _precedes_name(word, words):
            break
        words.insert(0, word)
        offset = match.start()
        if text[offset - 1 : offset] not in (" ", "\u00a0"):
            break
        offset -= 1
    while words and words[0].lower() in PARTICLES:
        words.pop(0)
    return words if len(words) <= max_words else []


def _continues_name(word: str, has_begun: bool, allow_capitals: bool) -> bool:
    if has_begun and word in PARTICLES:
        return True
    if word.lower().rstrip(".") in STOP_WORDS:
        return False
    return is_capitalised(word) or (allow_capitals and word.isupper())


def _precedes_name(word: str, words: list[str]) -> bool:
    if words and word in PARTICLES:
        return True
    return word.lower().rstrip(".") not in STOP_WORDS and is_capitalised(word)


def _strip_ending(word: str) -> tuple[str, bool]:
    """Return a word without a genitive or the full stop of its sentence, and whether it must be the last of a name."""
    if word.endswith(".") and len(word) > MAX_ABBREVIATION_CHARS and word[:-1].lower() not in TITLES:
        return word[:-1], True
    for ending in ("'s", "’s", "'", "’"):
        if word.endswith(ending) and len(word) > len(ending) + 1:
            return word[: -len(ending)], True
    return word, False


@lru_cache(maxsize=4096)
def fold_word(word: str) -> str:
    """Return a word as e-mail addresses spell it: in lower case, without accents and apostrophes."""
    decomposed = unicodedata.normalize("NFKD", word.casefold())
    return "".join(character for character in decomposed if character.isalnum())


def fold_words(words: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """Return the folded words of a name, without empty ones."""
    return tuple(folded for folded in map(fold_word, words) if folded)


def get_sentence_at(text: str, offset: int, max_chars: int = MAX_SENTENCE_CHARS) -> str:
    """Return the sentence around an offset on one line, at most `max_chars` of it."""
    floor, ceiling = max(0, offset - max_chars), min(len(text), offset + max_chars)
    starts = [match.end() for match in _SENTENCE_END.finditer(text, floor, offset) if _ends_sentence(text, match)]
    ends = (match.end() for match in _SENTENCE_END.finditer(text, offset, ceiling) if _ends_sentence(text, match))
    start = starts[-1] if starts else floor
    return " ".join(text[start : next(ends, ceiling)].split())[:max_chars].strip()


def is_sentence_start(text: str, offset: int) -> bool:
    """Return whether the word at an offset begins a sentence, where every word has a capital."""
    before = text[max(0, offset - 4) : offset].rstrip(" \t\"“„«'(*-#>")
    return not before or before[-1] in ".!?:\n。！？"


def _ends_sentence(text: str, mark: re.Match[str]) -> bool:
    """Return whether a punctuation mark ends a sentence. A full stop after a title or an initial does not."""
    if mark.group() != ".":
        return True
    after = text[mark.end() : mark.end() + 1]
    if after and not after.isspace():
        return False
    before = text[max(0, mark.start() - 12) : mark.start()].split()
    return not before or (before[-1].lower() not in TITLES and len(before[-1]) > 1)

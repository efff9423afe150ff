"""Recognize topics that a profile leaves out, because they could hurt the user if others read them.

The topics are health, faith, politics, intimate matters, money and law, origin, and credentials. They are recognized by
word lists in English and German, and the lists rather leave out too much. The messages themselves stay, and users can
still write such facts into their profile.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise

from rem.dreaming.rules import word_sets
from rem.text import split_sentences

_SENSITIVE_WORDS = frozenset[str]().union(*word_sets("sensitive").values())
_WORD = re.compile(r"[^\W_]+")
_KEY_OR_ACCOUNT_NUMBER = re.compile(
    r"\b(?:sk|pk|ghp|gho|xox[abp]|AKIA|eyJ)[-_A-Za-z0-9]{12,}|-----BEGIN|\b\d{4}[ -]?\d{4}[ -]?\d{4}[ -]?\d{4}\b|"
    r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,}"
)


def is_sensitive(text: str) -> bool:
    """Return whether a text has a word, or a pair of words, of a sensitive topic, or a secret key."""
    words = _WORD.findall(unicodedata.normalize("NFKC", text).casefold())
    pairs = {f"{first}-{second}" for first, second in pairwise(words)}
    singular = {word.rstrip("s") for word in words}
    return bool(_KEY_OR_ACCOUNT_NUMBER.search(text)) or not _SENSITIVE_WORDS.isdisjoint({*words, *pairs, *singular})


def remove_sensitive_sentences(text: str) -> str:
    """Return the text without its sensitive sentences."""
    return " ".join(sentence for sentence in split_sentences(text) if not is_sensitive(sentence))

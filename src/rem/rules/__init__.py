"""Word lists and patterns: one YAML file for each language, with the same structure.

A word list is a text of words between spaces. A pattern list is a list of regular expressions. `secrets.now_words` is
the list `now_words` in the section `secrets`; a language that has none leaves it out.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from rem.db.yaml import load_yaml

LANGUAGES = ("en", "de", "fr", "es", "ja", "zh")


def word_set(name: str) -> frozenset[str]:
    """Return the words of the word list `name` in all languages."""
    return frozenset(word for words in _find_lists(name) for word in words.split())


def alternatives(name: str) -> str:
    """Return the word or pattern list `name` in all languages as one regular expression group: `(?:a|b|c)`."""
    patterns = [
        pattern for entry in _find_lists(name) for pattern in (entry.split() if isinstance(entry, str) else entry)
    ]
    return f"(?:{'|'.join(patterns)})"


def patterns(name: str) -> list[str]:
    """Return the regular expressions of the pattern list `name` in all languages."""
    return [pattern for entry in _find_lists(name) for pattern in entry]


def word_groups(name: str) -> list[list[str]]:
    """Return the list `name` of word lists in all languages, each as a list of words."""
    return [group.split() for groups in _find_lists(name) for group in groups]


def word_sets(name: str) -> dict[str, frozenset[str]]:
    """Return the section `name`, whose entries are word lists, with the words of all languages in each."""
    labels = dict.fromkeys(label for section in _find_lists(name) for label in section)
    return {label: word_set(f"{name}.{label}") for label in labels}


def _find_lists(name: str) -> Iterator[Any]:
    """Yield the entry `name` of each language that has it. Raise KeyError if no language has it."""
    is_known = False
    for language in LANGUAGES:
        entry: Any = _load(language)
        for part in name.split("."):
            entry = entry.get(part) if entry is not None else None
        if entry is not None:
            is_known = True
            yield entry
    if not is_known:
        raise KeyError(name)


@cache
def _load(language: str) -> dict[str, Any]:
    text = Path(__file__).with_name(f"{language}.yaml").read_text(encoding="utf-8")
    rules: dict[str, Any] = load_yaml(text)
    return rules

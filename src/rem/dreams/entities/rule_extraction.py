"""Extract evidence from a text by rules, and find words that may name known entities."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from rem.dreams.entities.emails import find_mailboxes, find_signatures
from rem.dreams.entities.evidence import ORGANIZATION, PERSON, Evidence, EvidenceKind
from rem.dreams.entities.introductions import find_introductions
from rem.dreams.entities.name_parsing import (
    MAX_NAME_CHARS,
    MAX_NAME_WORDS,
    STOP_WORDS,
    WORDLIKE_NAMES,
    get_sentence_at,
    is_capitalised,
    is_sentence_start,
)
from rem.rules import word_set

MAX_LABELS = 20_000
MAX_EVIDENCE_PER_KIND = 500
"""A text with more, such as a list of ten thousand addresses, is not about these people."""
_HANDLE = re.compile(r"(?<![\w@/.`])@([A-Za-z][A-Za-z0-9_.-]{2,29})(?![\w/@(:])")
_TOKEN = re.compile(r"[^\W_](?:[\w'’&-]{0,60}[^\W_])?")
_NEXT_WORD = re.compile(r"[ \u00a0]([^\W\d_]{1,40})")
_PREVIOUS_WORD = re.compile(r"(?<![^\W\d_])([^\W\d_]{1,40})[ \u00a0]\Z")
_NOT_HANDLES = word_set("mentions.not_handles")
_NOT_SPEAKERS = word_set("mentions.not_speakers")


def extract_evidence(
    text: str, text_index: int, *, speaker: str | None = None, is_own_words: bool = True, whole_text: str = ""
) -> list[Evidence]:
    """Return the evidence in a text. Set `is_own_words` if "my" and "our" are those of the memory's owner.

    `whole_text` is the message if `text` consists of its statements: a signature begins with "Thanks", which is none.
    """
    sources = [
        _extract_from_addresses(text, text_index),
        find_signatures(whole_text or text, text_index),
        find_introductions(text, text_index, is_own_words=is_own_words),
    ]
    if is_own_words:
        sources.append(_extract_handles(text, text_index))
    if speaker is not None:
        sources.append(_extract_speaker(speaker, text_index))
    return [item for source in sources for item in islice(source, MAX_EVIDENCE_PER_KIND)]


def _extract_from_addresses(text: str, text_index: int) -> Iterator[Evidence]:
    for mailbox in find_mailboxes(text):
        if mailbox.is_role:
            continue
        common: dict[str, Any] = {
            "text_index": text_index,
            "offset": mailbox.offset,
            "sentence": get_sentence_at(text, mailbox.offset),
            "address": mailbox.address,
        }
        if mailbox.words:
            yield Evidence(kind=EvidenceKind.MAILBOX, entity_type=PERSON, words=mailbox.words, confidence=0.8, **common)
        else:
            yield Evidence(
                kind=EvidenceKind.ADDRESS, entity_type=PERSON, words=mailbox.name_in_address, confidence=0.6, **common
            )
        if mailbox.organization:
            words = tuple(mailbox.organization.split())
            yield Evidence(
                kind=EvidenceKind.DOMAIN, entity_type=ORGANIZATION, words=words, **{**common, "sentence": ""}
            )


def _extract_handles(text: str, text_index: int) -> Iterator[Evidence]:
    for match in _HANDLE.finditer(text):
        handle = match.group(1).rstrip(".-_")
        if handle.lower() not in _NOT_HANDLES and len(handle) > 2:
            yield Evidence(
                kind=EvidenceKind.HANDLE,
                entity_type=PERSON,
                handle=handle,
                text_index=text_index,
                offset=match.start(),
                sentence=get_sentence_at(text, match.start()),
            )


def _extract_speaker(speaker: str, text_index: int) -> Iterator[Evidence]:
    words = tuple(speaker.split())
    is_short = 0 < len(words) <= MAX_NAME_WORDS and len(speaker) <= MAX_NAME_CHARS
    has_letters = any(map(str.isalpha, speaker)) and not speaker[-1:].isdecimal()
    if is_short and has_letters and not any(word.lower() in _NOT_SPEAKERS for word in words):
        yield Evidence(
            kind=EvidenceKind.SPEAKER, entity_type=PERSON, words=words, text_index=text_index, confidence=0.8
        )


def find_possible_names(text: str) -> dict[str, int]:
    """Return the labels in a text that may name a known entity, with the offset of their first occurrence.

    Labels are handles, e-mail addresses, up to four consecutive words without a stop word at either end, and single
    words with a capital or in the form of a key.
    """
    labels: dict[str, int] = {}
    for match in _HANDLE.finditer(text):
        labels.setdefault(f"@{match.group(1).rstrip('.-_')}", match.start())
    for mailbox in find_mailboxes(text):
        labels.setdefault(mailbox.address, mailbox.offset)
    tokens: list[re.Match[str]] = []
    for match in _TOKEN.finditer(text):
        if tokens and text[tokens[-1].end() : match.start()] not in (" ", "\u00a0", "\n", ". "):
            tokens.clear()
        tokens = [*tokens[-(MAX_NAME_WORDS - 1) :], match]
        for start in range(len(tokens)):
            _add_label(text, tokens[start:], labels)
        if len(labels) >= MAX_LABELS:
            break
    return labels


def _add_label(text: str, tokens: list[re.Match[str]], labels: dict[str, int]) -> None:
    first, last = tokens[0].group(), tokens[-1].group()
    if first.lower() in STOP_WORDS or last.lower() in STOP_WORDS:
        return
    start = tokens[0].start()
    if len(tokens) == 1 and not _is_single_name(text, first, start):
        return
    label = text[start : tokens[-1].end()]
    for ending in ("'s", "’s"):
        label = label.removesuffix(ending)
    labels.setdefault(" ".join(label.split()), start)


def _is_single_name(text: str, word: str, start: int) -> bool:
    if "-" in word and len(word) > 4:
        return True
    if not word[0].isupper() and word[0].lower() != word[0].upper():
        return any(map(str.isdigit, word))
    if word.lower().removesuffix("'s") in WORDLIKE_NAMES and is_sentence_start(text, start):
        return False
    return not is_part_of_name(text, start, start + len(word))


def is_part_of_name(text: str, start: int, end: int) -> bool:
    """Return whether a capitalised word is beside it: the Sarah of Sarah Waters is not just any Sarah."""
    after = _NEXT_WORD.match(text, end)
    if after and is_capitalised(after.group(1)) and after.group(1).lower() not in STOP_WORDS:
        return True
    before = _PREVIOUS_WORD.search(text, max(0, start - 40), start)
    if before is None or not is_capitalised(before.group(1)) or before.group(1).lower() in STOP_WORDS:
        return False
    return not is_sentence_start(text, before.start(1))

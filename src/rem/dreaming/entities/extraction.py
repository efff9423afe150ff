"""Mentions: what a text names, by evidence; and what it may name that is known already."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from rem.dreaming.entities.emails import find_mailboxes, find_signatures
from rem.dreaming.entities.evidence import ORGANIZATION, PERSON, Evidence, EvidenceKind
from rem.dreaming.entities.introductions import find_introductions
from rem.dreaming.entities.name_parsing import (
    STOP_WORDS,
    WORDLIKE_NAMES,
    get_sentence_at,
    is_capitalised,
    is_sentence_start,
    word_set,
)

_HANDLE = re.compile(r"(?<![\w@/.`])@([A-Za-z][A-Za-z0-9_.-]{2,29})(?![\w/@(:])")
_NO_HANDLES = word_set(
    """
    here channel everyone all team group param params return returns property override deprecated author see since
    todo version link media import charset font-face keyframes supports page layer component injectable input output
    test before after beforeeach aftereach autowired service controller entity table column id getter setter data
    type types ts-ignore staticmethod classmethod dataclass pytest fixture mock patch home work gmail noon midnight
    some least most once
    """
)
_NO_SPEAKERS = word_set(
    """
    user assistant system bot agent human ai speaker unknown me you narrator interviewer interviewee customer client
    caller operator host guest moderator participant person anonymous support admin sprecher all everyone
    """
)
_NUMBERED = re.compile(r"[\W_]*\d+\Z")
_TOKEN = re.compile(r"[^\W_](?:[\w'’&-]{0,60}[^\W_])?")
_NEXT = re.compile(r"[ \u00a0]([^\W\d_]{1,40})")
_PREVIOUS = re.compile(r"(?<![^\W\d_])([^\W\d_]{1,40})[ \u00a0]\Z")
MAX_LABELS = 20_000
MAX_EVIDENCE_PER_KIND = 500
"""Of one kind in one text: a list of ten thousand addresses is not what somebody talks about."""
MAX_NAME_WORDS = 4


def extract_evidence(text: str, place: int, *, speaker: str | None = None, is_own_words: bool = True) -> list[Evidence]:
    """What a text gives evidence of; `is_own_words` if "my" and "our" are those of the memory's owner."""
    ways = [
        _extract_from_addresses(text, place),
        find_signatures(text, place),
        find_introductions(text, place, is_own_words=is_own_words),
    ]
    if is_own_words:
        ways.append(_extract_handles(text, place))
    if speaker is not None:
        ways.append(_extract_speaker(speaker, place))
    return [one for way in ways for one in islice(way, MAX_EVIDENCE_PER_KIND)]


def _extract_from_addresses(text: str, place: int) -> Iterator[Evidence]:
    for mailbox in find_mailboxes(text):
        if mailbox.is_role:
            continue
        says = get_sentence_at(text, mailbox.start)
        common = {"place": place, "start": mailbox.start, "says": says, "address": mailbox.address}
        if mailbox.words:
            yield Evidence(kind=EvidenceKind.MAILBOX, entity_type=PERSON, words=mailbox.words, confidence=0.8, **common)  # type: ignore[arg-type]
        else:
            words = mailbox.name_in_address
            yield Evidence(kind=EvidenceKind.ADDRESS, entity_type=PERSON, words=words, confidence=0.6, **common)  # type: ignore[arg-type]
        if mailbox.organization:
            words = tuple(mailbox.organization.split())
            yield Evidence(kind=EvidenceKind.DOMAIN, entity_type=ORGANIZATION, words=words, **{**common, "says": ""})  # type: ignore[arg-type]


def _extract_handles(text: str, place: int) -> Iterator[Evidence]:
    for found in _HANDLE.finditer(text):
        handle = found.group(1).rstrip(".-_")
        if handle.lower() not in _NO_HANDLES and len(handle) > 2:
            says = get_sentence_at(text, found.start())
            yield Evidence(
                kind=EvidenceKind.HANDLE, entity_type=PERSON, handle=handle, place=place, start=found.start(), says=says
            )


def _extract_speaker(speaker: str, place: int) -> Iterator[Evidence]:
    words = tuple(speaker.split())
    is_name = 0 < len(words) <= 4 and len(speaker) <= 80 and not _NUMBERED.search(speaker)
    if is_name and any(map(str.isalpha, speaker)) and not any(word.lower() in _NO_SPEAKERS for word in words):
        yield Evidence(kind=EvidenceKind.SPEAKER, entity_type=PERSON, words=words, place=place, confidence=0.8)


def find_possible_names(text: str) -> dict[str, int]:
    """What may be the name of something known, with where it stands first: runs of up to four words, no stop word at
    either end, and single words that have a capital or are written as a key."""
    labels: dict[str, int] = {}
    for found in _HANDLE.finditer(text):
        labels.setdefault(f"@{found.group(1).rstrip('.-_')}", found.start())
    for mailbox in find_mailboxes(text):
        labels.setdefault(mailbox.address, mailbox.start)
    run: list[re.Match[str]] = []
    for found in _TOKEN.finditer(text):
        if run and text[run[-1].end() : found.start()] not in (" ", "\u00a0", "\n", ". "):
            run.clear()
        run = [*run[-(MAX_NAME_WORDS - 1) :], found]
        for start in range(len(run)):
            _add_label(text, run[start:], labels)
        if len(labels) >= MAX_LABELS:
            break
    return labels


def _add_label(text: str, run: list[re.Match[str]], labels: dict[str, int]) -> None:
    first, last = run[0].group(), run[-1].group()
    if first.lower() in STOP_WORDS or last.lower() in STOP_WORDS:
        return
    start = run[0].start()
    if len(run) == 1 and not _is_single_name(text, first, start):
        return
    label = text[start : run[-1].end()]
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
    return not _is_part_of_name(text, start, start + len(word))


def _is_part_of_name(text: str, start: int, end: int) -> bool:
    """Whether a word stands beside another with a capital: the Sarah of Sarah Waters is not just any Sarah."""
    after = _NEXT.match(text, end)
    if after and is_capitalised(after.group(1)) and after.group(1).lower() not in STOP_WORDS:
        return True
    before = _PREVIOUS.search(text, max(0, start - 40), start)
    if before is None or not is_capitalised(before.group(1)) or before.group(1).lower() in STOP_WORDS:
        return False
    return not is_sentence_start(text, before.start(1))

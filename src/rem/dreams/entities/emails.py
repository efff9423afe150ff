"""Find e-mail addresses and signatures in a text, with the people and organizations that they name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rem.dreams.entities.evidence import ORGANIZATION, PERSON, Evidence, EvidenceKind
from rem.dreams.entities.name_parsing import (
    MAX_SENTENCE_CHARS,
    PARTICLES,
    fold_word,
    fold_words,
    is_capitalised,
    parse_name_after,
    parse_name_before,
)
from rem.rules import alternatives, word_set

MAX_DISPLAY_NAME_CHARS = 90
MAX_SIGNATURE_CHARS = 600
MAX_SIGNATURE_LINES = 5
MAX_SIGNATURE_LINE_CHARS = 100
_ADDRESS = re.compile(
    r"(?<![\w.+%-])([A-Za-z0-9_][A-Za-z0-9._%+-]{0,63})@((?:[A-Za-z0-9-]{1,63}\.){1,4}[A-Za-z]{2,24})(?![\w@-])"
)
_LAST_FIRST = re.compile(r"([^\W\d_][\w'’\- ]{0,40}), ([^\W\d_][\w'’\- ]{0,40})\Z")
_SHORT_WORD_AT_END = re.compile(r"[^\W\d_]{2,8}\s?\Z")
_LOCAL_PART_SEPARATORS = re.compile(r"[._\-+]+")
_VOWEL = re.compile(r"[aeiouyäöüéèáíóú]")
_ROLE_MAILBOXES = word_set("emails.role_mailboxes")
_FREE_PROVIDERS = word_set("emails.free_providers")
_SECOND_LEVEL_DOMAINS = frozenset({"co", "com", "org", "net", "gov", "edu", "ac", "or", "ne", "go", "gob", "gouv"})
_CLOSING = re.compile(
    rf"^[ \t>]*(?:{alternatives('emails.closings')}|--)[ \t]*+[,.!]?[ \t]*$", re.IGNORECASE | re.MULTILINE
)
_PHONE = re.compile(r"\+?\d[\d ()/.-]{6,20}")
_DIVIDER = re.compile(r"(?:(?<!\s)\s+)?[|·•]\s*|,\s+")


@dataclass(frozen=True, slots=True)
class Mailbox:
    """An e-mail address in a text."""

    address: str
    """In lower case."""
    words: tuple[str, ...]
    """The display name; empty without one."""
    offset: int

    @property
    def local_part(self) -> str:
        """Return the part before the @."""
        return self.address.partition("@")[0]

    @property
    def domain(self) -> str:
        """Return the part after the @."""
        return self.address.partition("@")[2]

    @property
    def is_role(self) -> bool:
        """Return whether the address belongs to a function such as sales@, and not to a person."""
        parts = [part for part in _LOCAL_PART_SEPARATORS.split(self.local_part) if part]
        return self.local_part in _ROLE_MAILBOXES or any(
            part.rstrip("0123456789") in _ROLE_MAILBOXES or part.isdigit() for part in parts
        )

    @property
    def name_in_address(self) -> tuple[str, ...]:
        """Return the full name in an address such as sarah.chen@…; empty if it has none."""
        parts = [part for part in _LOCAL_PART_SEPARATORS.split(self.local_part) if part]
        is_name = len(parts) in (2, 3) and all(
            part.isalpha() and len(part) > 1 and _VOWEL.search(part) for part in parts
        )
        return tuple(part.capitalize() for part in parts) if is_name and not self.is_role else ()

    @property
    def organization(self) -> str | None:
        """Return the organization's name by the domain; None for free mail providers."""
        labels = self.domain.split(".")
        label = labels[-3] if len(labels) > 2 and labels[-2] in _SECOND_LEVEL_DOMAINS else labels[-2]
        if label in _FREE_PROVIDERS or len(label) < 3 or not any(character.isalpha() for character in label):
            return None
        return " ".join(part.capitalize() for part in label.split("-") if part) or None


def find_mailboxes(text: str) -> Iterator[Mailbox]:
    """Yield the e-mail addresses of a text, with the display names before them."""
    for match in _ADDRESS.finditer(text):
        start = match.start()
        address = match.group().lower()
        words: tuple[str, ...] = ()
        if text[start - 1 : start] in ("<", "("):
            words = _parse_display_name(text, start - 1, address.partition("@")[0])
        yield Mailbox(address, words, start)


def _parse_display_name(text: str, end: int, local_part: str) -> tuple[str, ...]:
    line = text[max(0, end - MAX_DISPLAY_NAME_CHARS, text.rfind("\n", 0, end) + 1) : end].rstrip()
    quoted = line.rpartition('"')[0].rpartition('"')[2] if line.endswith('"') else ""
    last_first = _LAST_FIRST.match(quoted)
    if last_first:
        return (*last_first.group(2).split(), *last_first.group(1).split())
    words = [word for word in parse_name_before(line, len(line)) if word]
    if words:
        return tuple(_align_with_address(words, local_part))
    # A name in a script without capitals, such as Chinese.
    match = _SHORT_WORD_AT_END.search(line)
    word = match.group().strip() if match else ""
    return (word,) if word and not word.isascii() and word.lower() == word.upper() else ()


def _align_with_address(words: list[str], local_part: str) -> list[str]:
    """Drop words before the name that fits the address: "Tell Sarah Chen <sarah.chen@…" names Sarah Chen."""
    for start in range(max(0, len(words) - 4), len(words) - 1):
        if address_fits_name(local_part, fold_words(words[start:])) and is_capitalised(words[start]):
            return words[start:]
    return words


def address_fits_name(local_part: str, name: tuple[str, ...]) -> bool:
    """Return whether the part before the @ can be made of a folded full name: s.chen, schen, sarah.chen, sarah-c."""
    if len(name) < 2:
        return False
    given, family = name[0], name[-1]
    joined = "".join(name[1:])
    folded = fold_word(local_part).rstrip("0123456789")
    middle = "".join(part[0] for part in name[1:-1] if part not in PARTICLES)
    initials = given[0] + middle
    forms = {given + family, family + given, given[0] + family, family + given[0], given + family[0], given, family}
    forms |= {given + joined, given[0] + joined, initials + family, given + middle + family}
    return folded in forms or folded in {_spell_out_umlauts(form) for form in forms}


def _spell_out_umlauts(form: str) -> str:
    return form.replace("a\u0308", "ae").replace("o\u0308", "oe").replace("u\u0308", "ue").replace("ß", "ss")


def find_signatures(text: str, text_index: int) -> Iterator[Evidence]:
    """Yield the people and organizations in signatures. A phone number, an address or a position adds confidence."""
    for closing in _CLOSING.finditer(text):
        start = closing.end()
        block = [line.strip(" \t>") for line in text[start : start + MAX_SIGNATURE_CHARS].split("\n")]
        lines = [line for line in block if line][: MAX_SIGNATURE_LINES + 1]
        if not lines or len(lines[0]) > MAX_SIGNATURE_LINE_CHARS:
            continue
        words, end = parse_name_after(lines[0], 0)
        if not words or lines[0][end:].strip(" ,."):
            continue
        below = lines[1:]
        details = [line for line in below if _PHONE.search(line) or "@" in line or _DIVIDER.search(line)]
        short_details = [line for line in below if line in details and len(line) <= MAX_SIGNATURE_LINE_CHARS]
        sentence = ", ".join([" ".join(words), *short_details])[:MAX_SENTENCE_CHARS]
        yield Evidence(
            kind=EvidenceKind.SIGNATURE,
            entity_type=PERSON,
            words=tuple(words),
            text_index=text_index,
            offset=start,
            confidence=0.8 if details else 0.5,
            sentence=sentence,
        )
        organization = _parse_signature_organization(below)
        if organization:
            yield Evidence(
                kind=EvidenceKind.SIGNATURE,
                entity_type=ORGANIZATION,
                words=organization,
                text_index=text_index,
                offset=start,
                confidence=0.8 if len(details) > 1 else 0.5,
                sentence=sentence,
            )


def _parse_signature_organization(lines: list[str]) -> tuple[str, ...]:
    """Return the organization in the first line with two parts, such as `Head of Sales, Acme Inc`."""
    for line in lines:
        parts = [part for part in _DIVIDER.split(line) if part]
        if len(parts) < 2 or "@" in line or _PHONE.search(line):
            continue
        words, end = parse_name_after(parts[-1], 0, allow_capitals=True, max_words=5)
        return tuple(words) if not parts[-1][end:].strip(" .") else ()
    return ()

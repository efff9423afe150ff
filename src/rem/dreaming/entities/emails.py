"""Addresses: e-mail addresses in a text, whose they are, and which organisation gives them out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rem.dreaming.entities.evidence import ORGANIZATION, PERSON, Evidence, EvidenceKind
from rem.dreaming.entities.name_parsing import (
    PARTICLES,
    fold_word,
    fold_words,
    is_capitalised,
    parse_name_after,
    parse_name_before,
    word_set,
)

_ADDRESS = re.compile(
    r"(?<![\w.+%-])([A-Za-z0-9_][A-Za-z0-9._%+-]{0,63})@((?:[A-Za-z0-9-]{1,63}\.){1,4}[A-Za-z]{2,24})(?![\w@-])"
)
_LAST_FIRST = re.compile(r"([^\W\d_][\w'’\- ]{0,40}), ([^\W\d_][\w'’\- ]{0,40})\Z")
_UNCASED = re.compile(r"[^\W\d_]{2,8}\s?\Z")
_PARTS = re.compile(r"[._\-+]+")
_VOWEL = re.compile(r"[aeiouyäöüéèáíóú]")
ROLES = word_set(
    """
    info support help hello hi contact contactus sales marketing press media admin administrator webmaster
    postmaster hostmaster root noreply no-reply donotreply do-not-reply reply bounce mailer-daemon daemon billing
    invoice invoices accounts accounting finance payments orders order shop store service services customer
    customers care team office mail email post inbox jobs careers hr recruiting legal privacy security abuse
    newsletter news updates notifications notification alerts alert feedback booking bookings reservations reception
    enquiries inquiries events training it tech dev ops system bot robot test demo example user users everyone all
    staff kontakt rechnung bestellung vertrieb buchhaltung verwaltung poststelle contacto ventas soporte facturas
    compta commercial me you someone name first last firstname lastname
    """
)
_FREE = word_set(
    """
    gmail googlemail outlook hotmail live msn yahoo ymail icloud me mac aol gmx web t-online freenet posteo mailbox
    proton protonmail pm tutanota tuta fastmail hey zoho yandex mail qq 163 126 sina naver orange wanadoo free
    laposte sfr libero virgilio tiscali terra uol bol seznam wp o2 onet rediffmail comcast verizon att btinternet
    example localhost test invalid
    """
)
_SECOND_LEVEL = word_set(
    """
    co com org net gov edu ac or ne go gob gouv
    """
)


@dataclass(frozen=True, slots=True)
class Mailbox:
    """An address in a text."""

    address: str
    """In small letters."""
    words: tuple[str, ...]
    """The name that is written with it; empty if none is."""
    start: int

    @property
    def local_part(self) -> str:
        """What stands before the @."""
        return self.address.partition("@")[0]

    @property
    def domain(self) -> str:
        """What stands behind the @."""
        return self.address.partition("@")[2]

    @property
    def is_role(self) -> bool:
        """Whether it belongs to a function and not to a person."""
        parts = [part for part in _PARTS.split(self.local_part) if part]
        return self.local_part in ROLES or any(part.rstrip("0123456789") in ROLES or part.isdigit() for part in parts)

    @property
    def name_in_address(self) -> tuple[str, ...]:
        """The name that the address itself says (sarah.chen); empty if it says none."""
        parts = [part for part in _PARTS.split(self.local_part) if part]
        is_name = len(parts) in (2, 3) and all(
            part.isalpha() and len(part) > 1 and _VOWEL.search(part) for part in parts
        )
        return tuple(part.capitalize() for part in parts) if is_name and not self.is_role else ()

    @property
    def organization(self) -> str | None:
        """The name of who gives it out, by its domain; None for the providers that everyone uses."""
        labels = self.domain.split(".")
        label = labels[-3] if len(labels) > 2 and labels[-2] in _SECOND_LEVEL else labels[-2]
        if label in _FREE or len(label) < 3 or not any(character.isalpha() for character in label):
            return None
        return " ".join(part.capitalize() for part in label.split("-") if part) or None


def find_mailboxes(text: str) -> Iterator[Mailbox]:
    """The addresses of a text, with the names that are written before them."""
    for found in _ADDRESS.finditer(text):
        start = found.start()
        address = found.group().lower()
        opener = text[start - 1 : start]
        words: tuple[str, ...] = ()
        if opener in ("<", "("):
            words = _parse_display_name(text, start - 1, address.partition("@")[0])
        yield Mailbox(address, words, start)


def _parse_display_name(text: str, end: int, local: str) -> tuple[str, ...]:
    line = text[max(0, end - 90, text.rfind("\n", 0, end) + 1) : end].rstrip()
    quoted = line.rpartition('"')[0].rpartition('"')[2] if line.endswith('"') else ""
    flipped = _LAST_FIRST.match(quoted)
    if flipped:
        return (*flipped.group(2).split(), *flipped.group(1).split())
    words = [word for word in parse_name_before(line, len(line)) if word]
    if not words:
        uncased = _UNCASED.search(line)
        lone = uncased.group().strip() if uncased else ""
        return (lone,) if lone and not lone.isascii() and lone.lower() == lone.upper() else ()
    return tuple(_align_with_address(words, local))


def _align_with_address(words: list[str], local: str) -> list[str]:
    """The last words, from where the address begins: "Tell Sarah Chen <sarah.chen@…" names Sarah Chen."""
    for start in range(max(0, len(words) - 4), len(words) - 1):
        if address_fits_name(local, fold_words(words[start:])) and is_capitalised(words[start]):
            return words[start:]
    return words


def address_fits_name(local: str, name: tuple[str, ...]) -> bool:
    """Whether the part before the @ may be made of a full name: s.chen, schen, sarah.chen, chen, sarah-c …"""
    if len(name) < 2:
        return False
    given, family = name[0], name[-1]
    joined = "".join(name[1:])
    plain = fold_word(local).rstrip("0123456789")
    middle = "".join(part[0] for part in name[1:-1] if part not in PARTICLES)
    initials = given[0] + middle
    forms = {given + family, family + given, given[0] + family, family + given[0], given + family[0], given, family}
    forms |= {given + joined, given[0] + joined, initials + family, given + middle + family}
    return plain in forms or plain in {_spell_out_umlauts(form) for form in forms}


def _spell_out_umlauts(form: str) -> str:
    return form.replace("a\u0308", "ae").replace("o\u0308", "oe").replace("u\u0308", "ue").replace("ß", "ss")


_CLOSING = re.compile(
    r"^[ \t>]*(?:(?:with )?(?:best|kind|warm|many|kindest|warmest)(?: regards| wishes| thanks)?|regards|sincerely"
    r"|yours(?: sincerely| truly)?|cheers|thanks(?: again| a lot)?|thank you"
    r"|mit (?:freundlichen|besten|herzlichen) grüßen|(?:viele|liebe|beste|herzliche|freundliche|schöne) grüße|gruß"
    r"|mfg|lg|cordialement|bien à (?:vous|toi)|amicalement|saludos(?: cordiales)?|un saludo|atentamente|--)"
    r"[ \t]*[,.!]?[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
MAX_SIGNATURE_LINES = 5
_PHONE = re.compile(r"\+?\d[\d ()/.-]{6,20}")
_DIVIDER = re.compile(r"\s*[|·•]\s*|,\s+")
MAX_SIGNATURE_LINE_CHARS = 100


def find_signatures(text: str, place: int) -> Iterator[Evidence]:
    """The signatures of a text. One with a phone number, an address or a position below it is sure."""
    for found in _CLOSING.finditer(text):
        block = [line.strip(" \t>") for line in text[found.end() : found.end() + 600].split("\n")]
        lines = [line for line in block if line][: MAX_SIGNATURE_LINES + 1]
        if not lines or len(lines[0]) > MAX_SIGNATURE_LINE_CHARS:
            continue
        words, end = parse_name_after(lines[0], 0)
        if not words or lines[0][end:].strip(" ,."):
            continue
        below = lines[1:]
        details = [line for line in below if _PHONE.search(line) or "@" in line or _DIVIDER.search(line)]
        says = ", ".join(
            [" ".join(words), *(line for line in below if line in details and len(line) <= MAX_SIGNATURE_LINE_CHARS)]
        )
        yield Evidence(
            kind=EvidenceKind.SIGNATURE,
            entity_type=PERSON,
            words=tuple(words),
            place=place,
            start=found.end(),
            confidence=0.8 if details else 0.5,
            says=says[:240],
        )
        yield from _find_signature_organization(below, place, found.end(), says, is_sure=len(details) > 1)


def _find_signature_organization(
    below: list[str], place: int, start: int, says: str, *, is_sure: bool
) -> Iterator[Evidence]:
    """`Head of Sales, Acme Inc`: the last part of the first line with two."""
    for line in below:
        parts = [part for part in _DIVIDER.split(line) if part]
        if len(parts) < 2 or "@" in line or _PHONE.search(line):
            continue
        words, end = parse_name_after(parts[-1], 0, shouted=True, most=5)
        if words and not parts[-1][end:].strip(" ."):
            yield Evidence(
                kind=EvidenceKind.SIGNATURE,
                entity_type=ORGANIZATION,
                words=tuple(words),
                place=place,
                start=start,
                confidence=0.8 if is_sure else 0.5,
                says=says[:240],
            )
        return

"""Addresses: e-mail addresses in a text, whose they are, and which organisation gives them out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rem.dreaming.entities.name_words import PARTICLES, fold, folded, is_capitalised, word_set, words_before

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
    def local(self) -> str:
        """What stands before the @."""
        return self.address.partition("@")[0]

    @property
    def domain(self) -> str:
        """What stands behind the @."""
        return self.address.partition("@")[2]

    @property
    def is_role(self) -> bool:
        """Whether it belongs to a function and not to a person."""
        parts = [part for part in _PARTS.split(self.local) if part]
        return self.local in ROLES or any(part.rstrip("0123456789") in ROLES or part.isdigit() for part in parts)

    @property
    def spoken_name(self) -> tuple[str, ...]:
        """The name that the address itself says (sarah.chen); empty if it says none."""
        parts = [part for part in _PARTS.split(self.local) if part]
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


def mailboxes(text: str) -> Iterator[Mailbox]:
    """The addresses of a text, with the names that are written before them."""
    for found in _ADDRESS.finditer(text):
        start = found.start()
        address = found.group().lower()
        opener = text[start - 1 : start]
        words: tuple[str, ...] = ()
        if opener in ("<", "("):
            words = _display_name(text, start - 1, address.partition("@")[0])
        yield Mailbox(address, words, start)


def _display_name(text: str, end: int, local: str) -> tuple[str, ...]:
    line = text[max(0, end - 90, text.rfind("\n", 0, end) + 1) : end].rstrip()
    quoted = line.rpartition('"')[0].rpartition('"')[2] if line.endswith('"') else ""
    flipped = _LAST_FIRST.match(quoted)
    if flipped:
        return (*flipped.group(2).split(), *flipped.group(1).split())
    words = [word for word in words_before(line, len(line)) if word]
    if not words:
        uncased = _UNCASED.search(line)
        lone = uncased.group().strip() if uncased else ""
        return (lone,) if lone and not lone.isascii() and lone.lower() == lone.upper() else ()
    return tuple(_aligned(words, local))


def _aligned(words: list[str], local: str) -> list[str]:
    """The last words, from where the address begins: "Tell Sarah Chen <sarah.chen@…" names Sarah Chen."""
    for start in range(max(0, len(words) - 4), len(words) - 1):
        if fits(local, folded(words[start:])) and is_capitalised(words[start]):
            return words[start:]
    return words


def fits(local: str, name: tuple[str, ...]) -> bool:
    """Whether the part before the @ may be made of a full name: s.chen, schen, sarah.chen, chen, sarah-c …"""
    if len(name) < 2:
        return False
    given, family = name[0], name[-1]
    joined = "".join(name[1:])
    plain = fold(local).rstrip("0123456789")
    middle = "".join(part[0] for part in name[1:-1] if part not in PARTICLES)
    initials = given[0] + middle
    forms = {given + family, family + given, given[0] + family, family + given[0], given + family[0], given, family}
    forms |= {given + joined, given[0] + joined, initials + family, given + middle + family}
    return plain in forms or plain in {_umlauts(form) for form in forms}


def _umlauts(form: str) -> str:
    return form.replace("a\u0308", "ae").replace("o\u0308", "oe").replace("u\u0308", "ue").replace("ß", "ss")

"""Find machine credentials, card numbers, e-mail addresses and phone numbers in a text, by their format.

A credential is found by what issued it (`ghp_…`, `AKIA…`, a private key), by its place (the password in a URL, an
`Authorization` header) or by a name with a random value (`api_key = …`). What a person chose to remember, such as
"the wifi password is bluefin", has no such format and is not found. Every pattern takes linear time: it starts at a
word boundary, and its repetitions are bounded or possessive.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import NamedTuple


class PrivacyKind(StrEnum):
    """A kind of text that a policy decides about. The values are the names of the settings."""

    CREDENTIALS = "credentials"
    CARD_NUMBERS = "card_numbers"
    EMAILS = "emails"
    PHONES = "phones"


class Finding(NamedTuple):
    """A place in a text. `label` says what it is, in words for people."""

    start: int
    end: int
    kind: PrivacyKind
    label: str


MIN_CREDENTIAL_CHARS = 12
"""No credential is shorter, together with its prefix or its URL."""
MIN_TOKEN_CHARS = 16
"""A text without a word of this length has no token."""
MIN_HEX_DIGITS = 8
"""So many different digits has a random hexadecimal number, at least."""
MIN_CARD_DIGITS = 14
MIN_PHONE_DIGITS = 8


def find_private_data(text: str, kinds: frozenset[PrivacyKind]) -> list[Finding]:
    """Return what a text contains of these kinds, in order and without overlaps."""
    if not kinds:
        return []
    if text.isascii() or not _OTHER_FORM.search(text):
        return _find_in_plain_text(text, kinds)
    plain = text.translate(_PLAIN_FORMS)
    findings = _find_in_plain_text(plain, kinds)
    if not findings or len(plain) == len(text):
        return findings
    places = [place for place, character in enumerate(text) if character not in _INVISIBLE]
    return [found._replace(start=places[found.start], end=places[found.end - 1] + 1) for found in findings]


# Web pages and PDF files have spaces, hyphens and invisible characters of their own, and Asian keyboards wide letters.
_INVISIBLE = frozenset("\u00ad\u200b\u200c\u200d\u2060\ufeff")
_ZEROS = (0x660, 0x6F0, 0x966, 0x9E6, 0xA66, 0xAE6, 0xBE6, 0xC66, 0xCE6, 0xD66, 0xE50, 0xED0, 0xF20, 0x1040, 0x17E0)
"""The digit 0 of other scripts: Arabic, Persian, Devanagari and so on."""
_PLAIN_FORMS: dict[int, str | None] = {
    **{code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},
    **{zero + digit: str(digit) for zero in _ZEROS for digit in range(10)},
    **dict.fromkeys((0xA0, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000), " "),
    **dict.fromkeys((0x2010, 0x2011, 0x2012, 0x2013, 0x2212), "-"),
    **{ord(character): None for character in _INVISIBLE},
}
_OTHER_FORM = re.compile(f"[{''.join(map(chr, _PLAIN_FORMS))}]")


def _find_in_plain_text(text: str, kinds: frozenset[PrivacyKind]) -> list[Finding]:
    findings: list[Finding] = []
    if PrivacyKind.CREDENTIALS in kinds and len(text) >= MIN_CREDENTIAL_CHARS:
        findings += _find_credentials(text)
    if PrivacyKind.EMAILS in kinds and "@" in text:
        findings += (Finding(*match.span(), PrivacyKind.EMAILS, "e-mail address") for match in _EMAIL.finditer(text))
    if PrivacyKind.CARD_NUMBERS in kinds and _has_long_number(text):
        findings += _find_card_numbers(text)
    if PrivacyKind.PHONES in kinds:
        findings += _find_phones(text)
    return _drop_overlaps(findings)


def _drop_overlaps(findings: list[Finding]) -> list[Finding]:
    """Return the findings in the order of the text. Of two that overlap, the earlier kind or else the first counts."""
    if len(findings) < 2:
        return findings
    kept: list[Finding] = []
    for kind in PrivacyKind:
        own: list[Finding] = []
        for finding in sorted(found for found in findings if found.kind is kind):
            place = bisect_left(kept, finding)
            is_covered = place > 0 and kept[place - 1].end > finding.start
            is_repeated = bool(own) and own[-1].end > finding.start
            if not is_covered and not is_repeated and (place == len(kept) or kept[place].start >= finding.end):
                own.append(finding)
        kept = sorted([*kept, *own])
    return kept


# Credentials.

_CREDENTIALS = PrivacyKind.CREDENTIALS
_WORD_START = r"(?<![A-Za-z0-9-])(?<![A-Za-z0-9]_)(?<![A-Za-z0-9]__)"
"""Markdown may have one or two underscores before a word."""
_ISSUED_TOKENS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"gh[pousr]_[A-Za-z0-9]{30,255}+", "token"),
    (("github_pat_",), r"github_pat_[A-Za-z0-9_]{40,255}+", "token"),
    (("glpat-",), r"glpat-[A-Za-z0-9_-]{20,255}+", "token"),
    (("xox", "xapp-"), r"(?:xox[abeoprs]|xapp)-[A-Za-z0-9-]{16,255}+", "token"),
    (("AKIA", "ASIA"), r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])", "api key"),
    (("AIza",), r"AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])", "api key"),
    (("ya29.",), r"ya29\.[A-Za-z0-9_-]{20,1000}+", "token"),
    (("GOCSPX-",), r"GOCSPX-[A-Za-z0-9_-]{20,60}+", "api key"),
    (("hf_", "gsk_", "r8_", "npm_"), r"(?:hf|gsk|r8|npm)_[A-Za-z0-9]{30,100}+", "token"),
    (("pypi-AgE",), r"pypi-AgE[A-Za-z0-9_-]{40,1000}+", "token"),
    (("SG.",), r"SG\.[A-Za-z0-9_-]{16,64}+\.[A-Za-z0-9_-]{16,64}+", "api key"),
    (("sk_live_", "sk_test_", "rk_live_", "rk_test_"), r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,255}+", "api key"),
    (("whsec_",), r"whsec_[A-Za-z0-9+/=]{24,255}+", "api key"),
    (("shpat_", "shpca_", "shppa_", "shpss_"), r"shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{32}(?![A-Za-z0-9])", "token"),
    (("dop_v1_",), r"dop_v1_[a-f0-9]{64}(?![A-Za-z0-9])", "token"),
    (("dapi",), r"dapi[a-f0-9]{32}(?:-\d)?(?![A-Za-z0-9])", "token"),
    (("hvs.",), r"hvs\.[A-Za-z0-9_-]{24,255}+", "token"),
    (("lin_api_", "ntn_"), r"(?:lin_api|ntn)_[A-Za-z0-9]{30,100}+", "api key"),
    (("xai-", "pplx-"), r"(?:xai|pplx)-[A-Za-z0-9]{40,255}+", "api key"),
    (("AGE-SECRET-KEY-",), r"AGE-SECRET-KEY-1[A-Z0-9]{50,70}+", "private key"),
    ((":AA",), r"\d{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])", "token"),
    (("hooks.slack.com/services/",), r"hooks\.slack\.com/services/[A-Za-z0-9_/]{20,100}+", "webhook address"),
    (("AccountKey=", "SharedAccessKey="), r"(?:Account|SharedAccess)Key=[A-Za-z0-9+/]{40,100}+={0,2}", "api key"),
)
"""The words that a token contains, its pattern and its label. After its prefix, each of them is random."""
_HINTS = tuple((hints, re.compile(_WORD_START + pattern), label) for hints, pattern, label in _ISSUED_TOKENS)
_ALL_HINTS = (*(hint for hints, _, _ in _ISSUED_TOKENS for hint in hints), "sk-", "sk_", "remk_", "eyJ")
_ANY_HINT = re.compile("|".join(map(re.escape, _ALL_HINTS)))
# Most texts have no word as long as a token. Looking for one is much cheaper than looking for each kind of token.
_LONG_WORD = re.compile(r"[A-Za-z0-9_+/=.~:-]{16,}+")
_TOKEN_CHARACTERS = bytes(
    ord("x" if code < 128 and (chr(code).isalnum() or chr(code) in "_+/=.~:-") else " ") for code in range(256)
)
_LONG_RUN = b"x" * MIN_TOKEN_CHARS
_SK_KEY = re.compile(rf"{_WORD_START}(?:sk|remk)[-_](?P<value>[A-Za-z0-9_-]{{20,255}}+)")
_JWT = re.compile(
    r"(?<![A-Za-z0-9_.-])eyJ[A-Za-z0-9_-]{8,4000}+\.[A-Za-z0-9_-]{4,8000}+\.[A-Za-z0-9_-]{0,2000}+(?![A-Za-z0-9_-])"
)
_URL_PASSWORD = re.compile(
    r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{1,30}+://[^\s/?#:@]{0,100}+:(?P<value>[^\s/?#]{1,200})@[^\s/?#@]"
)
_NAMED_VALUE = re.compile(
    r"(?<![A-Za-z0-9])(?:(?P<name>(?:api|secret|access|encryption|signing|account)[_ -]?(?:access[_ -]?)?key"
    r"|(?:client|webhook|signing|app|jwt)[_ -]?secret|(?:access|auth|refresh|bearer|private|api|bot)[_ -]?token"
    r"|authorization)|(?P<setting>password|secret|token))"
    r"[\"'`*]{0,3}[ \t]{0,3}[=:][=>]?[ \t]{0,3}[\"'`]{0,3}(?:(?:bearer|basic|token)[ \t]{1,3})?"
    r"(?P<value>[A-Za-z0-9_+/=.~-]{16,1000}+)",
    re.IGNORECASE,
)
_SETTING_PREFIX = re.compile(r"[A-Z0-9]_$")
_BEARER = re.compile(r"(?<![A-Za-z0-9])(?:Bearer|bearer)[ \t]{1,3}(?P<value>[A-Za-z0-9_+/=.~-]{20,1000}+)")
_NAME_HINTS = ("key", "secret", "token", "authorization", "password")
_PRIVATE_KEY_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}?PRIVATE KEY(?: BLOCK)?-----")
_PRIVATE_KEY_END = re.compile(r"-----END [A-Z0-9 ]{0,60}-----")
_KEY_LINES = re.compile(r"[A-Za-z0-9+/=\s\\]*+")
_PLACEHOLDER = re.compile(
    r"^(?:pass(?:word|wd)?|pwd?|secret|token|x+|\*+|\.+|…|changeme|example|your.*|<.*|\$.*|%.*|\{.*|\[masked.*)$",
    re.IGNORECASE,
)
_HEX = re.compile(r"^[0-9A-Fa-f]{32,}$")
_UUID = re.compile(r"^[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$")


def _find_credentials(text: str) -> Iterator[Finding]:
    if "-----BEGIN" in text:
        yield from (Finding(start, end, _CREDENTIALS, "private key") for start, end in find_private_keys(text))
    if "://" in text and "@" in text:
        yield from _find_values(_URL_PASSWORD, text, "password", lambda value: not _PLACEHOLDER.match(value))
    if _LONG_RUN not in text.encode(errors="replace").translate(_TOKEN_CHARACTERS):
        return
    if _contains_any(text, _ALL_HINTS) and _ANY_HINT.search(" ".join(_LONG_WORD.findall(text))):
        yield from _find_issued_tokens(text)
    if "earer" in text:
        yield from _find_values(_BEARER, text, "token", is_random)
    lower = text.lower()
    if _contains_any(lower, _NAME_HINTS) and ("=" in text or ":" in text):
        yield from _find_named_values(text)


def _contains_any(text: str, words: tuple[str, ...]) -> bool:
    """Return whether a text contains one of some words. This is faster than a regular expression or `any`."""
    for word in words:  # noqa: SIM110
        if word in text:
            return True
    return False


def _find_issued_tokens(text: str) -> Iterator[Finding]:
    for hints, pattern, label in _HINTS:
        if any(hint in text for hint in hints):
            yield from (Finding(*match.span(), _CREDENTIALS, label) for match in pattern.finditer(text))
    for match in _SK_KEY.finditer(text):
        if is_random(match["value"]):
            yield Finding(*match.span(), _CREDENTIALS, "api key")
    yield from (Finding(*match.span(), _CREDENTIALS, "token") for match in _JWT.finditer(text))


def _find_values(
    pattern: re.Pattern[str], text: str, label: str, is_secret: Callable[[str], bool]
) -> Iterator[Finding]:
    for match in pattern.finditer(text):
        if is_secret(match["value"]):
            yield Finding(*match.span("value"), _CREDENTIALS, label)


def _find_named_values(text: str) -> Iterator[Finding]:
    for match in _NAMED_VALUE.finditer(text):
        setting, value = match["setting"], match["value"]
        # A person may write "token: …" about anything; DB_PASSWORD=… is a setting of a program.
        prefix = text[max(0, match.start() - 2) : match.start()]
        if setting and not (setting.isupper() and _SETTING_PREFIX.search(prefix)):
            continue
        if is_random(value) or _UUID.match(value):
            name = (match["name"] or setting).lower()
            label = "api key" if "key" in name else "password" if name == "password" else "token"
            yield Finding(*match.span("value"), _CREDENTIALS, label)


def is_random(value: str) -> bool:
    """Return whether a value is random: mixed cases and digits in one piece, or a long hexadecimal number."""
    if len(value) < MIN_TOKEN_CHARS or _PLACEHOLDER.match(value):
        return False
    pieces = [piece for piece in re.split(r"[-_.]", value) if piece]
    if any(_HEX.match(piece) and len(set(piece)) >= MIN_HEX_DIGITS for piece in pieces):
        return True
    longest = max(pieces, key=len, default="")
    digits = sum(map(str.isdigit, value))
    upper, lower = sum(map(str.isupper, value)), sum(map(str.islower, value))
    return len(longest) >= 8 and min(digits, upper, lower) >= 2 and digits + upper >= 5


def find_private_keys(text: str) -> Iterator[tuple[int, int]]:
    """Yield the span of each private key block. A block without an end reaches to the end of its lines."""
    done, has_end = 0, True
    for begin in _PRIVATE_KEY_BEGIN.finditer(text):
        if begin.start() < done:
            continue
        end = _PRIVATE_KEY_END.search(text, begin.end()) if has_end else None
        has_end = end is not None
        lines = _KEY_LINES.match(text, begin.end())
        done = end.end() if end else (lines.end() if lines else begin.end())
        yield begin.start(), done


# Card numbers.

_CARD_NUMBER = re.compile(
    r"(?<![\w.,/+-])(?:\d{14,16}|\d{19}|\d{4}([ .-])\d{4}\1\d{4}\1\d{4}|\d{4}([ .-])\d{6}\2\d{4,5})(?![\w-])(?![.,]\d)"
)
_DIGIT_CHARACTERS = bytes(ord("d" if 48 <= code < 58 else " ") for code in range(256))
_CARD_ISSUERS = re.compile(
    r"^(?:4\d{15}|4\d{18}|5[1-5]\d{14}|(?:222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720)\d{12}|3[47]\d{13}"
    r"|3(?:0[0-5]|[68]\d)\d{11}|6(?:011|5\d\d|4[4-9]\d)\d{12}|35(?:2[89]|[3-8]\d)\d{12}|62\d{14})$"
)
_NUMBER_OF_SOMETHING = re.compile(
    r"(?:order|ticket|invoice|tracking|shipment|parcel|serial|reference|booking|bestell\w*|auftrag\w*|rechnung\w*|"
    r"sendung\w*|case|id|no|nr|imei|ref)\W{0,3}(?:number|no|nr|id)?\W{0,4}$",
    re.IGNORECASE,
)
_CARD_WORD = re.compile(r"card|visa|amex|express|maestro|karte|debit|credit", re.IGNORECASE)
_CONTEXT_CHARS = 40


def _has_long_number(text: str) -> bool:
    """Return whether a text has as many digits in a row as a card, apart from spaces, dots and hyphens."""
    return b"d" * MIN_CARD_DIGITS in text.encode(errors="replace").translate(_DIGIT_CHARACTERS, b" .-")


def _find_card_numbers(text: str) -> Iterator[Finding]:
    for match in _CARD_NUMBER.finditer(text):
        digits = "".join(filter(str.isdigit, match.group()))
        if not _CARD_ISSUERS.match(digits) or not passes_luhn(digits) or len(set(digits)) == 1:
            continue
        before = text[max(0, match.start() - _CONTEXT_CHARS) : match.start()]
        # One in ten of all numbers passes the check, so a number that is called something else is that.
        if _NUMBER_OF_SOMETHING.search(before) and not _CARD_WORD.search(before):
            continue
        yield Finding(*match.span(), PrivacyKind.CARD_NUMBERS, "card number")


def passes_luhn(digits: str) -> bool:
    """Return whether the last digit is the check digit of the others."""
    total = 0
    for position, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + position % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


# E-mail addresses and phone numbers.

_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}+@(?:[\w-]{1,63}+\.){1,8}+[^\W\d_]{2,24}+(?![\w-])")
_PHONE = re.compile(r"(?<![\w.,/:+-])(?:\+|00|0|\()[\d ()/.-]{5,22}\d(?!\w)")
_MAX_PHONE_DIGITS = 15
_DATE_OR_FRACTION = re.compile(r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}|0[.,]\d")


def _find_phones(text: str) -> Iterator[Finding]:
    for match in _PHONE.finditer(text):
        number = match.group()
        digits = sum(map(str.isdigit, number))
        if MIN_PHONE_DIGITS <= digits <= _MAX_PHONE_DIGITS and not _DATE_OR_FRACTION.match(number.lstrip("(+")):
            yield Finding(*match.span(), PrivacyKind.PHONES, "phone number")

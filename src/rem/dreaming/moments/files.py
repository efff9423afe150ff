"""Mails: what an e-mail says, apart from who sent it to whom and what was attached."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rem.dreaming.text.secrets import contains_secret

_ENDINGS = (".eml", ".msg")
_FIELD = re.compile(r"^\**(From|To|Cc|Bcc|Date|Subject)\**: *", re.MULTILINE)
_PARAGRAPH = re.compile(r"\s*\S.*?(?=\n\s*\n|\Z)", re.DOTALL)
_ATTACHED = re.compile(r"^(?:## (?:.+\.\w{1,8}|attachment \d+)|Attachments:)[ \t]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class MailText:
    """What a mail says."""

    subject: str
    """Empty if it has none."""
    body: list[str]
    """What of each part of the mail is in its body; empty for those that have nothing of it."""


def is_mail(name: str) -> bool:
    """Whether a file of this name is an e-mail."""
    return name.lower().endswith(_ENDINGS)


def parse_mail(parts: Sequence[str]) -> MailText:
    """The subject and body of a mail, from its beginning in pieces. Without a body it says what is attached."""
    text = "".join(parts)
    subject, start = _parse_header(text)
    attached = _ATTACHED.search(text, start)
    end = attached.start() if attached and text[start : attached.start()].strip() else len(text)
    body, place = [], 0
    for part in parts:
        body.append(part[max(0, start - place) : max(0, end - place)].strip())
        place += len(part)
    return MailText(subject, body)


def _parse_header(text: str) -> tuple[str, int]:
    """The subject, and where the header ends: with the first paragraph that is none of its fields, or one again."""
    subject, end = "", 0
    seen: set[str] = set()
    for paragraph in _PARAGRAPH.finditer(text):
        found = list(_FIELD.finditer(paragraph.group().lstrip()))
        if not found or found[0].start() > 0 or found[0][1] in seen:
            break
        for field, following in zip(found, [*found[1:], None], strict=True):
            seen.add(field[1])
            if field[1] == "Subject":
                value = paragraph.group().lstrip()[field.end() : following.start() if following else None]
                subject = " ".join(value.split())
        end = paragraph.end()
    return subject, end


_DATA = (
    "json jsonl ndjson geojson yaml yml toml ini cfg conf env xml csv tsv parquet sql lock properties plist xlsx ods"
)
_CODE = (
    "py pyi ipynb js mjs cjs jsx ts tsx java kt go rs c h cc cpp hpp cs rb php swift scala lua r jl pl sh bash zsh ps1 "
    "css scss html htm vue svelte tf proto graphql dockerfile makefile"
)
_WITHOUT_SENTENCES = frozenset(f"{_DATA} {_CODE}".split()) - {"html", "htm"}
_TABLES = frozenset({"csv", "tsv"})
_KEY = re.compile(r'^[ \t]{0,4}[{\[]{0,2}\s?"?([A-Za-z_][\w.-]{0,40})"?[ \t]*[:=](?=\s|["\d\[{]|$)', re.MULTILINE)
_KEYED = frozenset({"json", "jsonl", "yaml", "yml", "toml", "ini", "cfg", "conf", "properties"})
MAX_KEYS = 8
MAX_KEY_CHARS = 40


def is_data_file(name: str) -> bool:
    """Whether a file of this name has data or a program in it, rather than sentences."""
    return _extension(name) in _WITHOUT_SENTENCES


def extract_keys(name: str, texts: Sequence[str]) -> list[str]:
    """What a data file calls its values, as far as that is told at its beginning: the keys, or the columns."""
    ending, text = _extension(name), texts[0] if texts else ""
    if ending in _TABLES:
        first = text.strip().splitlines()[0] if text.strip() else ""
        found = [column.strip(" \"'|") for column in re.split(r"[,;\t|]", first)]
    elif ending in _KEYED:
        found = [match.group(1) for match in _KEY.finditer(text)]
    else:
        found = []
    keys = dict.fromkeys(key for key in found if 0 < len(key) <= MAX_KEY_CHARS and not contains_secret(key))
    return list(keys)[:MAX_KEYS]


def _extension(name: str) -> str:
    return name.rsplit("/", 1)[-1].rsplit(".", 1)[-1].lower()

"""Files: reads e-mails and data files for their moments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rem.dreams.text.secrets import contains_secret
from rem.text import collapse_spaces

MAIL_EXTENSIONS = (".eml", ".msg")
_DATA_EXTENSIONS = (
    "json jsonl ndjson geojson yaml yml toml ini cfg conf env xml csv tsv parquet sql lock properties plist xlsx ods"
)
_CODE_EXTENSIONS = (
    "py pyi ipynb js mjs cjs jsx ts tsx java kt go rs c h cc cpp hpp cs rb php swift scala lua r jl pl sh bash zsh ps1 "
    "css scss vue svelte tf proto graphql dockerfile makefile"
)
EXTENSIONS_WITHOUT_SENTENCES = frozenset(f"{_DATA_EXTENSIONS} {_CODE_EXTENSIONS}".split())
EXTENSIONS_WITH_COLUMNS = frozenset({"csv", "tsv"})
EXTENSIONS_WITH_KEYS = frozenset({"json", "jsonl", "yaml", "yml", "toml", "ini", "cfg", "conf", "properties"})
MAX_KEYS = 8
MAX_KEY_CHARS = 40
_HEADER_FIELD = re.compile(r"^\**(From|To|Cc|Bcc|Date|Subject)\**: *", re.MULTILINE)
_iterate_paragraphs = re.compile(r"\S.*?(?=\n\s*\n|\Z)", re.DOTALL).finditer
_ATTACHMENTS = re.compile(r"^(?:## (?:.+\.\w{1,8}|attachment \d+)|Attachments:)[ \t]*$", re.MULTILINE)
_KEY = re.compile(r'^[ \t]{0,4}[{\[]{0,2}\s?"?([A-Za-z_][\w.-]{0,40})"?[ \t]*[:=](?=\s|["\d\[{]|$)', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class MailText:
    """Subject and body of an e-mail."""

    subject: str
    """Empty if it has none."""
    body: list[str]
    """The body in each part of the mail; empty for a part without any of it."""


def is_mail(name: str) -> bool:
    """Return whether a file of this name is an e-mail."""
    return name.lower().endswith(MAIL_EXTENSIONS)


def parse_mail(parts: Sequence[str]) -> MailText:
    """Return subject and body of a mail from its first parts. Attachments are the body of a mail without other text."""
    text = "".join(parts)
    subject, start = _parse_header(text)
    attachments = _ATTACHMENTS.search(text, start)
    end = attachments.start() if attachments and text[start : attachments.start()].strip() else len(text)
    body, offset = [], 0
    for part in parts:
        body.append(part[max(0, start - offset) : max(0, end - offset)].strip())
        offset += len(part)
    return MailText(subject, body)


def _parse_header(text: str) -> tuple[str, int]:
    """Return the subject and the end offset of the header.

    The header ends before the first paragraph that is no header field, or repeats one.
    """
    subject, end = "", 0
    seen: set[str] = set()
    for paragraph in _iterate_paragraphs(text):
        lines = paragraph.group()
        fields = list(_HEADER_FIELD.finditer(lines))
        if not fields or fields[0].start() > 0 or fields[0][1] in seen:
            break
        for field, following in zip(fields, [*fields[1:], None], strict=True):
            seen.add(field[1])
            if field[1] == "Subject":
                subject = collapse_spaces(lines[field.end() : following.start() if following else None])
        end = paragraph.end()
    return subject, end


def is_data_file(name: str) -> bool:
    """Return whether a file of this name contains data or source code, not sentences."""
    return _get_extension(name) in EXTENSIONS_WITHOUT_SENTENCES


def extract_keys(name: str, texts: Sequence[str]) -> list[str]:
    """Return the keys or column names at the beginning of a data file."""
    extension, text = _get_extension(name), texts[0] if texts else ""
    if extension in EXTENSIONS_WITH_COLUMNS:
        header = text.strip().splitlines()[0] if text.strip() else ""
        candidates = [column.strip(" \"'|") for column in re.split(r"[,;\t|]", header)]
    elif extension in EXTENSIONS_WITH_KEYS:
        candidates = [match.group(1) for match in _KEY.finditer(text)]
    else:
        candidates = []
    keys = dict.fromkeys(key for key in candidates if 0 < len(key) <= MAX_KEY_CHARS and not contains_secret(key))
    return list(keys)[:MAX_KEYS]


def _get_extension(name: str) -> str:
    return name.rsplit("/", 1)[-1].rsplit(".", 1)[-1].lower()

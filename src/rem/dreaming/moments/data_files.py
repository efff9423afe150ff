"""Data files: what is said of a file whose lines are no sentences, such as JSON, tables and programs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rem.dreaming.secrets import tells_secret

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
_MOST_KEYS = 8
_LONGEST_COLUMN = 40


def is_data(name: str) -> bool:
    """Whether a file of this name has data or a program in it, rather than sentences."""
    return _ending(name) in _WITHOUT_SENTENCES


def keys_of(name: str, texts: Sequence[str]) -> list[str]:
    """What a data file calls its values, as far as that is told at its beginning: the keys, or the columns."""
    ending, text = _ending(name), texts[0] if texts else ""
    if ending in _TABLES:
        first = text.strip().splitlines()[0] if text.strip() else ""
        found = [column.strip(" \"'|") for column in re.split(r"[,;\t|]", first)]
    elif ending in _KEYED:
        found = [match.group(1) for match in _KEY.finditer(text)]
    else:
        found = []
    keys = dict.fromkeys(key for key in found if 0 < len(key) <= _LONGEST_COLUMN and not tells_secret(key))
    return list(keys)[:_MOST_KEYS]


def _ending(name: str) -> str:
    return name.rsplit("/", 1)[-1].rsplit(".", 1)[-1].lower()

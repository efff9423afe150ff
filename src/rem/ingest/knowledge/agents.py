"""Which files are the definition of an agent or evaluator, and are kept as such instead of as text."""

from __future__ import annotations

import posixpath
import re
from typing import Any

import yaml

from rem.db.yaml import YamlLimitError, load_yaml
from rem.errors import FileUnreadableError
from rem.ingest.models import FetchedFile

_SUFFIXES = frozenset({".yaml", ".yml"})
_KIND = re.compile(rb"(?:^|[{,])[ \t\"']*kind[\"']?[ \t]*:[ \t]*[\"']?(?:agent|evaluator)\b", re.MULTILINE)
_LONGEST = 256 * 1024


def extract_agent_yaml(file: FetchedFile) -> str | None:
    """The YAML of an agent or evaluator; None if the file is anything else.

    One that says what it is and is broken beyond that counts, too: its owner wants to hear what is wrong with it.
    """
    if posixpath.splitext(file.name)[1].lower() not in _SUFFIXES or len(file.data) > _LONGEST:
        return None
    if not _KIND.search(file.data):
        return None
    try:
        text = file.data.decode("utf-8-sig")
        value = load_yaml(text)
    except YamlLimitError as error:
        raise FileUnreadableError(f"{file.name} says it is an agent, but is not read: {error}.") from error
    except (UnicodeDecodeError, yaml.YAMLError, ValueError, RecursionError):
        return file.data.decode("utf-8-sig", errors="replace") if b"json_schema_extra" in file.data else None
    return text if _kind_of(value) in ("agent", "evaluator") else None


def _kind_of(value: Any) -> Any:
    if not isinstance(value, dict):
        return None
    extra = value.get("json_schema_extra")
    return extra.get("kind") if isinstance(extra, dict) and "kind" in extra else value.get("kind")

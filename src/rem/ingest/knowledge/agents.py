"""Recognise YAML files that define an agent or evaluator."""

from __future__ import annotations

import posixpath
import re
from typing import Any

import yaml

from rem.db.yaml import YamlLimitError, load_yaml
from rem.errors import FileUnreadableError
from rem.ingest.models import FetchedFile

_SUFFIXES = frozenset({".yaml", ".yml"})
_AGENT_KIND = re.compile(rb"(?:^|[{,])[ \t\"']*kind[\"']?[ \t]*:[ \t]*[\"']?(?:agent|evaluator)\b", re.MULTILINE)
MAX_AGENT_FILE_BYTES = 256 * 1024


def extract_agent_yaml(file: FetchedFile) -> str | None:
    """Return the YAML of an agent or evaluator; None if the file is something else.

    A broken file that declares itself an agent is returned, too, so saving it reports what is wrong.
    """
    if posixpath.splitext(file.name)[1].lower() not in _SUFFIXES or len(file.data) > MAX_AGENT_FILE_BYTES:
        return None
    if not _AGENT_KIND.search(file.data):
        return None
    try:
        text = file.data.decode("utf-8-sig")
        value = load_yaml(text)
    except YamlLimitError as error:
        raise FileUnreadableError(f"{file.name} declares an agent but cannot be read: {error}.") from error
    except (UnicodeDecodeError, yaml.YAMLError, ValueError, RecursionError):
        return file.data.decode("utf-8-sig", errors="replace") if b"json_schema_extra" in file.data else None
    return text if _read_kind(value) in ("agent", "evaluator") else None


def _read_kind(value: Any) -> Any:
    if not isinstance(value, dict):
        return None
    extra = value.get("json_schema_extra")
    return extra.get("kind") if isinstance(extra, dict) and "kind" in extra else value.get("kind")

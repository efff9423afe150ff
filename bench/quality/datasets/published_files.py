"""Find and read the files of published data sets."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rem.errors import InvalidInputError
from rem.evals.json_files import parse_json, read_bytes, require_path

JSON_SUFFIXES = (".json", ".json.gz")


def find_file(path: Path, name: str) -> Path:
    """Return the file. For a folder: its one JSON file with `name` in its file name, or else its only JSON file."""
    require_path(path)
    if not path.is_dir():
        return path
    files = sorted(file for file in path.iterdir() if file.is_file())
    named = [
        file for file in files if name in file.name.lower() and (file.name.endswith(JSON_SUFFIXES) or not file.suffix)
    ]
    candidates = named or [file for file in files if file.name.endswith(JSON_SUFFIXES)]
    if not candidates:
        raise InvalidInputError(f"{path} has no .json or .json.gz file: name the file of {name}.")
    if len(candidates) > 1:
        names = ", ".join(file.name for file in candidates)
        raise InvalidInputError(f"{path} has several files ({names}): name one of them.")
    return candidates[0]


def read_entries(path: Path, dataset_name: str) -> list[Any]:
    """Return the list in the file of a data set. Raise InvalidInputError if it is not a list, or empty."""
    entries = parse_json(read_bytes(path), str(path))
    if not isinstance(entries, list):
        raise InvalidInputError(f"{path} is not a file of {dataset_name}, which is a list.")
    if not entries:
        raise InvalidInputError(f"{path} is an empty list: there is nothing to ask.")
    return entries


def parse_time(text: str, formats: Sequence[str], where: str) -> datetime:
    """Parse a time in one of the formats of the data set, as UTC."""
    for time_format in formats:
        try:
            return datetime.strptime(text.strip(), time_format).replace(tzinfo=UTC)
        except ValueError:
            continue
    raise InvalidInputError(f"{where}: {text!r} is not a time in a format of this data set.")

"""The names of environment variables: which setting a name means, and which names only look like a setting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from rem.errors import SettingsError
from rem.settings.group import DELIMITER, get_group_class

MIN_GROUP_SIMILARITY = 0.75
MIN_GENERAL_SIMILARITY = 0.85
"""A variable whose name is this similar to a setting is an error. Less similar ones belong to other programs."""


class VariableNames:
    """Compares the names of variables with the settings of a class."""

    def __init__(self, model: type[BaseModel]) -> None:
        self._model = model
        self._groups = {name for name, field in model.model_fields.items() if get_group_class(field) is not None}
        self._general = set(model.model_fields) - self._groups

    def contain_settings(self, names: Iterable[str]) -> bool:
        """Return True if one of the names is a setting, or one of a known group."""
        return any(name.lower() in self._general or self._is_of_known_group(name) for name in names)

    def list_unknown_groups(self, names: Iterable[str]) -> list[str]:
        """Return the names that look like settings, such as `SERVER__PORT`, but have no known group."""
        return sorted(name for name in names if DELIMITER in name.strip("_") and not self._is_of_known_group(name))

    def refuse_misspelt(self, names: Iterable[str]) -> None:
        """Raise SettingsError if a name is almost that of a setting: it would silently have no effect."""
        for name in names:
            if (correct := self._correct(name.lower())) is not None:
                raise SettingsError(
                    f"{name.upper()}: there is no such setting (did you mean {correct.upper()}?). "
                    "If the variable belongs to another program, run REM without it."
                )

    def describe(self, issue: ErrorDetails) -> str:
        """Return a message for a value that is not valid. It begins with the name of the variable."""
        path = [str(part) for part in issue["loc"]]
        name = DELIMITER.join(path)
        if issue["type"] == "extra_forbidden":
            close = get_close_matches(name, self._list_group(path[:-1]), 1)
            message = "there is no such setting" + (f" (did you mean {close[0].upper()}?)" if close else "")
        else:
            message = issue["msg"].removeprefix("Value error, ")
        return f"{name.upper()}: {message}"

    def _is_of_known_group(self, name: str) -> bool:
        group, rest = _split(name)
        return bool(rest) and group in self._groups

    def _correct(self, name: str) -> str | None:
        """Return the setting that a misspelt name means, or None if it is correct or belongs to another program."""
        group, rest = _split(name)
        if rest:
            close = [] if group in self._groups else get_close_matches(group, self._groups, 1, MIN_GROUP_SIMILARITY)
            return f"{close[0]}{DELIMITER}{rest}" if close else None
        if not name.startswith("rem_") or name in self._general:
            return None
        return next(iter(get_close_matches(name, self._general, 1, MIN_GENERAL_SIMILARITY)), None)

    def _list_group(self, path: Sequence[str]) -> list[str]:
        """Return the full names of the settings in a group."""
        model = self._model
        for name in path:
            model = get_group_class(model.model_fields[name]) or model
        return [DELIMITER.join((*path, name)) for name in model.model_fields]


def _split(name: str) -> tuple[str, str]:
    group, _, rest = name.lower().partition(DELIMITER)
    return group, rest

"""The settings as they are in effect: every setting with its value, and where the value comes from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from loguru import logger
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_settings import DotEnvSettingsSource, EnvSettingsSource

from rem.errors import InvalidInputError, SettingsError
from rem.settings.config_file import (
    FILE_SETTINGS,
    GENERAL_PREFIX,
    HOME_FILE,
    find_config_file,
    find_env_file,
    read_config_file,
)
from rem.settings.group import DELIMITER, get_group_class
from rem.settings.settings import Settings, get_settings
from rem.text import did_you_mean

SourceName: TypeAlias = Literal["environment", "env file", "config file", "memory.vector_store", "default"]
SourceValues: TypeAlias = tuple[SourceName, str | None, Mapping[str, Any]]
"""A source, its file if it is one, and its nested values."""
_SET_BY_VECTOR_STORE = (("embedding", "provider"), ("embedding", "model"))
"""Settings that follow `memory.vector_store` unless they are set themselves."""


@dataclass(frozen=True, slots=True)
class SettingName:
    """One setting: its path in the classes of the settings, such as `("memory", "rag", "top_k")`."""

    path: tuple[str, ...]
    field: FieldInfo

    @property
    def file_path(self) -> tuple[str, ...]:
        """The path in the YAML file, which leaves out the prefix of settings without a group."""
        return (self.path[0].removeprefix(GENERAL_PREFIX), *self.path[1:])

    @property
    def name(self) -> str:
        """The name in the YAML file: memory.rag.top_k."""
        return ".".join(self.file_path)

    @property
    def variable(self) -> str:
        """The name in the environment: MEMORY__RAG__TOP_K."""
        return DELIMITER.join(self.path).upper()

    @property
    def is_in_file(self) -> bool:
        """Whether the YAML file can contain it."""
        return self.path[0] not in FILE_SETTINGS


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """The value of a setting, with secrets hidden, and where it comes from."""

    setting: SettingName
    value: Any
    source: SourceName
    detail: str | None
    """The variable or the file that has the value."""


def list_setting_names(model: type[BaseModel] = Settings, path: tuple[str, ...] = ()) -> Iterator[SettingName]:
    """Yield every setting of the groups and their subgroups."""
    for name, field in model.model_fields.items():
        group = get_group_class(field)
        if group is None:
            yield SettingName((*path, name), field)
        else:
            yield from list_setting_names(group, (*path, name))


def find_settings(text: str) -> list[SettingName]:
    """Return the setting with this name, or all settings of this group. Names may be those of the environment.

    Raise InvalidInputError, which names the nearest one, if there is none.
    """
    wanted = tuple(text.strip().lower().replace(DELIMITER, ".").split("."))
    settings = list(list_setting_names())
    found = [
        setting for setting in settings if wanted in (setting.path[: len(wanted)], setting.file_path[: len(wanted)])
    ]
    if not found:
        names = {setting.name for setting in settings} | {setting.path[0] for setting in settings if setting.path[1:]}
        advice = did_you_mean(".".join(wanted), sorted(names))
        raise InvalidInputError(f"There is no setting {text}.{advice} `rem config show --all` lists all.")
    return found


def find_setting(text: str) -> SettingName:
    """Return the setting with this name. Raise InvalidInputError if there is none, or if it is a whole group."""
    found = find_settings(text)
    if len(found) > 1:
        names = ", ".join(setting.name for setting in found)
        raise InvalidInputError(f"{text} is a group of settings: name one of {names}.")
    return found[0]


def locate_config_file() -> Path:
    """Return the path of the YAML file that is read, or that would be read if it existed.

    It does not read the file, so that a file with errors can be found and repaired.
    """
    named = _find_in_environment(("rem_config",))
    if named:
        return Path(named).expanduser().absolute()
    home = _find_in_environment(("rem_home",)) or Settings.model_fields["rem_home"].default
    return Path(home).expanduser().absolute() / HOME_FILE


def list_effective_settings() -> list[EffectiveSetting]:
    """Return all settings. Raise SettingsError if they are not valid."""
    values = get_settings().model_dump(mode="json")
    sources = _load_sources()
    return [_make_effective(setting, values, sources) for setting in list_setting_names()]


def find_override(setting: SettingName) -> str | None:
    """Return the variable, and its file, that overrides a setting in the YAML file; None if there is none."""
    for _, place, values in _read_environment():
        if _has(values, setting.path):
            return setting.variable if place is None else f"{setting.variable} in {place}"
    return None


def read_default_user(settings: Settings) -> str | None:
    """Return the default user of a running server: the YAML file may name another one than at its start.

    The environment overrides the file. While the file is not valid, the user at the start stays.
    """
    user = find_setting("rem_user")
    if find_override(user):
        return settings.rem_user
    try:
        path = find_config_file(settings.rem_config, settings.rem_home)
        values = {} if path is None else read_config_file(path, Settings)
    except SettingsError as error:
        logger.warning("The default user is that of the start: {}", error)
        return settings.rem_user
    name: str | None = _get(values, user.path)
    return name


def _make_effective(
    setting: SettingName,
    values: Mapping[str, Any],
    sources: Sequence[SourceValues],
) -> EffectiveSetting:
    value = _get(values, setting.path)
    for source, place, data in sources:
        if _has(data, setting.path):
            return EffectiveSetting(setting, value, source, setting.variable if source == "environment" else place)
    is_derived = setting.path in _SET_BY_VECTOR_STORE and value != setting.field.default
    return EffectiveSetting(setting, value, "memory.vector_store" if is_derived else "default", None)


def _load_sources() -> list[SourceValues]:
    """Return the sources with their nested values, the strongest first."""
    path = locate_config_file()
    file_values = read_config_file(path, Settings) if path.is_file() else {}
    return [*_read_environment(), ("config file", str(path), file_values)]


def _read_environment() -> list[SourceValues]:
    """Return the nested values of the environment, and those of the file that REM_ENV_FILE names."""
    env_file = find_env_file(os.environ.get("REM_ENV_FILE"))
    sources: list[SourceValues] = [("environment", None, EnvSettingsSource(Settings)())]
    if env_file is not None:
        sources.append(("env file", str(env_file), DotEnvSettingsSource(Settings, env_file=env_file)()))
    return sources


def _find_in_environment(path: Sequence[str]) -> Any:
    return next((_get(values, path) for _, _, values in _read_environment() if _has(values, path)), None)


def _has(data: Mapping[str, Any], path: Sequence[str]) -> bool:
    value: Any = data
    for name in path:
        if not isinstance(value, Mapping) or name not in value:
            return False
        value = value[name]
    return True


def _get(data: Mapping[str, Any], path: Sequence[str]) -> Any:
    value: Any = data
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value

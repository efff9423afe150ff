"""The YAML file with settings: find it, check every name in it, read it, and change it."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, get_args
from uuid import uuid4

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from rem.errors import SettingsError
from rem.settings.group import get_group_class
from rem.text import did_you_mean

PROJECT_FILE, PROJECT_ENV_FILE = Path("rem.yaml"), Path(".env")
"""In the current folder. They are read only if the user names them: a folder may come from somebody else."""
HOME_FILE = Path("config.yaml")
"""In REM_HOME, for all commands of one person."""
MAX_CONFIG_BYTES = 256 * 1024
GENERAL_PREFIX = "rem_"
"""Settings without a group begin with it in the environment. The file leaves it out: `user`, `home`."""
FILE_SETTINGS = frozenset({"rem_config", "rem_env_file"})
"""The settings that the file cannot contain: they name files with settings."""
_COMMENT = re.compile(r"(?:^|\s)#")


def find_config_file(named: Path | None, home: Path) -> Path | None:
    """Return the file to read: `named`, else config.yaml in `home`, else None.

    Raise SettingsError if `named` does not exist.
    """
    if named is not None:
        return _require_file("REM_CONFIG", named)
    path = home.expanduser().absolute() / HOME_FILE
    return path if path.is_file() else None


def find_env_file(named: str | None) -> Path | None:
    """Return the file with environment variables that the user has named, or None.

    Raise SettingsError if it does not exist.
    """
    return _require_file("REM_ENV_FILE", Path(named)) if named else None


def _require_file(setting: str, named: Path) -> Path:
    path = named.expanduser().absolute()
    if not path.exists():
        raise SettingsError(f"{setting}: there is no file {path}.")
    return path


def read_config_file(path: Path, model: type[BaseModel]) -> dict[str, Any]:
    """Return the settings in a file, nested as in `model`, without empty ones.

    Raise SettingsError, which names the file and the line or the setting, if a name or a value is not valid.
    """
    return _ConfigReader(path, model).read(_read_text(path))


def change_config_file(path: Path, model: type[BaseModel], change: Callable[[dict[str, Any]], object]) -> bool:
    """Let a function change the settings in a file, which may not exist yet. Return whether comments in it were lost.

    A file that changes is rewritten with all other values. Only its owner can read it then. The new text is checked
    first, and replaces the file at once. Another process that changes the file waits. Raise SettingsError if the file
    cannot be changed, or if the new text is not valid.
    """
    import yaml

    # A link stays a link.
    target = path.resolve()
    reader = _ConfigReader(path, model)
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder = os.open(target.parent, os.O_RDONLY)
    except OSError as error:
        raise SettingsError(f"{target.parent} cannot be used: {error.strerror}.") from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        text = _read_text(target) if target.exists() else ""
        data = reader.parse(text)
        change(data)
        if data == reader.parse(text):
            return False
        new_text = yaml.safe_dump(data, allow_unicode=True, sort_keys=False) if data else ""
        reader.read(new_text)
        _replace(target, new_text)
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror}.") from error
    finally:
        os.close(folder)
    return _COMMENT.search(text) is not None


def set_value(data: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set the setting with this path, such as `("memory", "rag", "top_k")`."""
    for name in path[:-1]:
        data = data.setdefault(name, {})
    data[path[-1]] = value


def remove_value(data: dict[str, Any], path: Sequence[str]) -> bool:
    """Remove a setting, and each group that becomes empty. Return whether it was there."""
    name, *rest = path
    if rest and isinstance(group := data.get(name), dict):
        was_set = remove_value(group, rest)
        if not group:
            del data[name]
        return was_set
    return not rest and data.pop(name, None) is not None


def _replace(target: Path, text: str) -> None:
    temporary = target.with_name(f".{target.name}.{uuid4().hex}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _read_text(path: Path) -> str:
    try:
        content = path.read_bytes()
        if len(content) > MAX_CONFIG_BYTES:
            raise _make_error(path, f"longer than {MAX_CONFIG_BYTES // 1024} KB: it should only contain settings")
        return content.decode("utf-8-sig")
    except OSError as error:
        raise _make_error(path, f"cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise _make_error(path, "not UTF-8 text: save it as UTF-8") from error


def check_setting(model: type[BaseModel], name: str, value: Any) -> Any:
    """Return a value as `model` has it, such as a number for a text. Raise ValidationError if it is not valid."""
    # Without the other values, and with the validators of `model`, which the type of the field does not have.
    instance = model.model_construct()
    model.__pydantic_validator__.validate_assignment(instance, name, value)
    return getattr(instance, name)


def accepts_null(field: FieldInfo) -> bool:
    """Return whether null in the file means something else than the default."""
    return field.default is not None and NoneType in get_args(field.annotation)


class _ConfigReader:
    """Reads one file."""

    def __init__(self, path: Path, model: type[BaseModel]) -> None:
        self._path = path
        self._model = model
        self._fields = {
            name.removeprefix(GENERAL_PREFIX): (name, field)
            for name, field in model.model_fields.items()
            if name not in FILE_SETTINGS
        }

    def read(self, text: str) -> dict[str, Any]:
        """Return the settings of `model`. Raise SettingsError if a name or a value is not valid."""
        return dict(self._check_values(self.parse(text)))

    def parse(self, text: str) -> dict[str, Any]:
        """Return the values by the names in the file, without empty ones. Raise SettingsError for a wrong name."""
        import yaml

        try:
            return self._load(text)
        except yaml.reader.ReaderError as error:
            character = f"U+{ord(text[error.position]):04X}"
            first_lines = text[: error.position + 1].split("\n")
            raise self._error(f"not valid YAML: remove the control character {character}", len(first_lines)) from error
        except yaml.MarkedYAMLError as error:
            line = None if error.problem_mark is None else error.problem_mark.line + 1
            raise self._error(f"not valid YAML: {error.problem or error.context}", line) from error
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise self._error(f"not valid YAML: {error}") from error

    def _load(self, text: str) -> dict[str, Any]:
        import yaml

        loader = yaml.SafeLoader(text)
        try:
            root = loader.get_single_node()
            if root is None or _is_null(root):
                return {}
            fields = {name: field for name, (_, field) in self._fields.items()}
            self._check_names(root, fields, ())
            return _drop_empty(loader.construct_document(root), fields)
        finally:
            loader.dispose()

    def _check_names(self, node: Any, fields: dict[str, FieldInfo], path: tuple[str, ...]) -> None:
        """Raise SettingsError if the file has an unknown name, or a name twice: YAML would drop the first value."""
        line = node.start_mark.line + 1
        if not _is_mapping(node):
            raise self._error(
                f"{_join(path) or 'the file'} must contain names with values, such as `enabled: true`", line
            )
        names: set[str] = set()
        for key_node, value_node in node.value:
            name, line = str(key_node.value), key_node.start_mark.line + 1
            if name not in fields:
                advice = did_you_mean(name, list(fields)) or f" There are {', '.join(fields)}."
                raise self._error(f"there is no setting {_join((*path, name))}.{advice}", line)
            if name in names:
                raise self._error(f"{_join((*path, name))} is given twice: write it once", line)
            names.add(name)
            group = get_group_class(fields[name])
            if group is not None and not _is_null(value_node):
                self._check_names(value_node, dict(group.model_fields), (*path, name))

    def _check_values(self, data: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        """Yield the names of `model` and the values. Raise SettingsError if a value is not valid."""
        for name, value in data.items():
            setting, _ = self._fields[name]
            try:
                check_setting(self._model, setting, value)
            except ValidationError as error:
                raise self._error(" ".join(_describe(name, detail) for detail in error.errors())) from error
            yield setting, value

    def _error(self, message: str, line: int | None = None) -> SettingsError:
        return _make_error(self._path, message, line)


def _make_error(path: Path, message: str, line: int | None = None) -> SettingsError:
    position = str(path) if line is None else f"{path}, line {line}"
    return SettingsError(f"{position}: {message}" + ("" if message.endswith((".", "?")) else "."))


def _is_mapping(node: Any) -> bool:
    return str(node.id) == "mapping"


def _is_null(node: Any) -> bool:
    return str(node.tag).endswith(":null")


def _join(path: tuple[str, ...]) -> str:
    return ".".join(path)


def _describe(name: str, detail: ErrorDetails) -> str:
    path = ".".join(str(part) for part in (name, *detail["loc"][1:]))
    return f"{path}: {detail['msg'].removeprefix('Value error, ')}."


def _drop_empty(data: dict[str, Any], fields: dict[str, FieldInfo]) -> dict[str, Any]:
    """Return the values without empty settings: they mean the default, as empty environment variables do.

    Where the default is a value and nothing is allowed too, such as an age at which rows are deleted, null stays.
    """
    kept = {}
    for name, value in data.items():
        group = get_group_class(fields[name])
        if group is not None and isinstance(value, dict):
            kept[name] = _drop_empty(value, dict(group.model_fields))
        elif value is not None or accepts_null(fields[name]):
            kept[name] = value
    return kept

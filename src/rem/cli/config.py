"""`rem config`: show the settings with their sources, and change the YAML file with settings."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rem.cli.runtime import JsonOption, print_to_stderr
from rem.cli.terminal_text import echo

if TYPE_CHECKING:
    from rem.settings.effective_settings import EffectiveSetting, SettingName

app = typer.Typer(
    help="Show the settings, and change the YAML file with settings.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The setting: memory.rag.top_k, or MEMORY__RAG__TOP_K.")
]
FROM_INPUT = "-"
MAX_VALUE_CHARS = 60
LOST_COMMENTS = "The file was rewritten: all its other values stay, and its comments do not."


@app.command()
def show(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A setting or a group: memory.rag.top_k, memory.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Also the settings that have their default.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the settings in effect, and where each value comes from.

    A variable of the environment overrides the file that REM_ENV_FILE names, and both override the YAML file. Secrets
    are hidden.
    """
    from rem.cli.output import format_count, print_json, print_table, shorten
    from rem.settings.effective_settings import find_settings, list_effective_settings

    wanted = None if name is None else {setting.path for setting in find_settings(name)}
    settings = [item for item in list_effective_settings() if wanted is None or item.setting.path in wanted]
    shown = settings if every or as_json or name else [item for item in settings if item.source != "default"]
    if as_json:
        print_json([_to_json(item) for item in shown])
        return
    if shown:
        rows = [[item.setting.name, shorten(_format(item.value), MAX_VALUE_CHARS), _describe(item)] for item in shown]
        print_table(["setting", "value", "from"], rows)
    if len(shown) < len(settings):
        left_out = format_count(len(settings) - len(shown), "setting")
        print_to_stderr(f"{left_out} {'has' if left_out.startswith('1 ') else 'have'} the default: --all shows them.")


@app.command("set")
def set_setting(
    name: NameArgument,
    value: Annotated[
        str,
        typer.Argument(
            metavar="VALUE",
            help="The value; lists and mappings as JSON. - reads it from standard input, so that a secret stays out of "
            "the shell's history.",
        ),
    ],
    as_json: JsonOption = False,
) -> None:
    """Set a value in the YAML file. All other values stay; comments do not.

    The file is written as a whole or not at all, and only you can read it. `rem config path` prints where it is.
    """
    from rem.cli.output import print_json
    from rem.settings import Settings
    from rem.settings.config_file import change_config_file, set_value
    from rem.settings.effective_settings import find_override, find_setting, locate_config_file

    setting = find_setting(name)
    _require_in_file(setting)
    parsed = _parse_value(setting, _read_value(setting) if value == FROM_INPUT else value)
    path = locate_config_file()
    lost_comments = change_config_file(path, Settings, lambda data: set_value(data, setting.file_path, parsed))
    override = find_override(setting)
    if as_json:
        print_json({"name": setting.name, "file": path, "overridden_by": override})
        return
    echo(f"Set {setting.name} in {path}.")
    if lost_comments:
        print_to_stderr(LOST_COMMENTS)
    if override:
        print_to_stderr(f"It has no effect as long as {override} is set, because the environment overrides the file.")


@app.command()
def unset(name: NameArgument, as_json: JsonOption = False) -> None:
    """Remove a value from the YAML file, so that the default holds again."""
    from rem.cli.output import print_json
    from rem.settings import Settings
    from rem.settings.config_file import change_config_file, remove_value
    from rem.settings.effective_settings import find_setting, locate_config_file

    setting = find_setting(name)
    _require_in_file(setting)
    path = locate_config_file()
    was_set = lost_comments = False

    def remove(data: dict[str, Any]) -> None:
        nonlocal was_set
        was_set = remove_value(data, setting.file_path)

    if path.exists():
        lost_comments = change_config_file(path, Settings, remove)
    if as_json:
        print_json({"name": setting.name, "file": path, "was_set": was_set})
    else:
        echo(f"Removed {setting.name} from {path}." if was_set else f"{setting.name} is not set in {path}.")
        if lost_comments:
            print_to_stderr(LOST_COMMENTS)


@app.command("path")
def show_path(as_json: JsonOption = False) -> None:
    """Print the path of the YAML file with settings."""
    from rem.cli.output import print_json
    from rem.settings.effective_settings import locate_config_file

    path = locate_config_file()
    if as_json:
        print_json({"file": path, "exists": path.exists()})
        return
    echo(str(path))
    if not path.exists():
        print_to_stderr("It does not exist yet: `rem config set` makes it.")


def _to_json(item: EffectiveSetting) -> dict[str, Any]:
    return {
        "name": item.setting.name,
        "variable": item.setting.variable,
        "value": item.value,
        "source": item.source,
        "from": item.detail,
        "description": item.setting.field.description,
    }


def _describe(item: EffectiveSetting) -> str:
    """Return the source of a value: the variable or the file that has it, else a word."""
    return item.detail or item.source


def _format(value: Any) -> str:
    import json

    if value is None:
        return "not set"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _require_in_file(setting: SettingName) -> None:
    from rem.errors import InvalidInputError

    if not setting.is_in_file:
        raise InvalidInputError(f"{setting.variable} names a file with settings: set it in the environment.")


def _read_value(setting: SettingName) -> str:
    """Read a value from standard input; in a terminal, without showing it."""
    if sys.stdin.isatty():
        return str(typer.prompt(setting.name, hide_input=True, err=True))
    return sys.stdin.read().removesuffix("\n")


def _parse_value(setting: SettingName, text: str) -> Any:
    """Return the value as it stands in the file. Raise InvalidInputError if the setting does not allow it."""
    from pydantic import ValidationError

    from rem.errors import InvalidInputError
    from rem.settings import Settings
    from rem.settings.config_file import accepts_null, check_setting

    if not text.strip():
        raise InvalidInputError(f"The value is empty: `rem config unset {setting.name}` restores the default.")
    if text.strip() == "null" and accepts_null(setting.field):
        return None
    given = _parse_structure(text)
    nested: Any = given
    for name in reversed(setting.path[1:]):
        nested = {name: nested}
    try:
        value = check_setting(Settings, setting.path[0], nested)
    except ValidationError as error:
        reasons = " ".join(f"{detail['msg'].removeprefix('Value error, ')}." for detail in error.errors())
        raise InvalidInputError(f"{setting.name}: {reasons} Nothing was changed.") from error
    for name in setting.path[1:]:
        value = getattr(value, name)
    return value if isinstance(value, bool | int | float) else given


def _parse_structure(text: str) -> Any:
    """Return a list or mapping that is written as JSON; any other text as it is."""
    import json

    from rem.errors import InvalidInputError

    if not text.lstrip().startswith(("[", "{")):
        return text
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidInputError(f"{text} is not JSON: {error}. Nothing was changed.") from error

"""Write docs/settings.md from the settings and the errors: `python -m tooling.settings_reference`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

import rem.errors as errors
from rem.cli.terminal_text import echo
from rem.settings import Settings
from rem.settings.group import get_group_class

INTRODUCTION = """\
# Settings and exit codes

`make docs` writes this page from the classes in `src/rem/settings` and `src/rem/errors.py`.

REM reads its settings from environment variables and from one YAML file, and from a file with environment variables if
`REM_ENV_FILE` names one. An environment variable overrides that file, and both override the YAML file. A misspelt name
is an error, which names the nearest setting. Write lists as JSON:

```sh
export POSTGRES__POOL_MAX_SIZE=20
export API__CORS_ORIGINS='["https://app.example.com"]'
rem doctor
```

`rem doctor` checks the settings and everything that they point to. It names the YAML file that is used, and variables
that look like settings but have an unknown group, which REM ignores because they may belong to another program.

## The YAML file

REM reads the file that `REM_CONFIG` or `rem --config FILE` names, or else `config.yaml` in `REM_HOME`. Groups are
mappings, in small letters. The settings of no group leave out `REM_`: `user`, `home`, `time_zone`. Unknown names are
errors. Relative paths start at the current folder.

**Files in the current folder are not read.** A folder may come from somebody else: settings such as `llm.base_url` or
`postgres.connection_string` in it could send your memory to another server. If you trust a `rem.yaml` or `.env` in the
current folder, name it: `REM_CONFIG=rem.yaml`, `REM_ENV_FILE=.env`. Commands print a warning if they find such a file
with settings of REM and do not read it.

<!-- example: config -->
```yaml
user: sarah@example.com

memory:
  enabled: true              # false: chat stores nothing
  max_history_tokens: 4096
  auto_prune_days: 30
  strategy: simple           # simple, summarization, hybrid
  vector_store:
    enabled: true            # false: search by words only
  rag:
    enabled: true
    top_k: 5
    min_similarity: 0.3

llm:
  default_model: openai:gpt-4o
```

`rem config` shows the settings in effect with the place that each value comes from, and changes the file. It
rewrites the file with all other values, but without its comments, and says so. It checks names and values first, and
lets only you read the file. With `-` the value comes
from standard input, so that a secret stays out of the history of the shell:

```sh
rem config path                                   # where the file is
rem config show                                   # what is not the default, and where it is set
rem config show memory                            # a whole group
rem config set memory.rag.top_k 8
rem config set llm.openai_api_key - < key.txt
rem config unset memory.rag.top_k                 # the default again
```
"""

EXIT_CODES_INTRODUCTION = """\
## Exit codes

Every `rem` command ends with one of these codes.
"""

ERRORS_INTRODUCTION = """\
## Errors

The HTTP API and the tools return the error code. The Python classes are subclasses of `RemError`.
"""


def render_settings() -> str:
    """Return the whole page as Markdown."""
    sections = [INTRODUCTION, *_render_groups(Settings, ""), _render_exit_codes(), _render_errors()]
    return "\n".join(sections)


def _render_groups(model: type[BaseModel], prefix: str) -> Iterator[str]:
    """Yield one section for the plain settings of `model`, then the sections of the groups in it."""
    groups = {
        name: group for name, field in model.model_fields.items() if (group := get_group_class(field)) is not None
    }
    title = prefix.removesuffix("__").replace("__", " ") or "General"
    rows = [
        _render_setting(prefix + name.upper(), field)
        for name, field in model.model_fields.items()
        if name not in groups
    ]
    header = ["| setting | meaning | default |", "| --- | --- | --- |"]
    yield "\n".join([f"## {title}", "", inspect.getdoc(model) or "", "", *header, *rows, ""])
    for name, group in groups.items():
        yield from _render_groups(group, f"{prefix}{name.upper()}__")


def _render_setting(name: str, field: FieldInfo) -> str:
    meaning = field.description or ""
    if get_origin(field.annotation) is Literal:
        choices = ", ".join(f"`{choice}`" for choice in get_args(field.annotation))
        meaning = f"{meaning} One of {choices}."
    return f"| `{name}` | {meaning} | {_render_default(field.default)} |"


def _render_default(default: Any) -> str:
    if default is None:
        return "not set"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, float):
        return f"`{default:g}`"
    return f"`{default.as_posix() if isinstance(default, Path) else default}`"


def _render_exit_codes() -> str:
    rows = [f"| {code} | {meaning} |" for code, meaning in errors.EXIT_CODES.items()]
    return "\n".join([EXIT_CODES_INTRODUCTION, "| exit code | meaning |", "| --- | --- |", *rows, ""])


def _render_errors() -> str:
    classes = [item for item in vars(errors).values() if isinstance(item, type) and issubclass(item, errors.RemError)]
    rows = [
        f"| `{error.code}` | `{error.__name__}` | {error.exit_code} | {inspect.getdoc(error)} |"
        for error in sorted(classes, key=lambda error: (error.exit_code, error.code))
    ]
    header = ["| error code | class | exit code | meaning |", "| --- | --- | --- | --- |"]
    return "\n".join([ERRORS_INTRODUCTION, *header, *rows, ""])


if __name__ == "__main__":
    echo(render_settings(), nl=False)

"""`rem lookup`: print the entities with the given keys."""

from __future__ import annotations

import json
import shutil
import textwrap
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from rem.cli.runtime import JsonOption, TenantOption, UserOption, print_to_stderr, run_with_rem
from rem.cli.terminal_text import echo

if TYPE_CHECKING:
    from rem.app import Rem
    from rem.db.store import Store
    from rem.models import Entity
    from rem.query.file_text import FileText

MAX_SUGGESTIONS, MAX_CANDIDATES, MIN_SUGGESTION_SCORE = 3, 20, 0.4
HIDDEN_FIELDS = {"id", "key", "tenant_id", "user_id", "graph_edges"}
FIRST_COMMON_FIELDS = ("tags", "metadata")
LAST_COMMON_FIELDS = ("expires_at", "created_at", "updated_at")
MAX_PRINTED_NUMBERS = 16
"""Longer lists of numbers are vectors, which nobody reads."""


def lookup(
    keys: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY", help='Keys, such as sarah-chen or "Sarah Chen"; names, titles or paths of ingested files.'
        ),
    ],
    table: Annotated[str | None, typer.Option(help="Only in this table.")] = None,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Print the entities with these keys. The user's own rows come before the shared ones.

    Of an ingested file the text is printed, too. A long text is cut, and a note says how to read on.
    """
    from rem.cli.output import print_json
    from rem.errors import NotFoundError

    require_nonempty_keys(keys)

    async def work(rem: Rem) -> tuple[dict[str, list[Entity]], dict[UUID, FileText], list[str]]:
        from rem.query.file_text import read_file_texts

        store = rem.for_user(user, tenant=tenant).store
        matches = await _lookup_keys_and_paths(store, keys, table)
        files = [entity.id for entity in _deduplicate(matches) if entity.entity_type.table == "files"]
        similar = [
            key for missing in matches if not matches[missing] for key in await find_similar(rem, store, missing, table)
        ]
        return matches, await read_file_texts(store, files), similar

    entities_by_key, texts, similar = run_with_rem(work)
    entities = _deduplicate(entities_by_key)
    if as_json:
        print_json([_to_json(entity, texts.get(entity.id)) for entity in entities])
    else:
        _print_entities(entities, texts, with_ownership=user is not None)
    for entity in entities:
        if (text := texts.get(entity.id)) and text.hint:
            print_to_stderr(f"{entity.key}: {text.hint}")
    missing = f"Nothing is stored under {', '.join(key for key in entities_by_key if not entities_by_key[key])}."
    missing += f" Did you mean {' or '.join(dict.fromkeys(similar))}?" if similar else ""
    if not entities:
        raise NotFoundError(missing)
    if not all(entities_by_key.values()):
        print_to_stderr(missing)


def require_nonempty_keys(keys: list[str]) -> None:
    """Raise InvalidInputError if a key is empty, for example because a variable of a script is not set."""
    from rem.errors import InvalidInputError

    if not all(key.strip() for key in keys):
        raise InvalidInputError("A key is empty: give a name such as sarah-chen.")


async def find_similar(rem: Rem, store: Store, key: str, table: str | None) -> list[str]:
    """Return the keys that are most like a misspelt one, the best first."""
    from rem.query.tree import Fuzzy

    result = await rem.for_user(store.scope).query(Fuzzy(key, MIN_SUGGESTION_SCORE, MAX_CANDIDATES, table))
    keys = [hit.fuzzy.key for hit in result.hits if hit.fuzzy is not None and hit.fuzzy.key is not None]
    # FUZZY also finds keys of which only a part is similar.
    return get_close_matches(await store.normalize_key(key), keys, MAX_SUGGESTIONS)


async def lookup_keys(store: Store, keys: list[str], table: str | None) -> dict[str, list[Entity]]:
    """Return the entities of each key."""
    return {key: await store.lookup(key, table=table) for key in keys}


async def _lookup_keys_and_paths(store: Store, keys: list[str], table: str | None) -> dict[str, list[Entity]]:
    """Return the entities of each key. A key without a match is tried as the path of an ingested file."""
    matches = await lookup_keys(store, keys, table)
    for key in [key for key in keys if not matches[key] and table in (None, "files")]:
        if uri := _path_to_uri(key):
            matches[key] = await store.lookup(uri, table="files")
    return matches


def _path_to_uri(path: str) -> str | None:
    try:
        return Path(path).expanduser().resolve().as_uri()
    except (OSError, RuntimeError, ValueError):
        return None


def _to_json(entity: Entity, text: FileText | None) -> dict[str, Any]:
    values = {"table": entity.entity_type.table, **entity.model_dump(mode="json")}
    return {**values, "content": text.text} if text else values


def _deduplicate(entities_by_key: dict[str, list[Entity]]) -> list[Entity]:
    """Return the entities in the order of the keys, each once."""
    entities: dict[tuple[str, UUID], Entity] = {}
    for matches in entities_by_key.values():
        for entity in matches:
            entities.setdefault((entity.entity_type.table, entity.id), entity)
    return list(entities.values())


def _print_entities(entities: list[Entity], texts: dict[UUID, FileText], with_ownership: bool) -> None:
    from rem.cli.terminal_text import escape_control_characters

    for entity in entities:
        ownership = "shared" if entity.user_id is None else "yours"
        echo(format_entity(entity, ownership=ownership if with_ownership else ""))
        echo()
        if text := texts.get(entity.id):
            echo(escape_control_characters(text.text.replace("\r\n", "\n")))
            echo()


def format_entity(entity: Entity, *, ownership: str = "") -> str:
    """Return the entity as text: table and key, then its fields, those of its own class first; no empty fields."""
    from rem.cli.terminal_text import escape_control_characters

    width = shutil.get_terminal_size().columns
    lines = [f"{entity.entity_type.table}/{entity.key or entity.id}{f' ({ownership})' if ownership else ''}"]
    values = entity.model_dump(mode="json", exclude=HIDDEN_FIELDS)
    for name in _order_fields(type(entity)):
        if not _is_omitted(name, values[name]):
            lines += _wrap(f"{name}: {_format_value(values[name])}", width)
    lines += [escape_control_characters(f"  -> {edge.rel_type} {edge.dst}") for edge in entity.graph_edges]
    return "\n".join(lines)


def _order_fields(model: type[Entity]) -> list[str]:
    from rem.models import Entity

    own = [name for name in model.model_fields if name not in Entity.model_fields]
    listed = {*HIDDEN_FIELDS, *FIRST_COMMON_FIELDS, *LAST_COMMON_FIELDS}
    other_common = [name for name in Entity.model_fields if name not in listed]
    return [*sorted(own, key=lambda name: name != "name"), *FIRST_COMMON_FIELDS, *other_common, *LAST_COMMON_FIELDS]


def _is_omitted(name: str, value: Any) -> bool:
    from rem.models import Entity

    return value in (None, "", [], {}) or (name == "origin" and value == Entity.model_fields["origin"].default)


def _format_value(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and not any(isinstance(item, dict | list) for item in value):
        if len(value) > MAX_PRINTED_NUMBERS and all(isinstance(item, float) for item in value):
            return f"{len(value)} numbers"
        return ", ".join(_format_value(item) for item in value)
    return json.dumps(value, ensure_ascii=False)


def _wrap(text: str, width: int) -> list[str]:
    from rem.cli.terminal_text import escape_control_characters

    wrapper = textwrap.TextWrapper(width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    lines = []
    for number, line in enumerate(escape_control_characters(text.replace("\r\n", "\n").rstrip("\n")).split("\n")):
        wrapper.initial_indent = "    " if number else "  "
        lines += wrapper.wrap(line) or [""]
    return lines

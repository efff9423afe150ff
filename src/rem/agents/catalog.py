"""AgentCatalog: where agents are found: built in, in a folder of the user's own, in the database."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from rem.agents.schema import BUILT_IN, DATABASE, AgentSchema, did_you_mean
from rem.agents.yaml_parser import (
    MAX_AGENT_BYTES,
    AgentIssue,
    ParsedAgent,
    describe_issues,
    parse_agent,
    parse_agent_document,
    read_agent_bytes,
)
from rem.errors import AgentNotFoundError, ConflictError, InvalidAgentError, MemoryDisabledError
from rem.models import Schema, SchemaKind

if TYPE_CHECKING:
    from datetime import datetime

    from rem.app import Rem
    from rem.context import Scope
    from rem.db.store import Store
    from rem.settings import Settings

_MOST_LISTED = 1000
_MOST_CACHED = 256
_LONGEST_SHOWN = 100
_ADDRESS = "rem://agents/"


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """An agent of the catalogue, or a definition that cannot be used and why."""

    name: str
    source: str
    schema: AgentSchema | None
    problem: str | None = None
    owner: str | None = None
    """In the database: whose it is; None for what the tenant shares."""


class AgentCatalog:
    """The agents that a caller can use. A name means the first of: built in, in the folder, the caller's, shared."""

    def __init__(self, settings: Settings, rem: Rem | None) -> None:
        self._folder = _Folder(settings.agents.path or settings.rem_home / "agents")
        self._rem = rem
        self._parsed: dict[tuple[UUID, datetime], AgentSchema] = {}

    @property
    def folder(self) -> Path:
        """Where agents of one's own can be put as files."""
        return self._folder.path

    async def get(self, name: str, scope: Scope) -> AgentSchema:
        """The agent with this name, or with the address `rem://agents/{name}`."""
        name = name.strip().removeprefix(_ADDRESS)
        entry = self._at_hand(name) or await self._stored(name, scope)
        if entry is None:
            raise AgentNotFoundError(await self._not_found(name, scope))
        return _usable(entry)

    async def list_entries(self, scope: Scope) -> Sequence[CatalogEntry]:
        """Everything that the caller may see, in the order in which names are looked up; also what cannot be used."""
        rows = [] if self._rem is None else await self._rem.store(scope).find(Schema, limit=_MOST_LISTED)
        found = [*_built_in().values(), *self._folder.entries(), *map(self._entry, _own_first(rows, scope))]
        return [*_marked_as_hidden(found)]

    async def save(self, text: str, scope: Scope) -> AgentSchema:
        """Check an agent's YAML and keep it in the database as the caller's own, over what had its name."""
        # By a thread, because a long text takes its time.
        schema = (await asyncio.to_thread(parse_agent, text, "The agent")).model_copy(update={"source": DATABASE})
        self._refuse_taken(schema.name)
        row = Schema(
            name=schema.name,
            version=schema.version,
            kind=SchemaKind(schema.kind),
            spec=schema.as_document(),
            description=schema.description,
        )
        async with self._store(scope).transaction() as store:
            # Whoever saves an agent wants it, also if one of this name was deleted.
            for deleted in await store.find(Schema, {"key": schema.name}, with_deleted=True):
                if deleted.deleted_at is not None and deleted.user_id == scope.user_id:
                    await store.erase(deleted)
            await store.upsert(row)
        return schema

    async def delete(self, name: str, scope: Scope) -> None:
        """Delete an agent that the caller saved."""
        entry = self._at_hand(name)
        if entry is not None:
            hint = "it cannot be deleted" if entry.source == BUILT_IN else "delete the file"
            raise ConflictError(f"The agent {name} is not in the database but {_whereabouts(entry)}: {hint}.")
        store = self._store(scope)
        rows = await store.find(Schema, {"key": name})
        own = [row for row in rows if row.user_id == scope.user_id]
        if rows and not own:
            raise AgentNotFoundError(f"The agent {_shown(name)} is shared and not yours, so it stays.")
        if not own:
            raise AgentNotFoundError(await self._not_found(name, scope))
        await store.delete(own[0])

    async def list(self, scope: Scope) -> list[AgentSchema]:
        """The agents that the caller can use."""
        return [entry.schema for entry in await self.list_entries(scope) if entry.schema is not None]

    def _store(self, scope: Scope) -> Store:
        if self._rem is None:
            raise MemoryDisabledError
        return self._rem.store(scope)

    def _at_hand(self, name: str) -> CatalogEntry | None:
        """What needs no database. A broken file does not stand in the way of a sound one."""
        if name in _built_in():
            return _built_in()[name]
        named = [entry for entry in self._folder.entries() if entry.name == name]
        return next((entry for entry in named if entry.schema is not None), named[0] if named else None)

    async def _stored(self, name: str, scope: Scope) -> CatalogEntry | None:
        if self._rem is None or len(name) > _LONGEST_SHOWN or "\0" in name:
            return None
        rows = await self._rem.store(scope).find(Schema, {"key": name}, limit=2)
        return next((self._entry(row) for row in _own_first(rows, scope)), None)

    def _entry(self, row: Schema) -> CatalogEntry:
        label = row.key or row.name
        try:
            return CatalogEntry(label, DATABASE, self._parse(row, label), owner=row.user_id)
        except InvalidAgentError as error:
            return CatalogEntry(label, DATABASE, None, str(error), row.user_id)

    def _parse(self, row: Schema, label: str) -> AgentSchema:
        version = (row.id, row.updated_at)
        schema = self._parsed.get(version)
        if schema is None:
            schema = parse_agent_document(row.spec, f"The stored agent {label}").model_copy(update={"source": DATABASE})
            if schema.name != label:
                raise InvalidAgentError(f"The stored agent {label} calls itself {schema.name}: save it again.")
            if len(self._parsed) >= _MOST_CACHED:
                self._parsed.clear()
            self._parsed[version] = schema
        return schema

    def _refuse_taken(self, name: str) -> None:
        entry = self._at_hand(name)
        if entry is not None and entry.schema is not None:
            raise ConflictError(f"The name {name} belongs to an agent that is {_whereabouts(entry)}: choose another.")

    async def _not_found(self, name: str, scope: Scope) -> str:
        names = sorted({entry.name for entry in await self.list_entries(scope)})
        return f"There is no agent {_shown(name)}.{did_you_mean(name, names)} `rem agents list` shows them all."


class _Folder:
    """A folder with agents. Files are read again only when they change."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: dict[Path, tuple[tuple[int, int], ParsedAgent]] = {}

    def entries(self) -> list[CatalogEntry]:
        """The agents of the files, by file name."""
        try:
            paths = sorted(path for path in self.path.iterdir() if path.suffix in (".yaml", ".yml") and path.is_file())
        except OSError:
            return []
        self._read = {path: version for path, version in self._read.items() if path in paths}
        return [self._entry(path) for path in paths]

    def _entry(self, path: Path) -> CatalogEntry:
        read = self._agent(path)
        problem = describe_issues(read.problems, str(path)) if read.problems else None
        return CatalogEntry(read.name or path.stem, str(path), read.schema, problem)

    def _agent(self, path: Path) -> ParsedAgent:
        try:
            status = path.stat()
            version = (status.st_mtime_ns, status.st_size)
            if path not in self._read or self._read[path][0] != version:
                self._read[path] = (version, _read_file(path))
        except OSError as error:
            return ParsedAgent(None, [AgentIssue(f"cannot be read: {error.strerror}")])
        return self._read[path][1]


def read_agent_file(path: Path) -> ParsedAgent:
    """The agent of a file, or all that is wrong with it, also with its name; an OSError if it cannot be read."""
    return check_name(_read_file(path))


def check_name(read: ParsedAgent) -> ParsedAgent:
    """What was read; a problem more if the name is that of a built-in agent, which would be used instead."""
    if read.schema is None or read.schema.name not in _built_in():
        return read
    taken = f"{read.schema.name} is the name of an agent that is {BUILT_IN}: choose another"
    return replace(read, problems=[*read.problems, AgentIssue(taken, "json_schema_extra.name")])


def _read_file(path: Path) -> ParsedAgent:
    with path.open("rb") as file:
        return read_agent_bytes(file.read(MAX_AGENT_BYTES + 1), str(path))


@cache
def _built_in() -> dict[str, CatalogEntry]:
    folder = files("rem.agents") / "builtin"
    texts = sorted(
        (file.name, file.read_text(encoding="utf-8")) for file in folder.iterdir() if file.name[-5:] == ".yaml"
    )
    schemas = [parse_agent(text, name).model_copy(update={"source": BUILT_IN}) for name, text in texts]
    # The default agent comes first, also where they are listed.
    schemas.sort(key=lambda schema: schema.name != "rem")
    return {schema.name: CatalogEntry(schema.name, BUILT_IN, schema) for schema in schemas}


def load_built_in_agents() -> list[AgentSchema]:
    """The agents that are part of REM."""
    return [entry.schema for entry in _built_in().values() if entry.schema is not None]


def _own_first(rows: Iterable[Schema], scope: Scope) -> list[Schema]:
    return sorted(rows, key=lambda row: (row.user_id != scope.user_id, row.key or ""))


def _marked_as_hidden(entries: Iterable[CatalogEntry]) -> Iterator[CatalogEntry]:
    """The entries; those that cannot be reached, because another has their name, say so."""
    first: dict[str, CatalogEntry] = {}
    for entry in entries:
        if entry.schema is None or (winner := first.setdefault(entry.name, entry)) is entry:
            yield entry
        else:
            what = f"The stored agent {entry.name}" if entry.source == DATABASE else entry.source
            taken = f"{entry.name} is the name of an agent that is {_whereabouts(winner)}, which is used instead."
            problem = f"{what}: {taken}"
            yield CatalogEntry(entry.name, entry.source, None, problem, entry.owner)


def _whereabouts(entry: CatalogEntry) -> str:
    if entry.source == BUILT_IN:
        return "built in"
    return f"in the {DATABASE}" if entry.source == DATABASE else f"in {entry.source}"


def _usable(entry: CatalogEntry) -> AgentSchema:
    if entry.schema is None:
        raise InvalidAgentError(entry.problem)
    return entry.schema


def _shown(name: str) -> str:
    return repr(name if len(name) <= _LONGEST_SHOWN else f"{name[:_LONGEST_SHOWN]}…")

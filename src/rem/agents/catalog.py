"""AgentCatalog: find agents and evaluators by name: built in, in the folders of the user, in the database."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from rem.agents.schema import BUILT_IN, DATABASE, AgentSchema
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
from rem.text import did_you_mean

if TYPE_CHECKING:
    from datetime import datetime

    from rem.app import Rem
    from rem.context import Scope
    from rem.db.store import Store
    from rem.settings import Settings

MAX_LISTED_AGENTS = 1000
MAX_CACHED_AGENTS = 256
MAX_NAME_CHARS = 100
_URI_PREFIX = "rem://agents/"


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """An agent of the catalog, or the error of a definition that cannot be used."""

    name: str
    source: str
    schema: AgentSchema | None
    error: str | None = None
    owner: str | None = None
    """The user who saved it in the database; None if it is shared or not in the database."""


class AgentCatalog:
    """The agents that a caller can use.

    A name is looked up in this order: built-in agents, agents in the folder, the caller's own, shared ones.
    """

    def __init__(self, settings: Settings, rem: Rem | None) -> None:
        self._folder = _AgentFolder(settings.agents.path or settings.rem_home / "agents")
        self._evaluators = _AgentFolder(settings.agents.evaluators_path or settings.rem_home / "evaluators")
        self._rem = rem
        self._parsed: dict[tuple[UUID, datetime], AgentSchema] = {}

    @property
    def folder(self) -> Path:
        """The folder for agent files."""
        return self._folder.path

    async def get(self, name: str, scope: Scope) -> AgentSchema:
        """Return the agent with this name or with the address `rem://agents/{name}`.

        Raise AgentNotFoundError if there is none, or InvalidAgentError if its definition has errors.
        """
        name = name.strip().removeprefix(_URI_PREFIX)
        entry = self._find_without_database(name) or await self._find_in_database(name, scope)
        if entry is None:
            raise AgentNotFoundError(await self._describe_missing(name, scope))
        if entry.schema is None:
            raise InvalidAgentError(entry.error)
        return entry.schema

    async def list_entries(self, scope: Scope) -> Sequence[CatalogEntry]:
        """Return all entries that the caller may see, in lookup order, including definitions with errors."""
        rows = [] if self._rem is None else await self._rem.for_user(scope).store.find(Schema, limit=MAX_LISTED_AGENTS)
        stored = map(self._make_entry, _sort_own_first(rows, scope))
        return [*_report_duplicates([*_load_built_in().values(), *self._list_files(), *stored])]

    async def save(self, text: str, scope: Scope) -> AgentSchema:
        """Check the YAML of an agent and store it as the caller's own, in place of one with the same name."""
        # In a thread, because parsing a long text takes time.
        schema = (await asyncio.to_thread(parse_agent, text, "The agent")).model_copy(update={"source": DATABASE})
        self._refuse_taken_name(schema.name)
        row = Schema(
            name=schema.name,
            version=schema.version,
            kind=SchemaKind(schema.kind),
            spec=schema.as_document(),
            description=schema.description,
        )
        async with self._get_store(scope).transaction() as store:
            # Saving an agent overrides an earlier deletion.
            for deleted in await store.find(Schema, {"key": schema.name}, with_deleted=True):
                if deleted.deleted_at is not None and deleted.user_id == scope.user_id:
                    await store.erase(deleted)
            await store.upsert(row)
        return schema

    async def delete(self, name: str, scope: Scope) -> None:
        """Delete an agent that the caller saved. Raise AgentNotFoundError or ConflictError for any other agent."""
        entry = self._find_without_database(name)
        if entry is not None:
            hint = "it cannot be deleted" if entry.source == BUILT_IN else "delete the file"
            raise ConflictError(f"The agent {name} is not in the database but {_describe_source(entry)}: {hint}.")
        store = self._get_store(scope)
        rows = await store.find(Schema, {"key": name})
        own = [row for row in rows if row.user_id == scope.user_id]
        if rows and not own:
            raise AgentNotFoundError(f"The agent {_quote(name)} is shared: only your own agents can be deleted.")
        if not own:
            raise AgentNotFoundError(await self._describe_missing(name, scope))
        await store.delete(own[0])

    async def list(self, scope: Scope) -> list[AgentSchema]:
        """Return the agents that the caller can use, in lookup order. Evaluators are listed apart."""
        schemas = [entry.schema for entry in await self.list_entries(scope)]
        return [schema for schema in schemas if schema is not None and schema.kind == "agent"]

    def _list_files(self) -> Sequence[CatalogEntry]:
        """Return the entries of both folders. They may be the same folder."""
        if self._evaluators.path == self._folder.path:
            return self._folder.list_entries()
        return [*self._folder.list_entries(), *self._evaluators.list_entries()]

    def _get_store(self, scope: Scope) -> Store:
        if self._rem is None:
            raise MemoryDisabledError
        return self._rem.for_user(scope).store

    def _find_without_database(self, name: str) -> CatalogEntry | None:
        """Return the built-in agent or the file with this name. A valid file takes precedence over an invalid one."""
        if name in _load_built_in():
            return _load_built_in()[name]
        named = [entry for entry in self._list_files() if entry.name == name]
        return next((entry for entry in named if entry.schema is not None), named[0] if named else None)

    async def _find_in_database(self, name: str, scope: Scope) -> CatalogEntry | None:
        if self._rem is None or len(name) > MAX_NAME_CHARS or "\0" in name:
            return None
        rows = await self._rem.for_user(scope).store.find(Schema, {"key": name}, limit=2)
        return next((self._make_entry(row) for row in _sort_own_first(rows, scope)), None)

    def _make_entry(self, row: Schema) -> CatalogEntry:
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
                raise InvalidAgentError(
                    f"The stored agent {label} has the name {schema.name} in its definition: save it again."
                )
            if len(self._parsed) >= MAX_CACHED_AGENTS:
                self._parsed.clear()
            self._parsed[version] = schema
        return schema

    def _refuse_taken_name(self, name: str) -> None:
        entry = self._find_without_database(name)
        if entry is not None and entry.schema is not None:
            raise ConflictError(
                f"The name {name} belongs to an agent that is {_describe_source(entry)}: choose another."
            )

    async def _describe_missing(self, name: str, scope: Scope) -> str:
        names = sorted({entry.name for entry in await self.list_entries(scope)})
        return f"There is no agent {_quote(name)}.{did_you_mean(name, names)} `rem agents list` shows them all."


class _AgentFolder:
    """A folder with agents. A file is read again only when it changes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._parsed: dict[Path, tuple[tuple[int, int], ParsedAgent]] = {}
        """The agent of a file, for the time of its last change and its size."""

    def list_entries(self) -> list[CatalogEntry]:
        """Return the agents of the files, ordered by file name."""
        try:
            paths = sorted(path for path in self.path.iterdir() if path.suffix in (".yaml", ".yml") and path.is_file())
        except OSError:
            return []
        self._parsed = {path: parsed for path, parsed in self._parsed.items() if path in paths}
        return [self._make_entry(path) for path in paths]

    def _make_entry(self, path: Path) -> CatalogEntry:
        parsed = self._parse(path)
        error = describe_issues(parsed.issues, str(path)) if parsed.issues else None
        return CatalogEntry(parsed.name or path.stem, str(path), parsed.schema, error)

    def _parse(self, path: Path) -> ParsedAgent:
        try:
            status = path.stat()
            version = (status.st_mtime_ns, status.st_size)
            if path not in self._parsed or self._parsed[path][0] != version:
                self._parsed[path] = (version, read_definition(path))
        except OSError as error:
            return ParsedAgent(None, [AgentIssue(f"cannot be read: {error.strerror}")])
        return self._parsed[path][1]


def read_agent_file(path: Path) -> ParsedAgent:
    """Parse the agent of a file, and check that its name is free. Raise OSError if the file cannot be read."""
    return check_name(read_definition(path))


def check_name(parsed: ParsedAgent) -> ParsedAgent:
    """Add an error if the name is that of a built-in agent, which would be used instead."""
    if parsed.schema is None or parsed.schema.name not in _load_built_in():
        return parsed
    message = f"{parsed.schema.name} is the name of an agent that is {BUILT_IN}: choose another"
    return replace(parsed, issues=[*parsed.issues, AgentIssue(message, "json_schema_extra.name")])


def read_definition(path: Path) -> ParsedAgent:
    """Parse the agent or evaluator of a file, whatever its name. Raise OSError if the file cannot be read."""
    with path.open("rb") as file:
        return read_agent_bytes(file.read(MAX_AGENT_BYTES + 1), str(path))


@cache
def _load_built_in() -> dict[str, CatalogEntry]:
    folder = files("rem.agents") / "builtin"
    documents = [*folder.iterdir(), *(folder / "evaluators").iterdir()]
    texts = sorted((file.name, file.read_text(encoding="utf-8")) for file in documents if file.name[-5:] == ".yaml")
    schemas = [parse_agent(text, name).model_copy(update={"source": BUILT_IN}) for name, text in texts]
    # The default agent comes first in every list.
    schemas.sort(key=lambda schema: schema.name != "rem")
    return {schema.name: CatalogEntry(schema.name, BUILT_IN, schema) for schema in schemas}


def load_built_in_agents() -> list[AgentSchema]:
    """Return the built-in agents, the default agent first."""
    return _list_built_in("agent")


def load_built_in_evaluators() -> list[AgentSchema]:
    """Return the built-in evaluators."""
    return _list_built_in("evaluator")


def _list_built_in(kind: str) -> list[AgentSchema]:
    schemas = [entry.schema for entry in _load_built_in().values()]
    return [schema for schema in schemas if schema is not None and schema.kind == kind]


def _sort_own_first(rows: Iterable[Schema], scope: Scope) -> list[Schema]:
    return sorted(rows, key=lambda row: (row.user_id != scope.user_id, row.key or ""))


def _report_duplicates(entries: Iterable[CatalogEntry]) -> Iterator[CatalogEntry]:
    """Yield the entries. An entry whose name is already taken becomes an error."""
    first: dict[str, CatalogEntry] = {}
    for entry in entries:
        if entry.schema is None or (winner := first.setdefault(entry.name, entry)) is entry:
            yield entry
        else:
            label = f"The stored agent {entry.name}" if entry.source == DATABASE else entry.source
            reason = f"{entry.name} is the name of an agent that is {_describe_source(winner)}, which is used instead."
            yield CatalogEntry(entry.name, entry.source, None, f"{label}: {reason}", entry.owner)


def _describe_source(entry: CatalogEntry) -> str:
    if entry.source == BUILT_IN:
        return "built in"
    return f"in the {DATABASE}" if entry.source == DATABASE else f"in {entry.source}"


def _quote(name: str) -> str:
    return repr(name if len(name) <= MAX_NAME_CHARS else f"{name[:MAX_NAME_CHARS]}…")

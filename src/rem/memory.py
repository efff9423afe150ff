"""Memory: what one user of REM holds. `rem.for_user(…)` returns it, and every read and write goes through it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypeVar
from uuid import UUID, uuid4

from rem.answers.engine import AnswerEngine
from rem.audit.entry import Action, AuditEntry, get_current_entry, note_action, note_results, note_row
from rem.db.load import LoadReport, RowProgress, load, read_files
from rem.db.store import Store
from rem.errors import InvalidInputError
from rem.models import Entity, Resource
from rem.models.results import Answer, Result
from rem.query.executor import QueryExecutor, query_span
from rem.query.neighbourhood import Neighbourhood, NodeFilter, find_neighbourhood
from rem.query.read_time import ReadTimeLimit
from rem.query.tree import Direction, Fuzzy, Lookup, Mode, Query, Search, Traverse
from rem.sessions.manager import MemoryManager
from rem.sessions.remember import remember

if TYPE_CHECKING:
    from rem.answers.reading import AnswerReader
    from rem.approvals.approvals import Approvals
    from rem.audit.log import AuditLog
    from rem.context import Scope
    from rem.db.database import Connection, Database
    from rem.db.sandbox import SqlSandbox
    from rem.db.type_registry import TypeRegistry
    from rem.dreams.dreamer import Dreamer, DreamReport
    from rem.dreams.run import OnProgress
    from rem.forget.change_requests import ChangeReport, ChangeRequests
    from rem.forget.erase_user import EraseReport
    from rem.forget.forget import ForgetReport
    from rem.forget.forget_plan import ForgetPlan
    from rem.ingest.ingester import Index, Ingester, OnFile, SaveAgent
    from rem.ingest.models import Form, IngestOptions, IngestReport
    from rem.ingest.runs import IngestRun, UndoReport
    from rem.ingest.sources.ignore_rules import ListingOptions
    from rem.ingest.sources.policy import FetchPolicy
    from rem.query.verbs.search import Searcher
    from rem.search.indexer import Indexer, IndexProgress, IndexReport
    from rem.search.reader import MessageType
    from rem.settings import Settings

T = TypeVar("T", bound=Entity)


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of an open REM that the memories of all users share."""

    database: Database
    types: TypeRegistry
    settings: Settings
    indexer: Indexer
    searcher: Searcher
    sandbox: SqlSandbox
    answer_reader: AnswerReader | None
    audit_log: AuditLog
    get_dreamer: Callable[[], Dreamer]


class Memory:
    """The memory of one user: the user's own rows, and the rows that the tenant shares.

    The memory of nobody (`rem.for_user()`) reads and writes the shared rows.
    """

    def __init__(self, services: Services, scope: Scope, email: str | None = None) -> None:
        self._services = services
        self._email = email
        self.scope = scope
        self.store = Store(services.database, scope, services.types)
        """Reads and writes entities: conditions, many rows at once, transactions."""

    @property
    def sessions(self) -> MemoryManager:
        """The chat sessions of the user."""
        return MemoryManager(self.store, self._services.searcher, self._services.settings.memory)

    @property
    def approvals(self) -> Approvals:
        """The actions of agents that wait for the user's decision."""
        from rem.approvals.approvals import Approvals

        return Approvals(self._services.database, self.store)

    @property
    def changes(self) -> ChangeRequests:
        """The requests to forget or correct something that wait for the user's confirmation."""
        from rem.forget.change_requests import ChangeRequests

        async def find_similar(topic: str, limit: int) -> dict[str, list[UUID]]:
            ids: dict[str, list[UUID]] = {}
            for hit in (await self.search(topic, limit=limit)).hits:
                ids.setdefault(hit.table, []).append(UUID(hit.id))
            return ids

        return ChangeRequests(
            self._services.database, self.store, self._services.settings.search.language, find_similar
        )

    async def query(self, query: str | Query, *, now: datetime | None = None, text: str | None = None) -> Result:
        """Run a query in REM's language, or its syntax tree.

        `text` is the text of a tree that was parsed from it: the result then has the notes about misspelt clauses.
        Words such as "yesterday" are relative to `now`, in its time zone (default: the clock, in the zone of the
        settings).
        """
        with query_span("rem.query") as set_result:
            result = await self._executor(now).run(query, text)
            set_result(result.verb, result.count)
        note_results(result)
        return result

    async def lookup(self, *keys: str, table: str | None = None) -> Result:
        """Find the entities with these keys."""
        return await self.query(Lookup(keys, table))

    async def fuzzy(self, text: str, *, threshold: float = 0.5, limit: int = 5, table: str | None = None) -> Result:
        """Find the entities with a key or summary like a text."""
        return await self.query(Fuzzy(text, threshold, limit, table))

    async def search(
        self,
        text: str,
        *,
        table: str | None = None,
        limit: int = 10,
        min_similarity: float = 0.3,
        mode: Mode = "hybrid",
        since: str | None = None,
        until: str | None = None,
    ) -> Result:
        """Find the entities whose texts are about a text. `query` takes a condition, too."""
        return await self.query(
            Search(text, table, limit, min_similarity=min_similarity, mode=mode, since=since, until=until)
        )

    async def traverse(
        self,
        *keys: str,
        edge_types: Sequence[str] = (),
        depth: int = 1,
        direction: Direction = "out",
        limit: int | None = None,
    ) -> Result:
        """Follow the edges of the entities with these keys."""
        return await self.query(Traverse(Lookup(keys), tuple(edge_types), depth, limit, direction))

    async def ask(self, text: str, *, previous: str = "", now: datetime | None = None) -> Answer:
        """Answer a text without a language model: a query is run, a key looked up, anything else searched and read.

        `previous` is the question before it, which a follow-up such as "and when?" continues. Words such as "last week"
        are relative to `now`, in its time zone (default: the clock, in the zone of the settings).
        """
        with query_span("rem.ask") as set_result:
            answer = await self._engine(now).ask(text, previous=previous)
            set_result("ASK", len(answer.hits))
        note_results(Result("SEARCH", answer.hits))
        return answer

    async def find(self, text: str, *, now: datetime | None = None) -> Result:
        """Return the rows for a text in plain words, best first: those of a query or a key, or what `ask` reads."""
        with query_span("rem.find") as set_result:
            result = await self._engine(now).find(text)
            set_result(result.verb, result.count)
        note_results(result)
        return result

    async def reply(self, message: str, *, previous: str = "") -> Answer | MessageType:
        """Return the answer to a message of a chat, or what it is if it asks nothing: a statement or small talk."""
        reply = await self._engine().reply(message, previous=previous)
        if isinstance(reply, Answer):
            note_results(Result("SEARCH", reply.hits))
        return reply

    async def arrange(self, question: str, result: Result) -> Result:
        """Return the result of a SEARCH with each newer row before what it replaces as an answer to a question."""
        return await self._engine().arrange(question, result)

    def _engine(self, now: datetime | None = None) -> AnswerEngine:
        services = self._services
        weight = services.settings.reranker.answer_weight
        return AnswerEngine(self._executor(now), self.store, services.answer_reader, weight)

    def _executor(self, now: datetime | None) -> QueryExecutor:
        services = self._services
        return QueryExecutor(
            self.store,
            services.searcher,
            services.sandbox,
            now or services.settings.now(),
            services.settings.postgres.read_timeout_seconds,
        )

    async def find_neighbourhood(
        self,
        key: str,
        *,
        table: str | None = None,
        edge_types: Sequence[str] = (),
        wanted: NodeFilter | None = None,
        depth: int = 1,
        limit: int = 200,
    ) -> Neighbourhood:
        """Return the entities around a key and all edges between them, to draw as a graph.

        `edge_types` are the edges to follow, in both directions; all if empty. `wanted` limits the tables and times of
        the entities around the key.
        """
        async with ReadTimeLimit(self._services.settings.postgres.read_timeout_seconds):
            found = await find_neighbourhood(
                self.store, key, table=table, edge_types=edge_types, wanted=wanted, depth=depth, limit=limit
            )
        for node in found.nodes:
            note_row(node.table, node.id)
        return found

    async def upsert(self, entity: T) -> T:
        """Insert an entity, or update the row with the same id or key, and return it."""
        return await self.store.upsert(entity)

    async def get(self, model: type[T], entity_id: UUID) -> T:
        """Return one entity. Raise NotFoundError if it does not exist or belongs to another user."""
        return await self.store.get(model, entity_id)

    async def delete(self, entity: Entity) -> None:
        """Delete an entity. `store.restore` brings it back."""
        await self.store.delete(entity)

    async def remember(self, text: str, *, name: str | None = None, tags: Sequence[str] | None = None) -> Resource:
        """Store a statement of the user as a note, and return it. Without a name, its name begins with the date.

        The same statement again changes nothing.
        """
        return await remember(self.store, text, name=name, tags=tags, at=self._services.settings.now())

    async def correct(self, topic: str, new_text: str) -> ChangeReport:
        """Replace what the notes say about a topic by a new text, at once. `changes` shows the rows first."""
        request = await self.changes.request_correction(topic, new_text)
        return await self.changes.confirm(request.code, by="library")

    async def plan_forget(self, label: str, *, mentions: bool = False) -> ForgetPlan:
        """List the rows about a name or key that `forget` would remove. `mentions` adds the texts that mention it."""
        from rem.forget.forget import plan_forget

        return await plan_forget(self._services.database, self.scope, label, with_mentions=mentions)

    async def forget(self, what: str | ForgetPlan) -> ForgetReport:
        """Remove the rows about a name or key, or those of a plan: all or none.

        Raise `ConflictError` if the rows have changed since the plan.
        """
        from rem.forget.forget import forget

        plan = await self.plan_forget(what) if isinstance(what, str) else what
        if plan.scope != self.scope:
            raise InvalidInputError("The plan is of another user: forget with the memory that made it.")
        entry = self._make_entry("forget")
        for row in plan.rows:
            entry.add_target(row.ref.table, row.ref.id)
        return await forget(
            self._services.database, plan, lambda connection: self._services.audit_log.record_in(connection, entry)
        )

    async def count_user_rows(self) -> EraseReport:
        """Count the rows that `erase_user` would erase, and change nothing."""
        from rem.forget.erase_user import count_user

        return await count_user(self._services.database, self._user, self.scope.tenant_id)

    async def erase_user(self) -> EraseReport:
        """Erase all rows of the user in the tenant for good. The report counts the rows before and after."""
        from rem.forget.erase_user import erase_user

        entry = self._make_entry("erase_user")

        async def record(connection: Connection, pseudonym: str) -> None:
            entry.subject = pseudonym
            await self._services.audit_log.record_in(connection, entry)

        return await erase_user(self._services.database, self._user, self.scope.tenant_id, record)

    @property
    def _user(self) -> str:
        return self._email or self.scope.user_id or ""

    def _make_entry(self, operation: str) -> AuditEntry:
        """Return the entry of the running command or request for a removal, or a new one."""
        note_action(Action.DELETE)
        entry = get_current_entry() or AuditEntry(Action.DELETE, operation)
        entry.tenant_id = self.scope.tenant_id
        return entry

    def ingester(
        self,
        *,
        policy: FetchPolicy | None = None,
        save_agent: SaveAgent | None = None,
        run_id: UUID | None = None,
    ) -> Ingester:
        """Return an ingester that stores files for the user.

        It fetches what the policy allows; the default is what the settings allow to callers of the API. A file that
        defines an agent becomes one if `save_agent` is given. The files are recorded as one run, which can be undone,
        if `run_id` is given.
        """
        from rem.ingest.ingester import Ingester

        return Ingester(self.store, self._services.settings, policy=policy, save_agent=save_agent, run_id=run_id)

    async def ingest(
        self,
        *sources: str | Path,
        category: str | None = None,
        tags: Sequence[str] | None = None,
        form: Form | None = None,
        recursive: bool = True,
        exclude: Sequence[str] = (),
        ignore: bool = True,
        with_forgotten: bool = False,
        dry_run: bool = False,
        save_agent: SaveAgent | None = None,
        on_file: OnFile | None = None,
        on_index: IndexProgress | None = None,
    ) -> IngestReport:
        """Read, store and index files, folders, `https://` and `s3://` URLs, and return the outcome of each file.

        Unchanged files are not written. A file that cannot be read does not stop the others. Without `form` a known
        file keeps its form, and a new one becomes chunks; `ontology` loads wikis and API descriptions into the
        knowledge base. Folders are read without what `.gitignore` files ignore, virtual environments and caches, unless
        `ignore` is false, and without what matches a pattern in `exclude`. What the user has forgotten stays forgotten,
        unless `with_forgotten` is true. With `dry_run` the report says what would be
        stored, and nothing is. A file that defines an agent becomes one if `save_agent` is given. `on_file` is called
        after each file, `on_index` while the chunks are indexed. If this is cancelled, the files stored so far stay.
        `undo_ingest(report.run)` erases the files that were added.
        """
        options = _make_ingest_options(category, tags, form, with_forgotten)
        listing_options = _make_listing_options(exclude, ignore, recursive)
        ingester = self._local_ingester(save_agent)
        listing = await ingester.list_files([str(source) for source in sources], listing_options)
        report = await ingester.ingest_sources(
            listing.sources, options, index=self._make_index(on_index), on_file=on_file, is_dry_run=dry_run
        )
        report.add_listing(listing)
        return report

    async def watch(
        self,
        *sources: str | Path,
        category: str | None = None,
        tags: Sequence[str] | None = None,
        form: Form | None = None,
        recursive: bool = True,
        exclude: Sequence[str] = (),
        ignore: bool = True,
        with_forgotten: bool = False,
        save_agent: SaveAgent | None = None,
        on_file: OnFile | None = None,
        on_index: IndexProgress | None = None,
    ) -> AsyncIterator[IngestReport]:
        """Ingest local files and folders, and keep the memory in step with them until this is cancelled.

        Yield the report of the first run, and then one after each change. The options are those of `ingest`. A file
        that is removed from its folder is deleted with its chunks, and restored when it is there again.
        """
        from rem.ingest.watcher import watch_folders

        reports = watch_folders(
            self._local_ingester(save_agent),
            [str(source) for source in sources],
            _make_ingest_options(category, tags, form, with_forgotten),
            _make_listing_options(exclude, ignore, recursive),
            index=self._make_index(on_index),
            on_file=on_file,
        )
        async for report in reports:
            yield report

    async def list_ingest_runs(self, *, limit: int = 20) -> list[IngestRun]:
        """Return the calls of `ingest` and `watch` that stored files, latest first."""
        from rem.ingest.runs import list_runs

        return await list_runs(self.store, limit)

    async def undo_ingest(self, run: str) -> UndoReport:
        """Erase the files that a run added and nobody has changed since. The report lists what stays."""
        from rem.ingest.runs import undo_run

        return await undo_run(self.store, run)

    def _local_ingester(self, save_agent: SaveAgent | None) -> Ingester:
        """Return an ingester that may fetch every file and URL, and records what it stores as one run."""
        from rem.ingest.sources.policy import UNRESTRICTED

        return self.ingester(policy=UNRESTRICTED, save_agent=save_agent, run_id=uuid4())

    def _make_index(self, on_index: IndexProgress | None) -> Index:
        async def index() -> None:
            await self._services.indexer.run(self.scope, on_index)

        return index

    async def index(self, on_progress: IndexProgress | None = None) -> IndexReport:
        """Index new rows of the user and of the tenant's shared rows. Also try again what was set aside after failures.

        A search indexes a few rows itself. Call this after you wrote many.
        """
        await self._services.indexer.retry_failed(self.scope)
        return await self._services.indexer.run(self.scope, on_progress)

    async def dream(
        self, names: Sequence[str] | None = None, *, rescan: bool = False, on_progress: OnProgress | None = None
    ) -> DreamReport:
        """Derive moments, entities, relations and profiles from what is new. `names` selects some dreams.

        `rescan` reads everything again, not only new and changed rows; refused statements stay refused.
        """
        dreamer = self._services.get_dreamer()
        return await dreamer.dream(self.scope, names, rescan=rescan, email=self._email, on_progress=on_progress)

    async def load(self, *paths: Path, on_rows: RowProgress | None = None) -> LoadReport:
        """Load YAML files into the rows of the user. All files are loaded or none."""
        return await load(self.store, read_files(paths), on_rows)

    async def dump(
        self, stream: TextIO, *, with_deleted: bool = False, on_rows: Callable[[int], None] | None = None
    ) -> int:
        """Write the rows of the user as YAML that `load` reads, and return their number."""
        from rem.db.dump import dump

        return await dump(self.store, stream, with_deleted=with_deleted, on_rows=on_rows)


def _make_ingest_options(
    category: str | None, tags: Sequence[str] | None, form: Form | None, with_forgotten: bool
) -> IngestOptions:
    from rem.ingest.models import IngestOptions

    if isinstance(tags, str):
        raise InvalidInputError(f"Tags are a list: write tags=[{tags!r}].")
    return IngestOptions(category, None if tags is None else tuple(tags), form, with_forgotten)


def _make_listing_options(exclude: Sequence[str], ignore: bool, recursive: bool) -> ListingOptions:
    from rem.ingest.sources.ignore_rules import ListingOptions

    if isinstance(exclude, str):
        raise InvalidInputError(f"The patterns to exclude are a list: write exclude=[{exclude!r}].")
    return ListingOptions(tuple(exclude), ignore, recursive)

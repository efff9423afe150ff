"""Rem: the object that opens the database and all services. The library, API, MCP server and CLI all use it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO
from uuid import UUID, uuid4

from rem.audit.entry import Action, AuditEntry, get_current_entry, note_action, note_results, note_row
from rem.audit.log import AuditLog
from rem.context import DEFAULT_TENANT, AgentContext, Scope, UserOrScope, resolve_user_id
from rem.db.custom_types import TypePlan
from rem.db.database import Database, Progress
from rem.db.load import LoadReport, RowProgress, load, read_files
from rem.db.maintenance import MirrorReport, RebuildReport, check_mirrors, rebuild_mirrors
from rem.db.sandbox import SqlSandbox
from rem.db.store import Store
from rem.db.type_registry import TypeRegistry
from rem.demo import DEMO_TENANT, RemovedWorkspace, count_sample_rows, read_workspace, remove_workspace
from rem.embeddings import Embedder, keep_recorded_model, try_open_embedder
from rem.errors import EmbeddingDisabledError, InvalidInputError, MemoryDisabledError
from rem.memory.manager import MemoryManager
from rem.memory.prune import prune_idle_sessions
from rem.memory.remember import remember
from rem.models import Entity, Resource
from rem.query import natural
from rem.query.answer_rows import arrange_answer
from rem.query.executor import QueryExecutor, query_span
from rem.query.neighbourhood import Neighbourhood, NodeFilter, find_neighbourhood
from rem.query.plans.plan import Plan, PlanResult
from rem.query.plans.run import OnStage, run_plan
from rem.query.read_time import ReadTimeLimit
from rem.query.result import QueryResult
from rem.query.syntax_tree import Query, Search
from rem.query.verbs.search import Searcher
from rem.query.verbs.sql_guard import check_select
from rem.retrieval.embedding_model import load_current_model
from rem.retrieval.index_worker import keep_indexed
from rem.retrieval.indexer import IndexBacklog, Indexer, IndexProgress, IndexReport, IndexState
from rem.retrieval.reranker import (
    make_answer_reranker,
    make_search_reranker,
    open_replacement_model,
    open_reranker,
)
from rem.settings import Settings, get_settings

if TYPE_CHECKING:
    from rem.approvals.approvals import Approvals
    from rem.db.database import Connection
    from rem.dreaming.dreamer import Dreamer
    from rem.dreaming.extraction_model import AgentSchemas, ExtractionModel
    from rem.forgetting.change_requests import ChangeRequests
    from rem.forgetting.erase_user import EraseReport
    from rem.forgetting.forget import ForgetReport
    from rem.forgetting.forget_plan import ForgetPlan
    from rem.forgetting.masking import StoredTexts
    from rem.forgetting.sweep import SweepReport
    from rem.ingest.ingester import Ingester, SaveAgent
    from rem.ingest.models import Form, IngestOptions, IngestReport
    from rem.ingest.pipeline import Index, OnFile, Pipeline
    from rem.ingest.runs import IngestRun, UndoReport
    from rem.ingest.sources.ignore_rules import ListingOptions


class Rem:
    """An open REM. `async with Rem.open() as rem:` starts the embedded server if no other is configured.

    Methods with `user` take an e-mail address, a user id or a `Scope`. Without a user they act on the rows that the
    tenant shares.
    """

    def __init__(self, database: Database, types: TypeRegistry, settings: Settings) -> None:
        self._database = database
        self._types = types
        self._settings = settings
        self._embedder = try_open_embedder(settings)
        self._indexer = Indexer(database, self._embedder, settings.search.language)
        self._reranker = open_reranker(settings.reranker)
        self._replacements = open_replacement_model(settings.reranker)
        self._answer_reranker = make_answer_reranker(self._reranker, settings.reranker, self._replacements)
        search_reranker = make_search_reranker(self._reranker, settings.reranker)
        self._searcher = Searcher(
            database, self._embedder, self._indexer, search_reranker, settings.postgres.read_timeout_seconds
        )
        self._sandbox = SqlSandbox(database, settings, check_select)
        self._audit_log = AuditLog(database, settings.audit, is_enabled=settings.writes_audit_log)

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings | None = None, *, on_progress: Progress | None = None) -> AsyncIterator[Rem]:
        """Open REM with the given settings or those of the environment, and close it at the end of the block."""
        settings = settings or get_settings()
        if not settings.postgres.enabled:
            raise MemoryDisabledError
        async with Database.open(settings, on_progress) as database:
            async with database.connection() as connection:
                recorded = await load_current_model(connection)
            if recorded is not None:
                settings = keep_recorded_model(settings, recorded.name)
            rem = cls(database, await TypeRegistry.load(database), settings)
            try:
                yield rem
            finally:
                await rem._close()

    async def _close(self) -> None:
        await self._sandbox.close()
        await self._embedder.close()
        for model in (self._reranker, self._replacements):
            if model is not None:
                await model.close()

    @property
    def database(self) -> Database:
        """The database, for statements that the store does not offer."""
        return self._database

    @property
    def audit_log(self) -> AuditLog:
        """The log of who did what."""
        return self._audit_log

    @property
    def settings(self) -> Settings:
        """The settings that this REM was opened with."""
        return self._settings

    def store(self, user: UserOrScope = None, *, tenant: str = DEFAULT_TENANT) -> Store:
        """Return the store of one user."""
        return Store(self._database, Scope.for_user(user, tenant), self._types)

    def ingester(
        self,
        user: UserOrScope = None,
        *,
        tenant: str = DEFAULT_TENANT,
        save_agent: SaveAgent | None = None,
        run_id: UUID | None = None,
    ) -> Ingester:
        """Return an ingester that stores files for one user.

        A file that defines an agent becomes one if `save_agent` is given. The files are recorded as one run, which can
        be undone, if `run_id` is given.
        """
        from rem.ingest.ingester import Ingester

        return Ingester(self.store(user, tenant=tenant), self._settings, save_agent=save_agent, run_id=run_id)

    async def ingest(
        self,
        *sources: str | Path,
        user: UserOrScope = None,
        tenant: str = DEFAULT_TENANT,
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
        scope = Scope.for_user(user, tenant)
        pipeline = self._pipeline(
            scope,
            _make_ingest_options(category, tags, form, with_forgotten),
            _make_listing_options(exclude, ignore, recursive),
            save_agent,
            is_dry_run=dry_run,
        )
        return await pipeline.ingest(
            [str(source) for source in sources], index=self._make_index(scope, on_index), on_file=on_file
        )

    async def watch(
        self,
        *sources: str | Path,
        user: UserOrScope = None,
        tenant: str = DEFAULT_TENANT,
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

        scope = Scope.for_user(user, tenant)
        pipeline = self._pipeline(
            scope,
            _make_ingest_options(category, tags, form, with_forgotten),
            _make_listing_options(exclude, ignore, recursive),
            save_agent,
        )
        index = self._make_index(scope, on_index)
        async for report in watch_folders(pipeline, [str(source) for source in sources], index=index, on_file=on_file):
            yield report

    async def list_ingest_runs(
        self, *, user: UserOrScope = None, tenant: str = DEFAULT_TENANT, limit: int = 20
    ) -> list[IngestRun]:
        """Return the calls of `ingest` and `watch` that stored files, latest first."""
        from rem.ingest.runs import list_runs

        return await list_runs(self.store(user, tenant=tenant), limit)

    async def undo_ingest(self, run: str, *, user: UserOrScope = None, tenant: str = DEFAULT_TENANT) -> UndoReport:
        """Erase the files that a run added and nobody has changed since. The report lists what stays."""
        from rem.ingest.runs import undo_run

        return await undo_run(self.store(user, tenant=tenant), run)

    def _pipeline(
        self,
        scope: Scope,
        options: IngestOptions,
        listing_options: ListingOptions,
        save_agent: SaveAgent | None,
        *,
        is_dry_run: bool = False,
    ) -> Pipeline:
        from rem.ingest.pipeline import Pipeline
        from rem.ingest.sources.policy import UNRESTRICTED

        ingester = self.ingester(scope, save_agent=save_agent, run_id=uuid4())
        return Pipeline(ingester, UNRESTRICTED, self._settings.ingest, options, listing_options, is_dry_run)

    def _make_index(self, scope: Scope, on_index: IndexProgress | None) -> Index:
        async def index() -> None:
            await self._indexer.run(scope, on_index)

        return index

    def memory(self, user: str | Scope, *, tenant: str = DEFAULT_TENANT) -> MemoryManager:
        """Return the sessions of one user."""
        return MemoryManager(self.store(user, tenant=tenant), self._searcher, self._settings.memory)

    async def resolve_session(self, context: AgentContext) -> AgentContext:
        """Return the context with the id of the session that it names. Another user cannot compute that id."""
        if context.session_name is None:
            return context
        memory = self.memory(Scope(context.tenant_id, context.user_id))
        session_id = await memory.resolve_session_id(context.session_name)
        return context.model_copy(update={"session_id": str(session_id)})

    async def prune_if_due(self) -> int:
        """Delete sessions that were idle for MEMORY__AUTO_PRUNE_DAYS, of all users, and return their number."""
        return await prune_idle_sessions(self.memory, self._database, self._settings.memory)

    async def query(
        self,
        query: str | Query,
        *,
        user: UserOrScope = None,
        tenant: str = DEFAULT_TENANT,
        now: datetime | None = None,
        text: str | None = None,
    ) -> QueryResult:
        """Run a query in REM's language, or its syntax tree, over the rows that the user may see.

        `text` is the text of a tree that was parsed from it: the result then has the notes about misspelt clauses.
        Words such as "yesterday" are relative to `now`, in its time zone (default: the clock, in the zone of the
        settings).
        """
        with query_span("rem.query") as set_result:
            result = await self._executor(Scope.for_user(user, tenant), now).run(query, text)
            set_result(result.query_type, result.count)
        note_results(result.query_type, result.results)
        return result

    async def ask(
        self,
        text: str,
        *,
        user: UserOrScope = None,
        tenant: str = DEFAULT_TENANT,
        limit: int | None = None,
        now: datetime | None = None,
    ) -> QueryResult:
        """Answer a question in plain words without a language model. The result's notes name the query that was run.

        `limit` is the maximum number of rows that a search returns. Words such as "yesterday" are relative to `now`, in
        its time zone (default: the clock, in the zone of the settings).
        """
        scope = Scope.for_user(user, tenant)
        with query_span("rem.ask") as set_result:
            result = await natural.ask(self._executor(scope, now), self.store(scope), text, limit)
            set_result(result.query_type, result.count)
        note_results(result.query_type, result.results)
        return result

    async def arrange_answer(
        self, question: str, result: QueryResult, *, user: UserOrScope = None, tenant: str = DEFAULT_TENANT
    ) -> QueryResult:
        """Return the result of a SEARCH with its rows arranged as an answer: no copies, the newest valid row first."""
        store = self.store(user, tenant=tenant)
        return await arrange_answer(store, question, result, reranker=self._answer_reranker)

    async def run_plan(
        self,
        plan: Plan | Mapping[str, Any] | str,
        *,
        user: UserOrScope = None,
        tenant: str = DEFAULT_TENANT,
        on_stage: OnStage | None = None,
    ) -> PlanResult:
        """Run a plan, whose stages may use results of earlier ones. It is an object, a mapping or JSON.

        `on_stage` is called after each stage.
        """
        with query_span("rem.plan") as set_result:
            result = await run_plan(self._executor(Scope.for_user(user, tenant)), Plan.parse(plan), on_stage)
            set_result("PLAN", result.count)
        for stage in result.stages:
            note_results("PLAN", stage.result.results)
        return result

    def _executor(self, scope: Scope, now: datetime | None = None) -> QueryExecutor:
        now = now or self._settings.now()
        max_seconds = self._settings.postgres.read_timeout_seconds
        return QueryExecutor(self.store(scope), self._searcher, self._sandbox, now, self._answer_reranker, max_seconds)

    async def find_neighbourhood(
        self,
        key: str,
        *,
        user: UserOrScope = None,
        tenant: str = DEFAULT_TENANT,
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
        async with ReadTimeLimit(self._settings.postgres.read_timeout_seconds):
            found = await find_neighbourhood(
                self.store(user, tenant=tenant),
                key,
                table=table,
                edge_types=edge_types,
                wanted=wanted,
                depth=depth,
                limit=limit,
            )
        for node in found.nodes:
            note_row(node.table, node.id)
        return found

    async def index(
        self,
        *,
        user: UserOrScope = None,
        tenant: str = DEFAULT_TENANT,
        everyone: bool = False,
        rescan: bool = False,
        on_progress: IndexProgress | None = None,
    ) -> IndexReport:
        """Index new rows of one user and the tenant's shared rows, or of all users.

        A search indexes a few rows itself. Call this after you wrote many. `rescan` indexes all rows of all users
        again.
        """
        if rescan:
            await self._indexer.enqueue_all()
        return await self._indexer.run(None if everyone else Scope.for_user(user, tenant), on_progress)

    async def index_backlog(self) -> IndexBacklog:
        """Count the rows and passages of all users that are not indexed yet."""
        return await self._indexer.load_backlog()

    async def check_index(self) -> IndexState:
        """Return how much is indexed and by which model, and count the rows that the index misses."""
        return await self._indexer.check()

    @property
    def embedder(self) -> Embedder:
        """The configured embedder. Without one, it raises EmbeddingDisabledError."""
        return self._embedder

    @property
    def answer_models(self) -> list[str]:
        """The names of the models that order the rows of answers in plain words."""
        return [model.name for model in (self._reranker, self._replacements) if model is not None]

    async def check_models(self) -> str | None:
        """Run each model once, and raise its error. Return the reason if there is no embedder."""
        from rem.tagging.tagger import get_tagger

        await get_tagger().find_names(["a text to try it"])
        for model in (self._reranker, self._replacements):
            if model is not None:
                await model.scores("a question", ["a text to try it"])
        try:
            await self._embedder.embed_one("a text to try it")
        except EmbeddingDisabledError as error:
            return str(error)
        return None

    async def switch_model(self) -> int:
        """Make the embedding model of the settings the model of this database. Return the passages left to embed.

        `reembed` or a running server embeds them. Until then SEARCH finds them by their words only.
        """
        return await self._indexer.switch_model()

    async def reembed(self, on_progress: IndexProgress | None = None) -> int:
        """Embed the passages of another model again, and return their number. It can be stopped and resumed."""
        await self._indexer.switch_model()
        return await self._indexer.reembed_outdated(on_progress)

    def dreamer(self, model: ExtractionModel | None = None, schemas: AgentSchemas | None = None) -> Dreamer:
        """Return the dreamer, which derives moments, entities, relations and profiles. It uses `model` if given."""
        from rem.dreaming.dreamer import Dreamer

        settings = self._settings.dreaming
        return Dreamer(self._database, self.store, self._indexer, self._embedder, settings, model, schemas)

    async def remember(
        self,
        text: str,
        *,
        user: UserOrScope = None,
        tenant: str = DEFAULT_TENANT,
        name: str | None = None,
        tags: Sequence[str] | None = None,
    ) -> Resource:
        """Store a statement of the user as a note, and return it. Without a name, its name begins with the date.

        The same statement again changes nothing.
        """
        store = self.store(user, tenant=tenant)
        return await remember(store, text, name=name, tags=tags, at=self._settings.now())

    def approvals(self, user: UserOrScope = None, *, tenant: str = DEFAULT_TENANT) -> Approvals:
        """Return the user's requests for approval: actions of agents that wait for a decision."""
        from rem.approvals.approvals import Approvals

        return Approvals(self._database, self.store(user, tenant=tenant))

    def changes(self, user: UserOrScope = None, *, tenant: str = DEFAULT_TENANT) -> ChangeRequests:
        """Return the requests to forget or correct something that wait for the user's confirmation."""
        from rem.forgetting.change_requests import ChangeRequests

        scope = Scope.for_user(user, tenant)

        async def find_similar(topic: str, limit: int) -> dict[str, list[UUID]]:
            ids: dict[str, list[UUID]] = {}
            for hit in (await self.query(Search(topic, limit=limit), user=scope)).results:
                ids.setdefault(hit["table"], []).append(UUID(str(hit["record"]["id"])))
            return ids

        return ChangeRequests(self._database, self.store(scope), self._settings.search.language, find_similar)

    async def plan_forget(
        self, label: str, *, user: UserOrScope = None, tenant: str = DEFAULT_TENANT, mentions: bool = False
    ) -> ForgetPlan:
        """List the rows about a name or key that `forget` would remove. `mentions` adds the texts that mention it."""
        from rem.forgetting.forget import plan_forget

        return await plan_forget(self._database, Scope.for_user(user, tenant), label, with_mentions=mentions)

    async def forget(self, plan: ForgetPlan) -> ForgetReport:
        """Remove the rows of a plan, all or none. Raise `ConflictError` if the rows have changed since the plan."""
        from rem.forgetting.forget import forget

        entry = self._make_entry("forget", plan.scope.tenant_id)
        for row in plan.rows:
            entry.add_target(row.ref.table, row.ref.id)
        return await forget(self._database, plan, lambda connection: self._audit_log.record_in(connection, entry))

    async def count_user_rows(self, user: str, *, tenant: str = DEFAULT_TENANT) -> EraseReport:
        """Count the rows that `erase_user` would erase, and change nothing."""
        from rem.forgetting.erase_user import count_user

        return await count_user(self._database, user, tenant)

    async def erase_user(self, user: str, *, tenant: str = DEFAULT_TENANT) -> EraseReport:
        """Erase all rows of a user in a tenant for good. The report counts the rows before and after."""
        from rem.forgetting.erase_user import erase_user

        entry = self._make_entry("erase_user", tenant)

        async def record(connection: Connection, pseudonym: str) -> None:
            entry.subject = pseudonym
            await self._audit_log.record_in(connection, entry)

        return await erase_user(self._database, user, tenant, record)

    def _make_entry(self, operation: str, tenant_id: str) -> AuditEntry:
        """Return the entry of the running command or request for a removal, or a new one."""
        note_action(Action.DELETE)
        entry = get_current_entry() or AuditEntry(Action.DELETE, operation)
        entry.tenant_id = tenant_id
        return entry

    def stored_texts(self, user: str | None = None, *, tenant: str = DEFAULT_TENANT) -> StoredTexts:
        """Return the stored texts of a tenant or of one of its users, to mask what the policy does not allow."""
        from rem.forgetting.masking import StoredTexts

        user_id = None if user is None else resolve_user_id(user)
        return StoredTexts(self._database, self._types, tenant, user_id)

    async def sweep(self) -> SweepReport:
        """Erase the expired rows of all users and the statements derived from them, for good."""
        from rem.forgetting.sweep import sweep

        report = await sweep(self._database)
        report.audit_entries = await self._audit_log.prune()
        return report

    async def keep_indexed(self) -> None:
        """Index new rows of all users until cancelled. For servers."""
        await keep_indexed(self._database, self._indexer)

    async def plan_registration(self, model: type[Entity]) -> TypePlan:
        """Return the migration that `register` would apply for your entity class, without applying it."""
        return await self._types.plan(self._database, model)

    async def register(self, model: type[Entity]) -> TypePlan:
        """Create or update the table of your entity class, and return the migration that was applied."""
        return await self._types.register(self._database, model)

    async def load(
        self,
        *paths: Path,
        user: UserOrScope = None,
        tenant: str = DEFAULT_TENANT,
        on_rows: RowProgress | None = None,
    ) -> LoadReport:
        """Load YAML files into the rows of one user. All files are loaded or none."""
        return await load(self.store(user, tenant=tenant), read_files(paths), on_rows)

    async def load_demo(self, *, tenant: str = DEMO_TENANT, on_rows: RowProgress | None = None) -> LoadReport:
        """Load the sample workspace into the shared rows of a tenant; by default of one that holds nothing else."""
        return await load(self.store(tenant=tenant), read_workspace(), on_rows)

    async def remove_demo(self, *, tenant: str = DEMO_TENANT) -> RemovedWorkspace:
        """Erase the sample workspace from the shared rows of a tenant. Rows that somebody edited stay."""
        return await remove_workspace(self.store(tenant=tenant))

    async def count_demo_rows(self, *, tenant: str) -> int:
        """Count the rows of the sample workspace among the shared rows of a tenant."""
        return await count_sample_rows(self.store(tenant=tenant))

    async def dump(
        self,
        stream: TextIO,
        *,
        user: UserOrScope = None,
        tenant: str = DEFAULT_TENANT,
        with_deleted: bool = False,
        on_rows: Callable[[int], None] | None = None,
    ) -> int:
        """Write the rows of one user as YAML that `load` reads, and return their number."""
        from rem.db.dump import dump

        return await dump(self.store(user, tenant=tenant), stream, with_deleted=with_deleted, on_rows=on_rows)

    async def rebuild_cache(self) -> RebuildReport:
        """Rebuild kv_store and edges from the entity tables."""
        return await rebuild_mirrors(self._database)

    async def check_cache(self) -> MirrorReport:
        """Compare kv_store and edges with the entity tables."""
        return await check_mirrors(self._database)


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

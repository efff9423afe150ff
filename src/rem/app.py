"""Rem: the one object that opens the database and everything on it. Library, API, MCP and CLI all use it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rem.context import DEFAULT_TENANT, Scope, UserOrScope
from rem.db.custom_types import TypePlan
from rem.db.database import Database, Progress
from rem.db.dump import dump
from rem.db.load import LoadReport, RowProgress, load, read_files
from rem.db.maintenance import MirrorReport, RebuildReport, check_mirrors, rebuild_mirrors
from rem.db.sandbox import SqlSandbox
from rem.db.store import Store
from rem.db.type_registry import TypeRegistry
from rem.demo import read_workspace
from rem.embeddings import try_open_embedder
from rem.errors import EmbeddingDisabledError, MemoryDisabledError
from rem.ingest.ingester import Ingester, SaveAgent
from rem.ingest.models import Form, IngestOptions, IngestReport
from rem.ingest.pipeline import OnFile, Pipeline
from rem.ingest.sources.policy import UNRESTRICTED
from rem.memory.manager import MemoryManager
from rem.memory.prune import prune_idle_sessions
from rem.models import Entity
from rem.query import natural
from rem.query.executor import QueryExecutor, query_span
from rem.query.plans.plan import Plan, PlanResult
from rem.query.plans.run import run_plan
from rem.query.result import QueryResult
from rem.query.tree import Query
from rem.query.verbs.search import Searcher
from rem.query.verbs.sql_guard import check_select
from rem.retrieval.index_worker import keep_indexed
from rem.retrieval.indexer import IndexBacklog, Indexer, IndexProgress, IndexReport, IndexState
from rem.retrieval.reranker import open_reranker
from rem.settings import Settings, get_settings

if TYPE_CHECKING:
    from rem.dreaming.dreamer import Dreamer
    from rem.dreaming.extraction_model import AgentSchemas, ExtractionModel
    from rem.forgetting.erase_user import EraseReport
    from rem.forgetting.forget import ForgetReport
    from rem.forgetting.forget_plan import ForgetPlan
    from rem.forgetting.sweep import SweepReport


class Rem:
    """An open REM. `async with Rem.open() as rem:` starts the embedded server if no other is configured."""

    def __init__(self, database: Database, types: TypeRegistry, settings: Settings) -> None:
        self._database = database
        self._types = types
        self._settings = settings
        self._embedder = try_open_embedder(settings)
        self._indexer = Indexer(database, self._embedder, settings.search.language)
        self._reranker = open_reranker(settings)
        self._searcher = Searcher(database, self._embedder, self._indexer, self._reranker, settings.reranker)
        self._sandbox = SqlSandbox(database, settings, check_select)

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings | None = None, *, on_progress: Progress | None = None) -> AsyncIterator[Rem]:
        """Open REM with the given settings, or with those of the environment."""
        settings = settings or get_settings()
        if not settings.postgres.enabled:
            raise MemoryDisabledError
        async with Database.open(settings, on_progress) as database:
            rem = cls(database, await TypeRegistry.load(database), settings)
            try:
                yield rem
            finally:
                await rem._close()

    async def _close(self) -> None:
        await self._sandbox.close()
        await self._embedder.close()
        if self._reranker is not None:
            await self._reranker.close()

    @property
    def database(self) -> Database:
        """The database, for what the store does not offer."""
        return self._database

    @property
    def settings(self) -> Settings:
        """The settings that it was opened with."""
        return self._settings

    def store(self, user: UserOrScope = None, *, tenant: str = DEFAULT_TENANT) -> Store:
        """Return the memory of one user or scope; without a user, what the tenant shares."""
        return Store(self._database, Scope.for_user(user, tenant), self._types)

    def ingester(
        self, user: UserOrScope = None, *, tenant: str = DEFAULT_TENANT, save_agent: SaveAgent | None = None
    ) -> Ingester:
        """Return an ingester that stores files in the memory of one user or scope.

        A file that defines an agent becomes one if `save_agent` is given.
        """
        return Ingester(self.store(user, tenant=tenant), self._settings, save_agent=save_agent)

    async def ingest(
        self,
        *places: str | Path,
        user: UserOrScope = None,
        tenant: str = DEFAULT_TENANT,
        category: str | None = None,
        tags: Sequence[str] | None = None,
        form: Form | None = None,
        recursive: bool = True,
        save_agent: SaveAgent | None = None,
        on_file: OnFile | None = None,
        on_index: IndexProgress | None = None,
    ) -> IngestReport:
        """Read, store and index files, folders, `https://` and `s3://` URLs, and return the outcome of each file.

        Unchanged files are not written. A file that cannot be read does not stop the others. Without `form` a known
        file keeps its form, and a new one becomes chunks; `ontology` loads wikis and API descriptions into the
        knowledge base. A file that defines an agent becomes one if `save_agent` is given. `on_file` is called after
        each file, `on_index` while the chunks are indexed. If this is cancelled, the files stored so far stay.
        """
        scope = Scope.for_user(user, tenant)
        options = IngestOptions(category, None if tags is None else tuple(tags), form)
        ingester = self.ingester(scope, save_agent=save_agent)
        pipeline = Pipeline(ingester, UNRESTRICTED, self._settings.ingest, options)

        async def index() -> None:
            await self._indexer.run(scope, on_index)

        return await pipeline.ingest(
            [str(place) for place in places], index=index, recursive=recursive, on_file=on_file
        )

    def memory(self, user: str | Scope, *, tenant: str = DEFAULT_TENANT) -> MemoryManager:
        """Return the sessions of one user or scope."""
        return MemoryManager(self.store(user, tenant=tenant), self._searcher, self._settings.memory)

    async def prune_if_due(self) -> int:
        """Delete what MEMORY__AUTO_PRUNE_DAYS says is too old, of everyone; how many sessions. For servers."""
        return await prune_idle_sessions(self.memory, self._database, self._settings.memory)

    async def query(self, query: str | Query, *, user: UserOrScope = None, tenant: str = DEFAULT_TENANT) -> QueryResult:
        """Run a query in REM's language over what one user or scope sees; without a user, what the tenant shares."""
        with query_span("rem.query") as answered:
            result = await self._executor(Scope.for_user(user, tenant)).run(query)
            answered(result.query_type, result.count)
        return result

    async def ask(
        self, text: str, *, user: UserOrScope = None, tenant: str = DEFAULT_TENANT, limit: int | None = None
    ) -> QueryResult:
        """Answer plain language without a language model. The notes say as which query it was understood.

        `limit` is the most rows that a search may return.
        """
        scope = Scope.for_user(user, tenant)
        with query_span("rem.ask") as answered:
            result = await natural.ask(self._executor(scope), self.store(scope), text, limit)
            answered(result.query_type, result.count)
        return result

    async def run_plan(
        self, plan: Plan | Mapping[str, Any] | str, *, user: UserOrScope = None, tenant: str = DEFAULT_TENANT
    ) -> PlanResult:
        """Run queries in stages, where one feeds the next. The plan is an object, a mapping or JSON."""
        with query_span("rem.plan") as answered:
            result = await run_plan(self._executor(Scope.for_user(user, tenant)), Plan.parse(plan))
            answered("PLAN", result.count)
        return result

    def _executor(self, scope: Scope) -> QueryExecutor:
        return QueryExecutor(self.store(scope), self._searcher, self._sandbox)

    async def index(
        self,
        *,
        user: UserOrScope = None,
        tenant: str = DEFAULT_TENANT,
        everyone: bool = False,
        rescan: bool = False,
        on_progress: IndexProgress | None = None,
    ) -> IndexReport:
        """Index what waits to be searched: of one user and the tenant's shared rows, or of everyone.

        A search indexes a few rows itself, so this is for after many were written. `rescan` indexes all rows
        of everyone again.
        """
        if rescan:
            await self._indexer.enqueue_all()
        return await self._indexer.run(None if everyone else Scope.for_user(user, tenant), on_progress)

    async def waiting(self) -> IndexBacklog:
        """What is written and not indexed yet, of everyone."""
        return await self._indexer.load_backlog()

    async def check_index(self) -> IndexState:
        """How much is indexed, by which model, and whether a row was forgotten."""
        return await self._indexer.check()

    async def try_models(self) -> str | None:
        """Try the embedder and the reranker. An error says what is wrong; None, or why there is no embedder."""
        if self._reranker is not None:
            await self._reranker.scores("a question", ["a text to try it"])
        try:
            await self._embedder.embed_one("a text to try it")
        except EmbeddingDisabledError as error:
            return str(error)
        return None

    async def switch_model(self) -> int:
        """Let the model that the settings name be the one of this database; how many passages have to be embedded anew.

        `reembed` does it, or a running server in the background; until then SEARCH finds those by their words.
        """
        return await self._indexer.switch_model()

    async def reembed(self, on_progress: IndexProgress | None = None) -> int:
        """Embed anew what another model embedded; how many passages it were. Can be stopped and resumed."""
        await self._indexer.switch_model()
        return await self._indexer.reembed_outdated(on_progress)

    def dreamer(self, mind: ExtractionModel | None = None, schemas: AgentSchemas | None = None) -> Dreamer:
        """Whoever derives moments, entities, relations and profiles from memories; with a mind, by a language model."""
        from rem.dreaming.dreamer import Dreamer

        settings = self._settings.dreaming
        return Dreamer(self._database, self.store, self._indexer, self._embedder, settings, mind, schemas)

    async def plan_forget(
        self, label: str, *, user: UserOrScope = None, tenant: str = DEFAULT_TENANT, mentions: bool = False
    ) -> ForgetPlan:
        """What would go with everything about a name or a key; with `mentions`, also the texts that name it."""
        from rem.forgetting.forget import plan_forget

        return await plan_forget(self._database, Scope.for_user(user, tenant), label, with_mentions=mentions)

    async def forget(self, plan: ForgetPlan) -> ForgetReport:
        """Remove what a plan shows, all of it or nothing; an error if something else would go by now."""
        from rem.forgetting.forget import forget

        return await forget(self._database, plan)

    async def count_user(self, user: str, *, tenant: str = DEFAULT_TENANT) -> EraseReport:
        """What `erase_user` would erase. Nothing changes."""
        from rem.forgetting.erase_user import count_user

        return await count_user(self._database, user, tenant)

    async def erase_user(self, user: str, *, tenant: str = DEFAULT_TENANT) -> EraseReport:
        """Erase everything of a user in a tenant, for good; the report proves that nothing is left."""
        from rem.forgetting.erase_user import erase_user

        return await erase_user(self._database, user, tenant)

    async def sweep(self) -> SweepReport:
        """Erase for good what has lapsed, of everyone, and what was dreamt from it."""
        from rem.forgetting.sweep import sweep

        return await sweep(self._database)

    async def keep_indexed(self) -> None:
        """Index whatever anyone writes, until cancelled; for servers."""
        await keep_indexed(self._database, self._indexer)

    async def plan(self, model: type[Entity]) -> TypePlan:
        """The migration that `register` would apply for a class of your own, to be read first."""
        return await self._types.plan(self._database, model)

    async def register(self, model: type[Entity]) -> TypePlan:
        """Make a table for a class of your own, or bring it up to date; what was applied."""
        return await self._types.register(self._database, model)

    async def load(
        self,
        *paths: Path,
        user: UserOrScope = None,
        tenant: str = DEFAULT_TENANT,
        on_rows: RowProgress | None = None,
    ) -> LoadReport:
        """Load YAML files into one user's memory, or into what the tenant shares; all of them or nothing."""
        return await load(self.store(user, tenant=tenant), read_files(paths), on_rows)

    async def load_demo(self, *, tenant: str = DEFAULT_TENANT, on_rows: RowProgress | None = None) -> LoadReport:
        """Load the sample workspace."""
        return await load(self.store(tenant=tenant), read_workspace(), on_rows)

    async def dump(
        self,
        stream: TextIO,
        *,
        user: UserOrScope = None,
        tenant: str = DEFAULT_TENANT,
        with_deleted: bool = False,
        on_rows: Callable[[int], None] | None = None,
    ) -> int:
        """Write one user's own rows, or the shared ones, as YAML that `load` reads; how many there were."""
        return await dump(self.store(user, tenant=tenant), stream, with_deleted=with_deleted, on_rows=on_rows)

    async def rebuild_cache(self) -> RebuildReport:
        """Fill kv_store and edges anew from the tables."""
        return await rebuild_mirrors(self._database)

    async def check_cache(self) -> MirrorReport:
        """Compare kv_store and edges with what the tables imply."""
        return await check_mirrors(self._database)

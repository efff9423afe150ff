"""Rem: the object that opens the database and all services. The library, API, MCP server and CLI all use it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from rem.answers.reading import AnswerReader
from rem.audit.log import AuditLog
from rem.context import DEFAULT_TENANT, AgentContext, Scope, UserOrScope
from rem.db.custom_types import TypePlan
from rem.db.database import Database, Progress
from rem.db.maintenance import MirrorReport, RebuildReport, check_mirrors, rebuild_mirrors
from rem.db.sandbox import SqlSandbox
from rem.db.type_registry import TypeRegistry
from rem.errors import EmbeddingDisabledError, MemoryDisabledError
from rem.memory import Memory, Services
from rem.models import Entity
from rem.query.verbs.search import Searcher
from rem.search.embedder import Embedder
from rem.search.embedder_factory import try_open_embedder
from rem.search.index_worker import keep_indexed
from rem.search.indexer import IndexBacklog, Indexer, IndexProgress, IndexReport, IndexState
from rem.search.reader import Reader
from rem.search.reranker import (
    Reranker,
    make_search_reranker,
    open_reader,
    open_reranker,
)
from rem.sessions.prune import prune_idle_sessions
from rem.settings import Settings, get_settings

if TYPE_CHECKING:
    from rem.agents.service import Agents
    from rem.dreams.dreamer import Dreamer
    from rem.forget.sweep import SweepReport


class Rem:
    """An open REM. `async with Rem.open() as rem:` starts the embedded server if no other is configured.

    `for_user` returns the memory of one user. The other methods concern the whole database.
    """

    def __init__(self, database: Database, types: TypeRegistry, settings: Settings) -> None:
        self._database = database
        self._types = types
        self._settings = settings
        self._embedder = try_open_embedder(settings)
        self._indexer = Indexer(database, self._embedder, settings.search.language)
        self._reader = open_reader(settings.reranker)
        self._reranker = open_reranker(settings.reranker, self._reader)
        search_reranker = make_search_reranker(self._reranker, settings.reranker)
        self._sandbox = SqlSandbox(database, settings)
        self._audit_log = AuditLog(database, settings.audit, is_enabled=settings.writes_audit_log)
        self._services = Services(
            database=database,
            types=types,
            settings=settings,
            indexer=self._indexer,
            searcher=Searcher(
                database, self._embedder, self._indexer, search_reranker, settings.postgres.read_timeout_seconds
            ),
            sandbox=self._sandbox,
            answer_reader=_open_answer_reader(self._reader, self._reranker, settings),
            audit_log=self._audit_log,
            get_dreamer=self.dreamer,
        )
        self._agents: Agents | None = None

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings | None = None, *, on_progress: Progress | None = None) -> AsyncIterator[Rem]:
        """Open REM with the given settings or those of the environment, and close it at the end of the block."""
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
        if self._agents is not None:
            await self._agents.close()
        await self._sandbox.close()
        await self._embedder.close()
        for model in (self._reader, self._reranker):
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

    @property
    def agents(self) -> Agents:
        """The agents of this memory. They are opened on first use, because their import takes a second."""
        if self._agents is None:
            from rem.agents.service import Agents

            self._agents = Agents(self, self._settings)
        return self._agents

    def for_user(self, user: UserOrScope = None, *, tenant: str = DEFAULT_TENANT) -> Memory:
        """Return the memory of a user, given by e-mail address, id or `Scope`.

        Without a user it is the memory that the tenant shares.
        """
        email = user if isinstance(user, str) and "@" in user else None
        return Memory(self._services, Scope.for_user(user, tenant), email)

    async def resolve_session(self, context: AgentContext) -> AgentContext:
        """Return the context with the id of the session that it names. Another user cannot compute that id."""
        if context.session_name is None:
            return context
        memory = self.for_user(Scope(context.tenant_id, context.user_id))
        session_id = await memory.sessions.resolve_session_id(context.session_name)
        return context.model_copy(update={"session_id": str(session_id)})

    async def prune_if_due(self) -> int:
        """Delete sessions that were idle for MEMORY__AUTO_PRUNE_DAYS, of all users, and return their number."""
        return await prune_idle_sessions(
            lambda scope: self.for_user(scope).sessions, self._database, self._settings.memory
        )

    async def index(self, on_progress: IndexProgress | None = None, *, rescan: bool = False) -> IndexReport:
        """Index new rows of all users, and try again what was set aside after failures. `rescan` indexes all rows."""
        if rescan:
            await self._indexer.enqueue_all()
        await self._indexer.retry_failed(None)
        return await self._indexer.run(None, on_progress)

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
    def reader(self) -> Reader:
        """The model that reads rows, questions and messages."""
        return self._reader

    @property
    def answer_models(self) -> list[str]:
        """The names of the models that order the rows of answers in plain words."""
        from rem.search.cross_encoder_loader import REPLACEMENT_MODEL

        return [] if self._reranker is None else [self._reranker.name, REPLACEMENT_MODEL]

    async def check_models(self) -> str | None:
        """Run each model once, and raise its error. Return the reason if there is no embedder."""
        from rem.knowledge.tagger import get_tagger

        await get_tagger().find_names(["a text to try it"])
        if self._reranker is not None:
            await self._reranker.scores("a question", ["a text to try it"])
            await self._reader.replaces("a question", [("a newer text", "an older text")])
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

    def dreamer(self) -> Dreamer:
        """Return the dreamer, which derives moments, entities, relations and profiles."""
        from rem.dreams.dreamer import Dreamer

        settings = self._settings.dreaming
        return Dreamer(
            self._database,
            lambda scope: self.for_user(scope).store,
            self._indexer,
            self._embedder,
            settings,
            lambda: self.agents,
        )

    async def sweep(self) -> SweepReport:
        """Erase the expired rows of all users and the statements derived from them, for good."""
        from rem.forget.sweep import sweep

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

    async def rebuild_cache(self) -> RebuildReport:
        """Rebuild kv_store and edges from the entity tables."""
        return await rebuild_mirrors(self._database)

    async def check_cache(self) -> MirrorReport:
        """Compare kv_store and edges with the entity tables."""
        return await check_mirrors(self._database)


def _open_answer_reader(reader: Reader, reranker: Reranker | None, settings: Settings) -> AnswerReader | None:
    """Return what reads the rows of answers, if the settings say so."""
    if reranker is None or not settings.reranker.answer_weight:
        return None
    return AnswerReader(reader, reranker)

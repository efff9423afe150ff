"""The memory that is attacked: one row of Alice in every table, and a session, a file and an agent of hers."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID, uuid4

import asyncpg

from rem.agents.catalog import AgentCatalog
from rem.app import Rem
from rem.auth.api_keys import ApiKeys
from rem.auth.authenticator import Authenticator
from rem.db.sql import query
from rem.db.store import Store
from rem.evals.experiments import Experiments
from rem.evals.golden_sets import GoldenCase, GoldenSet
from rem.evals.targets import FunctionTarget
from rem.ingest.models import FetchedFile
from rem.jobs.queue import JobQueue
from rem.models import (
    Approval,
    Document,
    Edge,
    Entity,
    Feedback,
    Message,
    Moment,
    Ontology,
    OntologyConfig,
    Record,
    RecordKind,
    Resource,
    ToolGap,
    User,
)
from rem.models.approval import RiskLevel
from rem.models.message import Role
from rem.sessions.card_answers import CARDS_FIELD
from rem.settings import Settings

ALICE = "alice@example.com"
SECRET = "vermilion73"
"""It is in the content of every row of Alice. No answer to anyone else may contain it."""
NAME = "heliotrope"
"""It is in every name of Alice. An answer may contain it only if the request does."""
DERIVED_TABLES = {"rem.passages", "rem.search_queue"}
"""An index of rows that are compared themselves."""
AGENT_NAME = f"{NAME}-agent"
AGENT_YAML = f"""
type: object
description: You keep the word {SECRET}.
properties: {{}}
json_schema_extra:
  kind: agent
  name: {AGENT_NAME}
  version: "1.0.0"
"""


@dataclass(slots=True)
class Victim:
    """The names and ids of Alice's rows."""

    user_id: str
    session_id: UUID
    session_name: str
    message_id: UUID
    message_key: str
    card_id: str
    file_id: UUID
    run: str | None
    api_key: tuple[str, str]
    """Id and prefix of her API key."""
    login_id: str
    experiment: UUID
    dream_run: UUID
    job: int
    forget_fingerprint: str
    """Of the plan to forget her note, with which she would confirm it."""
    rows: dict[str, tuple[UUID, str]] = field(default_factory=dict)
    """One row of each table: its id and its key."""

    @property
    def identifiers(self) -> list[str]:
        """Return the keys and ids of all rows."""
        return [text for row_id, key in self.rows.values() for text in (key, str(row_id))]


async def _log_in(rem: Rem, settings: Settings) -> UUID:
    """Log Alice in, and return the id of the login."""
    authenticator = Authenticator(settings, rem.database)
    account = await authenticator.accounts.log_in(ALICE, f"{NAME} account", "default", is_admin=False)
    await authenticator.logins.create_cookie(account.user_id, "default", "google")
    (login,) = await authenticator.logins.list(account.user_id, "default")
    login_id: UUID = login["id"]
    return login_id


async def _run_experiment(rem: Rem, store: Store) -> UUID:
    """Run an experiment of Alice, and return its id."""
    case = GoldenCase(id=f"{NAME} case", input=SECRET, reference=SECRET)
    target = FunctionTarget(lambda text: text, NAME)
    experiments = Experiments(rem, store.scope)
    run = await experiments.start(GoldenSet(f"{NAME} experiment", (case,)), target, [])
    return (await experiments.complete(run, target, None)).id


async def _store_dream_run(rem: Rem, store: Store) -> UUID:
    """Store a run of dreams over Alice's memory, and return its id."""
    async with rem.database.connection() as connection:
        run_id: UUID = await connection.fetchval(
            query("dreams/dreams", "begin_run"), store.scope.tenant_id, store.scope.user_id, [NAME], None
        )
        await connection.execute(query("dreams/dreams", "end_run"), store.scope.tenant_id, run_id, "failed", {}, SECRET)
    return run_id


async def _enqueue_job(rem: Rem, store: Store) -> int:
    """Store a job of Alice that failed for good, and return its id."""
    payload = {"tenant_id": store.scope.tenant_id, "user_id": store.scope.user_id, "note": SECRET}
    async with rem.database.connection() as connection:
        job = await JobQueue(rem.database).enqueue(f"{NAME}-job", payload)
        await connection.execute("UPDATE rem_jobs.jobs SET state = 'dead' WHERE id = $1", job)
    assert job is not None
    return job


async def create_victim(rem: Rem, settings: Settings) -> Victim:
    """Store Alice's memory."""
    store, memory = rem.for_user(ALICE).store, rem.for_user(ALICE).sessions
    session = await memory.create_session(
        f"Keep {SECRET}.", {"note": SECRET}, name=f"{NAME} session", description=f"About {SECRET}"
    )
    card_id = f"card-{NAME}"
    card = {"id": card_id, "prompt": SECRET, "actions": [{"id": "ok", "title": "OK"}]}
    await store.upsert(Message(session_id=session.id, message_index=0, role=Role.USER, content=f"Say {SECRET}."))
    message = await store.upsert(
        Message(
            session_id=session.id,
            message_index=1,
            role=Role.ASSISTANT,
            content=f"I say {SECRET}.",
            metadata={CARDS_FIELD: [card]},
        )
    )
    share = await memory.share_session(session.id, "carol@example.com")
    outcome = (
        await rem.for_user(ALICE)
        .ingester(run_id=uuid4())
        .ingest(FetchedFile(f"file:///{NAME}.md", f"{NAME}.md", f"# {NAME} file\n\nThe word is {SECRET}.".encode()))
    )
    (file,) = await store.lookup(str(outcome.key), table="files")
    await AgentCatalog(settings, rem).save(AGENT_YAML, store.scope)
    (agent,) = await store.lookup(AGENT_NAME, table="schemas")
    _, key = await ApiKeys(rem.database).create(f"{NAME} key", ALICE, "default")
    login_id = await _log_in(rem, settings)
    rows: list[Entity] = [
        Resource(name=f"{NAME} note", content=SECRET, graph_edges=[Edge(dst=f"{NAME} entry", rel_type=SECRET)]),
        Record(
            kind=RecordKind.ROW, caption=SECRET, headers=[SECRET], values=[SECRET], content=SECRET, source_id=message.id
        ),
        Moment(name=f"{NAME} moment", summary=SECRET),
        Ontology(name=f"{NAME} entry", content=SECRET, extracted_data={"type": "person", "is": SECRET}),
        OntologyConfig(name=f"{NAME} rule", agent_schema=SECRET),
        User(name=f"{NAME} person", email=f"{NAME}@example.com", summary=SECRET),
        Document(content=f"{NAME} {SECRET}"),
        Feedback(session_id=session.id, comment=SECRET),
        Approval(action_type="forget", action_description=SECRET, risk_level=RiskLevel.REVERSIBLE, tool_name="forget"),
        ToolGap(agent="rem", missing_tools=[f"{NAME}_tool"], attempted_task=SECRET),
    ]
    stored = [*[await store.upsert(row) for row in rows], session, message, share, file, agent]
    return Victim(
        user_id=str(store.scope.user_id),
        session_id=session.id,
        session_name=f"{NAME} session",
        message_id=message.id,
        message_key=str(message.key),
        card_id=card_id,
        file_id=file.id,
        run=outcome.run,
        api_key=(str(key.id), key.prefix),
        login_id=str(login_id),
        experiment=await _run_experiment(rem, store),
        dream_run=await _store_dream_run(rem, store),
        job=await _enqueue_job(rem, store),
        forget_fingerprint=(await rem.for_user(ALICE).plan_forget(f"{NAME} note", mentions=True)).fingerprint,
        rows={row.entity_type.table: (row.id, str(row.key)) for row in stored},
    )


async def take_fingerprint(sql: asyncpg.Connection[asyncpg.Record], victim: Victim) -> dict[str, str | None]:
    """Return a digest of Alice's rows in every table that has an owner."""
    tables = await sql.fetch(
        "SELECT format('%I.%I', n.nspname, c.relname) AS name FROM pg_class c "
        "JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid "
        "WHERE n.nspname IN ('rem', 'rem_auth') AND c.relkind IN ('r', 'p') AND a.attname = 'user_id' ORDER BY 1"
    )
    digests = " UNION ALL ".join(
        f"SELECT '{name}', md5(string_agg(t::text, ' ' ORDER BY t::text)) FROM {name} t "
        "WHERE t.user_id = $1 AND t.tenant_id = 'default'"
        for (name,) in tables
        if name not in DERIVED_TABLES
    )
    return {str(row[0]): row[1] for row in await sql.fetch(digests, victim.user_id)}

"""Create a user with rows in every table, and with a marker in every text of these rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, get_origin
from uuid import uuid4

import asyncpg
from pydantic import Field

from rem.app import Rem
from rem.audit.entry import Action, AuditEntry
from rem.audit.log import AuditLog
from rem.auth.identity import Tier
from rem.context import Scope
from rem.db.store import Store
from rem.dreams.claims import Claim
from rem.ingest.models import FetchedFile
from rem.jobs.queue import JobQueue
from rem.models import Edge, Entity, File, Moment, Resource, Role, Session, User
from rem.rate_limits import LimitedCaller, RateLimiter
from rem.sessions.message import NewMessage
from rem.settings import AuditSettings, RateLimitSettings
from tests.dreams.sample_claims import claim_edge, claim_field, claim_moment, start_run, to_ref


class Gadget(Entity, table="gadgets"):
    """A custom entity type."""

    name: str
    notes: str = ""
    labels: list[str] = Field(default_factory=list)
    details: dict[str, Any] = Field(default_factory=dict)


_COMMON_FIELDS = frozenset(Entity.model_fields)
_ENUMS = {"processing_status", "kind", "role", "status", "risk_level", "mode"}


def fill_with_marker(model: type[Entity], mark: str, **given: Any) -> Entity:
    """Return an entity with the marker in every text, list and object field."""
    values: dict[str, Any] = {}
    for name, info in model.model_fields.items():
        annotation = str(info.annotation)
        if name in _COMMON_FIELDS or name in given or name in _ENUMS or "Literal" in annotation:
            continue
        if get_origin(info.annotation) is list and "str" in annotation:
            values[name] = [mark]
        elif "dict" in annotation or "JsonObject" in annotation:
            values[name] = {"a": [mark], mark: 1}
        elif "str" in annotation:
            values[name] = f"{mark} {name}" if name != "email" else f"{mark}@example.com"
    common = {
        "metadata": {"note": mark},
        "tags": [mark],
        "graph_edges": [Edge(dst=f"{mark} target", rel_type=f"about_{mark}", properties={"context": mark})],
    }
    return model.model_validate({**values, **common, **given})


async def create_sample_user(rem: Rem, user: str, mark: str, sql: asyncpg.Connection[asyncpg.Record]) -> Store:
    """Store rows with the marker in every table, and return the user's store."""
    if "gadgets" not in rem.for_user().store.types.models:
        await rem.register(Gadget)
    store, memory = rem.for_user(user).store, rem.for_user(user).sessions
    session = await memory.create_session(name=f"{mark} session", description=mark)
    await memory.append(
        session.id,
        [
            NewMessage(
                role=Role.USER, content=f"I told {mark} that the harbour is closed on Sunday {n}.", metadata={"m": mark}
            )
            for n in range(12)
        ],
    )
    for name, model in sorted(store.types.models.items()):
        if name in ("messages", "sessions", "shared_sessions", "users"):
            continue
        await store.upsert(fill_with_marker(model, mark, **_required_fields(name, session, mark)))
    await store.upsert(fill_with_marker(User, mark, email=user))
    await _summarise(sql, store, session, mark)
    file = (await store.find(File))[0]
    await sql.execute(
        "INSERT INTO uploads (tenant_id, file_id, content) VALUES ('default', $1, $2)", file.id, mark.encode()
    )
    note = FetchedFile(f"{mark}.md", f"file:///{mark}.md", f"# {mark} note\n\nOn [[{mark}]].\n".encode())
    await rem.for_user(user).ingester(run_id=uuid4()).ingest(note, tags=[mark])
    await _delete_and_expire_rows(store, mark)
    await rem.for_user(user).index()
    await _dream(rem, store, session, mark)
    await _enqueue_job(rem, store.scope, mark)
    await _use_the_api(rem, store.scope)
    await _log_in(sql, store.scope, user, mark)
    await sql.execute(
        "INSERT INTO forgotten_texts (tenant_id, user_id, digest) VALUES ('default', $1, sha256($2))",
        *(store.scope.user_id, mark.encode()),
    )
    await store.upsert(Resource(name=f"{mark} not indexed", content=f"{mark} waits in the queue."))
    return store


def _required_fields(table: str, session: Session, mark: str) -> dict[str, Any]:
    """Return the required fields of a type."""
    of_session = {"session_id": session.id} if table in ("feedbacks", "approvals", "tool_gaps") else {}
    if table == "records":
        return {"kind": "row", "source_id": uuid4(), "headers": [mark], "values": [mark]}
    return of_session | ({"risk_level": "reversible"} if table == "approvals" else {})


async def _summarise(sql: asyncpg.Connection[asyncpg.Record], store: Store, session: Session, mark: str) -> None:
    # An erased message leaves a counter.
    await sql.execute("DELETE FROM messages WHERE session_id = $1 AND message_index = 11", session.id)
    await sql.execute(
        "INSERT INTO approval_runs (tenant_id, user_id, approval_id, state) "
        "SELECT tenant_id, user_id, id, $2 FROM approvals WHERE user_id = $1",
        store.scope.user_id,
        f"They spoke of {mark}.",
    )
    await sql.execute(
        "WITH run AS (INSERT INTO eval_runs "
        "(tenant_id, user_id, name, number, golden_set, target, evaluators, versions, seed) "
        "VALUES ('default', $1, $2, 1, $2, '{}', '[]', '{}', 0) RETURNING id), "
        "golden AS (INSERT INTO eval_cases (tenant_id, user_id, run_id, position, case_id, golden, output) "
        "SELECT 'default', $1, id, 1, $2, to_jsonb($2::text), to_jsonb($2::text) FROM run) "
        "SELECT 1",
        *(store.scope.user_id, mark),
    )
    await sql.execute(
        "INSERT INTO eval_scores (tenant_id, user_id, run_id, position, evaluator, scores, explanation, seconds) "
        "SELECT tenant_id, user_id, run_id, position, 'exact', '{}', $2, 1 FROM eval_cases WHERE user_id = $1",
        *(store.scope.user_id, mark),
    )
    await sql.execute(
        "INSERT INTO session_summaries (tenant_id, user_id, session_id, last_index, summary) "
        "VALUES ('default', $1, $2, 3, $3)",
        store.scope.user_id,
        session.id,
        f"They spoke of {mark}.",
    )


async def _delete_and_expire_rows(store: Store, mark: str) -> None:
    deleted = await store.upsert(Resource(name=f"{mark} deleted", content=mark))
    await store.delete(deleted)
    expired_at = datetime.now(UTC) - timedelta(days=1)
    await store.upsert(Resource(name=f"{mark} expired", content=mark, expires_at=expired_at))


async def _dream(rem: Rem, store: Store, session: Session, mark: str) -> None:
    """Store statements of each kind and state."""
    notes = await store.find(Resource, {"key": await store.normalize_key(f"{mark} name")})
    me = (await store.find(User, {"user_id": store.scope.user_id}))[0]
    run = await start_run(rem, store)
    claims: list[Claim] = [
        claim_moment(f"Met {mark}", *notes, summary=f"Talked about {mark}."),
        claim_edge(notes[0], me, rel_type=f"knows_{mark}"),
        claim_field(me, "summary", f"Likes {mark}.", *notes),
    ]
    await run.store_claims("moments", to_ref(notes[0]), claims)
    await (await start_run(rem, store)).store_claims("moments", to_ref(notes[0]), claims[1:])
    await run.store_claims(
        "moments", to_ref(session), [claim_moment(f"Again {mark}", *notes, summary=f"More of {mark}.")]
    )
    refused = (await store.find(Moment, {"origin": "dream:moments"}))[0]
    await store.delete(refused)


async def _use_the_api(rem: Rem, scope: Scope) -> None:
    """Leave what requests leave: a counter, and entries of the audit log by and about the user."""
    user_id = str(scope.user_id)
    await RateLimiter(rem.database, RateLimitSettings()).count(LimitedCaller(scope.tenant_id, user_id), Tier.FREE)
    log = AuditLog(rem.database, AuditSettings(), is_enabled=True)
    await log.record(AuditEntry(Action.READ, "GET /api/v1/sessions", scope.tenant_id, user_id, client="192.0.2.7"))
    await log.record(AuditEntry(Action.ADMIN, "PATCH /api/v1/admin/users/{user}", scope.tenant_id, subject=user_id))


async def _log_in(sql: asyncpg.Connection[asyncpg.Record], scope: Scope, email: str, mark: str) -> None:
    """Store an account with a login, tokens, an API key, and a code that an MCP client has not fetched yet."""
    owner, login_id, client_id = (scope.tenant_id, scope.user_id), uuid4(), f"client of {mark}"
    await sql.execute(
        "INSERT INTO rem_auth.accounts (tenant_id, user_id, email, name) VALUES ($1, $2, $3, $4)", *owner, email, mark
    )
    await sql.execute(
        "INSERT INTO rem_auth.logins (tenant_id, user_id, id, kind, scopes, expires_at) "
        "VALUES ($1, $2, $3, 'token', '{read}', now() + interval '1 day')",
        *(*owner, login_id),
    )
    await sql.execute(
        "INSERT INTO rem_auth.refresh_tokens (token_hash, login_id, expires_at) "
        "VALUES (sha256($1), $2, now() + interval '1 day')",
        *(f"token {mark}".encode(), login_id),
    )
    await sql.execute(
        "INSERT INTO rem_auth.api_keys (tenant_id, user_id, id, name, prefix, key_hash, scopes) "
        "VALUES ($1, $2, $3, $4, $5, sha256($6), '{read}')",
        *(*owner, uuid4(), mark, f"rem_{mark}", mark.encode()),
    )
    await sql.execute(
        "INSERT INTO rem_auth.oauth_clients (id, registration) VALUES (md5($1), '{}') ON CONFLICT DO NOTHING", client_id
    )
    await sql.execute(
        "INSERT INTO rem_auth.oauth_codes (tenant_id, user_id, code_hash, client_id, request, expires_at) "
        "VALUES ($1, $2, sha256($3), md5($4), '{}', now() + interval '1 hour')",
        *(*owner, f"code {mark}".encode(), client_id),
    )


async def _enqueue_job(rem: Rem, scope: Scope, mark: str) -> None:
    await JobQueue(rem.database).enqueue(
        "dream", {"tenant_id": scope.tenant_id, "user_id": scope.user_id, "note": mark}, dedupe=mark
    )

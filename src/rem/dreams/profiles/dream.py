"""The profiles dream: fill the owner's own row of `users` with what is known about the owner.

A field that the user wrote belongs to the user: the dream neither overwrites it nor fills it again after a correction.
A user without a row gets one. It is deleted when its sources are deleted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson

from rem.db.retry import retry_when_busy
from rem.db.sql import query
from rem.dreams.claims import ClaimSource, FieldClaim, RowClaim, RowRef
from rem.dreams.extraction_model import digest_texts
from rem.dreams.profile_ids import make_profile_row_id, make_progress_id
from rem.dreams.profiles.draft import (
    PROFILE_PREFIX,
    CurrentProfile,
    FieldDraft,
    UserWrittenFields,
    draft_from_counts,
    draft_with_model,
)
from rem.dreams.profiles.facts import EarlierSources, ProfileFacts, load_facts
from rem.dreams.profiles.user_row import (
    UserRow,
    find_user_rows,
    load_user_record,
)
from rem.models import User

if TYPE_CHECKING:
    from rem.dreams.run import DreamRun

DREAM_NAME = "profiles"
MIN_ROW_SOURCES, MAX_ROW_SOURCES = 3, 5
"""With fewer sources a dreamt row gets new ones, up to the maximum."""
MAX_EARLIER_SOURCES = 300
"""A profile with more sources is not given to the model, which then drafts it from the facts alone."""
_METADATA_FIELDS = ("about", "people", "current_projects", "expertise", "topics", "activity", "preferences")
_FIELDS = (
    *("summary", "interests", "preferred_topics", "activity_level", "last_active_at"),
    *(PROFILE_PREFIX + name for name in _METADATA_FIELDS),
)
"""The fields of a profile. Each has a statement of its own, and can be corrected on its own."""


@dataclass(frozen=True, slots=True)
class _Identity:
    """Name and e-mail address of the owner."""

    name: str
    address: str | None


@dataclass(frozen=True, slots=True)
class _StoredProfile:
    """The owner's row as it is stored."""

    row: UserRow | None
    record: dict[str, Any]
    statements: list[Any]
    """The live statements of this dream about the row."""
    own: UserWrittenFields
    address: str | None


class ProfilesDream:
    """Keep the owner's own row up to date."""

    name = DREAM_NAME

    async def derive(self, run: DreamRun) -> None:
        """Store what the latest moments and messages say about the owner. Shared memory has no profile."""
        user_id = run.scope.user_id
        if user_id is None or user_id.startswith("anon:"):
            return
        await run.process_each(DREAM_NAME, [user_id], lambda _: _process_profile(run))


async def _process_profile(run: DreamRun) -> None:
    rows = await _find_own_rows(run)
    live_rows = [row for row in rows if not row.is_deleted]
    if rows and not live_rows:
        # The user deleted the profile, so there is none.
        return
    profile = await _load_profile(run, live_rows[0] if live_rows else None)
    progress = await _load_progress(run, profile.row)
    is_complete = bool(progress and progress["is_complete"])
    own_names = [profile.record.get("name") or "", (profile.address or "").partition("@")[0]]
    facts = await load_facts(run, _get_earlier_sources(profile.statements, is_complete=is_complete), own_names)
    counted = draft_from_counts(facts, profile.own)
    model_digest = _compute_digest(facts, counted, profile, "model")
    counts_digest = _compute_digest(facts, counted, profile, "counts")
    # Without a model, a profile that a model made from the same facts stays.
    current_digests = [model_digest] if run.model else [model_digest, counts_digest]
    if progress and progress["seen_index"] in current_digests and (profile.row is None or is_complete):
        return
    for other in live_rows[1:]:
        if other.is_dreamt:
            await _retract_row(run, other.id)
    row_id = await _prepare_row(run, facts, profile)
    if row_id is not None:
        drafts = counted
        if run.model is not None:
            drafts = await draft_with_model(run, facts, await _load_current_profile(run, profile), profile.own)
        drafts = {name: draft for name, draft in drafts.items() if name not in profile.own.values}
        await _store_fields(run, row_id, drafts, profile.statements)
    # The progress has an id of its own, because the row may be another one now.
    progress_ref = RowRef("users", make_progress_id(run.scope))
    await run.mark_seen(DREAM_NAME, progress_ref, seen_index=model_digest if run.model else counts_digest)


async def _find_own_rows(run: DreamRun) -> list[UserRow]:
    """Return the owner's rows, after the owner's edits of the first one are recorded."""
    rows = await find_user_rows(run.store)
    if not rows or rows[0].is_deleted:
        return rows

    async def detect_edits() -> None:
        async with run.store.transaction() as store, store.executor.connection() as connection:
            await connection.fetch(query("dreams/dreams", "detect_edits"), run.scope.tenant_id, ["users"], [rows[0].id])

    await retry_when_busy(detect_edits)
    return await find_user_rows(run.store)


async def _load_profile(run: DreamRun, row: UserRow | None) -> _StoredProfile:
    statements = await _load_statements(run, row.id) if row else []
    record = (await load_user_record(run.store, row.id) if row else None) or {}
    own = await _load_user_written(run, record, statements, row)
    # A scheduled run does not know the e-mail address. An earlier run by hand may have stored it.
    return _StoredProfile(row, record, statements, own, run.email or record.get("email"))


async def _load_statements(run: DreamRun, row_id: UUID) -> list[Any]:
    return await run.fetch_owned("dreams/profiles/profiles", "live_statements", row_id)


def _get_earlier_sources(statements: list[Any], *, is_complete: bool) -> EarlierSources:
    return EarlierSources(
        _get_source_messages(statements, PROFILE_PREFIX + "about"),
        _get_source_messages(statements, PROFILE_PREFIX + "preferences"),
        is_complete,
    )


def _get_source_messages(statements: list[Any], field: str) -> frozenset[UUID]:
    """Return the messages and remembered statements that a field is based on."""
    return frozenset(
        source_id
        for statement in statements
        if statement["name"] == field
        for table, source_id in zip(statement["source_types"], statement["source_ids"], strict=True)
        if table in ("messages", "resources")
    )


async def _load_user_written(
    run: DreamRun, record: dict[str, Any], statements: list[Any], row: UserRow | None
) -> UserWrittenFields:
    """Return the fields that the user wrote, before or after the dream."""
    if row is None or (row.is_dreamt and not statements):
        # A dreamt row without statements comes from a dump, so its fields are dreamt as well.
        return UserWrittenFields()
    refused = {name for (name,) in await run.fetch_owned("dreams/profiles/profiles", "refused_fields", row.id)}
    dreamt = {statement["name"] for statement in statements if statement["kind"] == "field"}
    values = {name: _get_field(record, name) for name in _FIELDS if name not in dreamt}
    written = {name: value for name, value in values.items() if value or name in refused}
    return UserWrittenFields(written, ClaimSource(RowRef("users", row.id), str(record.get("key"))))


def _get_field(record: dict[str, Any], field: str) -> Any:
    """Return the value of a field with dots in its name.

    If the user wrote a plain value in place of an object, return it for all fields inside that object.
    """
    value: Any = record
    for name in field.split("."):
        if not isinstance(value, dict):
            return value
        value = value.get(name)
    return value


def _compute_digest(facts: ProfileFacts, counted: dict[str, FieldDraft], profile: _StoredProfile, method: str) -> int:
    """Return a number that changes with everything a profile is made from. Nothing to do while it stays the same."""
    sources = sorted(str(source.ref.id) for source in facts.sources)
    summaries = [moment.summary for moment in facts.moments] if method == "model" else []
    row = profile.row
    identity = [str(row.id), profile.record.get("role")] if row and not row.is_dreamt else [profile.address]
    values = {name: draft.value for name, draft in counted.items()}
    parts = [values, sources, summaries, identity, profile.own.values]
    return digest_texts(method, orjson.dumps(parts, option=orjson.OPT_SORT_KEYS).decode())


async def _load_progress(run: DreamRun, row: UserRow | None) -> Any:
    rows = await run.fetch_owned(
        "dreams/profiles/profiles", "progress", make_progress_id(run.scope), row.id if row else None
    )
    return rows[0] if rows else None


async def _prepare_row(run: DreamRun, facts: ProfileFacts, profile: _StoredProfile) -> UUID | None:
    """Return the id of the owner's row, and make the row if there is none. Return None without any facts."""
    row = profile.row
    if row is not None and row.is_dreamt and profile.own.values:
        await _adopt_row(run, row.id)
    elif row is None or row.is_dreamt:
        row_id = row.id if row else make_profile_row_id(run.store)
        name = await _choose_name(run, facts, row_id)
        return await _claim_row(run, facts, row_id, profile.statements, _Identity(name, profile.address))
    return row.id


async def _adopt_row(run: DreamRun, row_id: UUID) -> None:
    async with run.store.executor.connection() as connection:
        statement = query("dreams/profiles/profiles", "adopt_row")
        await connection.execute(statement, run.scope.tenant_id, run.scope.user_id, row_id)


async def _choose_name(run: DreamRun, facts: ProfileFacts, row_id: UUID) -> str:
    """Return the name by which the owner introduced themselves; the user id without one, or if another row has it."""
    user_id, name = str(run.scope.user_id), facts.self_statements.name
    if name is None:
        return user_id
    holders = await run.fetch_owned("dreams/profiles/profiles", "other_rows_named", name, row_id)
    return user_id if holders else name


async def _claim_row(
    run: DreamRun, facts: ProfileFacts, row_id: UUID, statements: list[Any], identity: _Identity
) -> UUID | None:
    """Claim the row with a few sessions as its sources. It stays as long as one of them exists."""
    sources = [*(facts.activity.sessions if facts.activity else ()), *(moment.source for moment in facts.moments)]
    if not sources:
        await _retract_row(run, row_id)
        return None
    row_statements = [statement for statement in statements if statement["kind"] == "row"]
    subject_ids = {statement["subject_id"] for statement in row_statements}
    for statement in row_statements:
        if _Identity(statement["value"].get("name", ""), statement["value"].get("email")) != identity:
            subject = RowRef(statement["subject_type"], statement["subject_id"])
            source = ClaimSource(subject, statement["source_keys"][0])
            await run.store_claims(DREAM_NAME, source.ref, [_build_row_claim(row_id, source, identity)])
    if len(subject_ids) < MIN_ROW_SOURCES and await _has_key(run):
        new_sources = [source for source in sources if source.ref.id not in subject_ids]
        for source in new_sources[: MAX_ROW_SOURCES - len(subject_ids)]:
            await run.store_claims(DREAM_NAME, source.ref, [_build_row_claim(row_id, source, identity)])
    return row_id if await load_user_record(run.store, row_id) else None


def _build_row_claim(row_id: UUID, source: ClaimSource, identity: _Identity) -> RowClaim:
    # The empty fields are part of the claim. When the owner fills one, the row becomes the owner's own.
    user = User(id=row_id, name=identity.name, email=identity.address, role=None, tier=None, tags=[])
    return RowClaim(entity=user, sources=(source,), is_named=True)


async def _has_key(run: DreamRun) -> bool:
    async with run.store.executor.connection() as connection:
        return bool(await connection.fetchval(query("dreams/profiles/profiles", "has_key"), run.scope.user_id))


async def _retract_row(run: DreamRun, row_id: UUID) -> None:
    """End all statements about a row. A dreamt row is deleted with them."""
    statements = await _load_statements(run, row_id)
    subjects = {RowRef(statement["subject_type"], statement["subject_id"]) for statement in statements}
    for subject in sorted(subjects, key=lambda ref: (ref.type != "users", ref)):
        await run.store_claims(DREAM_NAME, subject, [])


async def _load_current_profile(run: DreamRun, profile: _StoredProfile) -> CurrentProfile:
    """Return the values of the profile for the model; without dreamt values if they have too many sources."""
    dreamt = [
        statement
        for statement in profile.statements
        if statement["kind"] == "field" and statement["name"] != "last_active_at"
    ]
    source_ids = {source_id for statement in dreamt for source_id in statement["source_ids"]}
    values: dict[str, Any] = {}
    if len(source_ids) <= MAX_EARLIER_SOURCES:
        values = {statement["name"].removeprefix(PROFILE_PREFIX): statement["value"] for statement in dreamt}
    else:
        source_ids = set()
    written = {name.removeprefix(PROFILE_PREFIX): value or [] for name, value in profile.own.values.items()}
    if profile.record.get("role"):
        written["role"] = profile.record["role"]
    if written:
        values["written_by_the_user"] = written
        source_ids.add(UUID(str(profile.record["id"])))
    rows = await run.fetch_owned("dreams/profiles/profiles", "keys", sorted(source_ids))
    return CurrentProfile(values, tuple(ClaimSource(RowRef(row["type"], row["id"]), row["key"]) for row in rows))


async def _store_fields(run: DreamRun, row_id: UUID, drafts: dict[str, FieldDraft], statements: list[Any]) -> None:
    """Store the fields that have changed. An unchanged field keeps its statement with its time and sources."""
    existing = {statement["name"]: statement for statement in statements if statement["kind"] == "field"}
    unchanged = {name for name, draft in drafts.items() if name in existing and existing[name]["value"] == draft.value}
    subject = RowRef("users", row_id)
    claims = [
        FieldClaim(
            entity=subject,
            field=name,
            value=draft.value,
            sources=draft.sources,
            confidence=draft.confidence,
            valid_from=draft.at,
        )
        for name, draft in drafts.items()
        if name not in unchanged
    ]
    await run.store_claims(DREAM_NAME, subject, claims, keep=[existing[name]["id"] for name in unchanged])

"""Profiles: what is known of a user, in the user's own row of `users`.

A field that the user wrote is the user's: it is neither written over nor filled again once it was corrected. A user
without a row of their own gets one, which goes with what it was made from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson

from rem.db.retry import retry_when_busy
from rem.db.sql import query
from rem.dreaming.claims import ClaimSource, FieldClaim, RowClaim, RowRef
from rem.dreaming.extraction_model import digest_texts
from rem.dreaming.profiles.draft import (
    PROFILE_PREFIX,
    CurrentProfile,
    FieldDraft,
    UserWrittenFields,
    draft_from_counts,
    draft_with_model,
)
from rem.dreaming.profiles.facts import EarlierSources, ProfileFacts, load_facts
from rem.dreaming.profiles.user_row import (
    UserRow,
    find_user_rows,
    load_user_record,
    make_profile_row_id,
    make_progress_id,
)
from rem.models import User

if TYPE_CHECKING:
    from rem.dreaming.run import DreamRun

DREAM_NAME = "profiles"
_PARTS = ("about", "people", "current_projects", "expertise", "topics", "activity", "preferences")
_FIELDS = (
    "summary",
    "interests",
    "preferred_topics",
    "activity_level",
    "last_active_at",
    *(PROFILE_PREFIX + x for x in _PARTS),
)
"""Each is said by itself, and can be corrected by itself."""
MIN_ROW_SOURCES, MAX_ROW_SOURCES = 3, 5
MAX_EARLIER_SOURCES = 300


class ProfilesDream:
    """Keeps the owner's own row up to date."""

    name = DREAM_NAME

    async def derive(self, night: DreamRun) -> None:
        """Say what the latest moments and messages tell of the owner. What is shared belongs to nobody."""
        user_id = night.scope.user_id
        if user_id is None or user_id.startswith("anon:"):
            return
        await night.process_each(DREAM_NAME, [user_id], lambda _: _dream_profile(night))


async def _dream_profile(night: DreamRun) -> None:
    rows = await _find_own_rows(night)
    live = [row for row in rows if not row.is_deleted]
    if rows and not live:
        # Who deleted their profile gets none.
        return
    row = live[0] if live else None
    standing = await _load_statements(night, row.id) if row else []
    record = (await load_user_record(night.store, row.id) if row else None) or {}
    # Who dreams every night does not know the address that somebody who dreamt by hand gave.
    address = night.email or record.get("email")
    own_names = [record.get("name") or "", (address or "").partition("@")[0]]
    seen = await _load_progress(night, row)
    facts = await load_facts(night, _earlier_sources(standing, is_whole=bool(seen and seen["is_whole"])), own_names)
    own = await _load_user_written(night, record, standing, row)
    counted = draft_from_counts(facts, own)
    digests = [_compute_digest(facts, counted, row, record, own, address, by) for by in ("mind", "counts")]
    enough = digests if night.model is None else digests[:1]
    if seen and seen["seen_index"] in enough and (row is None or seen["is_whole"]):
        return
    for other in live[1:]:
        if other.is_dreamt:
            await _retract_row(night, other.id)
    row_id = await _prepare_row(night, facts, row, standing, own, address)
    if row_id is not None:
        drafts = counted if night.model is None else await _draft_with_model(night, facts, record, standing, own)
        drafts = {name: draft for name, draft in drafts.items() if name not in own.values}
        await _store_fields(night, row_id, drafts, standing)
    progress = RowRef("users", make_progress_id(night.store))
    # What was seen may have another row by now, which is dreamt.
    await night.mark_seen(DREAM_NAME, progress, seen_index=digests[0 if night.model else 1])


async def _find_own_rows(night: DreamRun) -> list[UserRow]:
    """The rows of the owner, after what they corrected in the first of them is known to be theirs."""
    rows = await find_user_rows(night.store)
    if not rows or rows[0].is_deleted:
        return rows

    async def notice() -> None:
        async with night.store.transaction() as store, store.executor.connection() as connection:
            await connection.fetch(query("dreaming", "detect_edits"), night.scope.tenant_id, ["users"], [rows[0].id])

    await retry_when_busy(notice)
    return await find_user_rows(night.store)


async def _load_statements(night: DreamRun, row_id: UUID) -> list[Any]:
    scope = night.scope
    async with night.store.executor.connection() as connection:
        return list(await connection.fetch(query("dream_profiles", "standing"), scope.tenant_id, scope.user_id, row_id))


def _earlier_sources(standing: list[Any], *, is_whole: bool) -> EarlierSources:
    return EarlierSources(
        _source_messages(standing, PROFILE_PREFIX + "about"),
        _source_messages(standing, PROFILE_PREFIX + "preferences"),
        is_whole,
    )


def _source_messages(standing: list[Any], field: str) -> frozenset[UUID]:
    """The messages that a field was made from."""
    places = [
        place
        for said in standing
        if said["name"] == field
        for place in zip(said["source_types"], said["source_ids"], strict=True)
    ]
    return frozenset(source_id for kind, source_id in places if kind == "messages")


async def _load_user_written(
    night: DreamRun, record: dict[str, Any], standing: list[Any], row: UserRow | None
) -> UserWrittenFields:
    """What the user wrote, before the dream came or instead of it."""
    if row is None or (row.is_dreamt and not standing):
        # Without a statement a dreamt row came from a dump, and so did what is in it.
        return UserWrittenFields()
    scope = night.scope
    async with night.store.executor.connection() as connection:
        found = await connection.fetch(query("dream_profiles", "refused"), scope.tenant_id, scope.user_id, row.id)
    refused = {name for (name,) in found}
    dreamt = {said["name"] for said in standing if said["kind"] == "field"}
    values = {name: _get_field(record, name) for name in _FIELDS if name not in dreamt}
    written = {name: value for name, value in values.items() if value or name in refused}
    return UserWrittenFields(written, ClaimSource(RowRef("users", row.id), str(record.get("key"))))


def _get_field(record: dict[str, Any], field: str) -> Any:
    """What a field says. Who wrote something else than an object where the parts are has written all of them."""
    value: Any = record
    for name in field.split("."):
        if not isinstance(value, dict):
            return value
        value = value.get(name)
    return value


def _compute_digest(
    facts: ProfileFacts,
    counted: dict[str, FieldDraft],
    row: UserRow | None,
    record: dict[str, Any],
    own: UserWrittenFields,
    address: str | None,
    by: str,
) -> int:
    """What stands for all that a profile is made from. Nothing new in it: nothing to do."""
    sources = sorted(str(source.ref.id) for source in facts.sources)
    said = [moment.summary for moment in facts.moments] if by == "mind" else []
    who = [str(row.id), record.get("role")] if row and not row.is_dreamt else [address]
    values = {name: draft.value for name, draft in counted.items()}
    whole = orjson.dumps([values, sources, said, who, own.values], option=orjson.OPT_SORT_KEYS).decode()
    return digest_texts(by, whole)


async def _load_progress(night: DreamRun, row: UserRow | None) -> Any:
    scope, place = night.scope, (make_progress_id(night.store), row.id if row else None)
    async with night.store.executor.connection() as connection:
        return await connection.fetchrow(query("dream_profiles", "seen"), scope.tenant_id, scope.user_id, *place)


async def _prepare_row(
    night: DreamRun,
    facts: ProfileFacts,
    row: UserRow | None,
    standing: list[Any],
    own: UserWrittenFields,
    address: str | None,
) -> UUID | None:
    """The row of the owner, made if there is none; None if there is nothing to say of the owner."""
    if row is not None and row.is_dreamt and own.values:
        await _adopt_row(night, row.id)
    elif row is None or row.is_dreamt:
        return await _claim_row(night, facts, row.id if row else make_profile_row_id(night.store), standing, address)
    return row.id


async def _adopt_row(night: DreamRun, row_id: UUID) -> None:
    scope = night.scope
    async with night.store.executor.connection() as connection:
        await connection.execute(query("dream_profiles", "adopt"), scope.tenant_id, scope.user_id, row_id)


async def _claim_row(
    night: DreamRun, facts: ProfileFacts, row_id: UUID, standing: list[Any], address: str | None
) -> UUID | None:
    """The row, with a few conversations that speak for it: it stays as long as one of them does."""
    sources = [*(facts.activity.sessions if facts.activity else ()), *(moment.source for moment in facts.moments)]
    if not sources:
        await _retract_row(night, row_id)
        return None
    witnesses = {said["subject_id"] for said in standing if said["kind"] == "row"}
    for said in standing:
        if said["kind"] == "row" and said["value"].get("email") != address:
            source = ClaimSource(RowRef(said["subject_type"], said["subject_id"]), said["source_keys"][0])
            await night.store_claims(DREAM_NAME, source.ref, [_build_row_claim(night, row_id, source, address)])
    if len(witnesses) < MIN_ROW_SOURCES and await _has_key(night):
        fresh = [source for source in sources if source.ref.id not in witnesses]
        for source in fresh[: MAX_ROW_SOURCES - len(witnesses)]:
            await night.store_claims(DREAM_NAME, source.ref, [_build_row_claim(night, row_id, source, address)])
    return row_id if await load_user_record(night.store, row_id) else None


def _build_row_claim(night: DreamRun, row_id: UUID, source: ClaimSource, address: str | None) -> RowClaim:
    # That the rest is empty is a part of it: when the owner fills it in, the row is the owner's own.
    user = User(id=row_id, name=str(night.scope.user_id), email=address, role=None, tier=None, tags=[])
    return RowClaim(entity=user, sources=(source,), is_named=True)


async def _has_key(night: DreamRun) -> bool:
    async with night.store.executor.connection() as connection:
        return bool(await connection.fetchval(query("dream_profiles", "has_key"), night.scope.user_id))


async def _retract_row(night: DreamRun, row_id: UUID) -> None:
    """End all that is said of a row; one that was dreamt goes with it."""
    subjects = {RowRef(said["subject_type"], said["subject_id"]) for said in await _load_statements(night, row_id)}
    for subject in sorted(subjects, key=lambda ref: (ref.type != "users", ref)):
        await night.store_claims(DREAM_NAME, subject, [])


async def _draft_with_model(
    night: DreamRun, facts: ProfileFacts, record: dict[str, Any], standing: list[Any], own: UserWrittenFields
) -> dict[str, FieldDraft]:
    return await draft_with_model(night, facts, await _load_current_profile(night, record, standing, own), own)


async def _load_current_profile(
    night: DreamRun, record: dict[str, Any], standing: list[Any], own: UserWrittenFields
) -> CurrentProfile:
    """What the profile says by now; nothing of it if it was made from too much, so that it is built anew."""
    told = [said for said in standing if said["kind"] == "field" and said["name"] != "last_active_at"]
    ids = {source_id for said in told for source_id in said["source_ids"]}
    values: dict[str, Any] = {}
    if len(ids) <= MAX_EARLIER_SOURCES:
        values = {said["name"].removeprefix(PROFILE_PREFIX): said["value"] for said in told}
    else:
        ids = set()
    written = {name.removeprefix(PROFILE_PREFIX): value or [] for name, value in own.values.items()}
    if record.get("role"):
        written["role"] = record["role"]
    if written:
        values["written_by_the_user"] = written
        ids.add(UUID(str(record["id"])))
    scope = night.scope
    async with night.store.executor.connection() as connection:
        rows = await connection.fetch(query("dream_profiles", "keys"), scope.tenant_id, scope.user_id, sorted(ids))
    return CurrentProfile(values, tuple(ClaimSource(RowRef(row["type"], row["id"]), row["key"]) for row in rows))


async def _store_fields(night: DreamRun, row_id: UUID, drafts: dict[str, FieldDraft], standing: list[Any]) -> None:
    """Say what is new. What a field says already stays said as it was, from when and from what it was."""
    said = {statement["name"]: statement for statement in standing if statement["kind"] == "field"}
    same = {name for name, draft in drafts.items() if name in said and said[name]["value"] == draft.value}
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
        if name not in same
    ]
    await night.store_claims(DREAM_NAME, subject, claims, keep=[said[name]["id"] for name in same])

"""Profiles: what is known of a user, in the user's own row of `users`.

A field that the user wrote is the user's: it is neither written over nor filled again once it was corrected. A user
without a row of their own gets one, which goes with what it was made from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson

from rem.db.sql import query
from rem.dreaming.claim import FieldClaim, Ref, RowClaim, Source
from rem.dreaming.material import digest_of
from rem.dreaming.profiles.draft import PROFILE, Drafted, Own, Present, by_counts, by_mind
from rem.dreaming.profiles.facts import Earlier, ProfileFacts, read_facts
from rem.dreaming.profiles.own_row import OwnRow, id_of_progress, id_to_dream, own_rows, record_of
from rem.memory.retry import when_busy
from rem.models import User

if TYPE_CHECKING:
    from rem.dreaming.night import Night

_NAME = "profiles"
_PARTS = ("about", "people", "current_projects", "expertise", "topics", "activity", "preferences")
_FIELDS = (
    "summary",
    "interests",
    "preferred_topics",
    "activity_level",
    "last_active_at",
    *(PROFILE + x for x in _PARTS),
)
"""Each is said by itself, and can be corrected by itself."""
_FEWEST_WITNESSES, _MOST_WITNESSES = 3, 5
_MOST_EARLIER = 300


class Profiles:
    """Keeps the owner's own row up to date."""

    name = _NAME

    async def dream(self, night: Night) -> None:
        """Say what the latest moments and messages tell of the owner. What is shared belongs to nobody."""
        user_id = night.scope.user_id
        if user_id is None or user_id.startswith("anon:"):
            return
        await night.each(_NAME, [user_id], lambda _: _dream(night))


async def _dream(night: Night) -> None:
    rows = await _own_rows(night)
    live = [row for row in rows if not row.is_deleted]
    if rows and not live:
        # Who deleted their profile gets none.
        return
    row = live[0] if live else None
    standing = await _standing(night, row.id) if row else []
    record = (await record_of(night.store, row.id) if row else None) or {}
    # Who dreams every night does not know the address that somebody who dreamt by hand gave.
    address = night.address or record.get("email")
    own_names = [record.get("name") or "", (address or "").partition("@")[0]]
    seen = await _seen(night, row)
    facts = await read_facts(night, _earlier(standing, is_whole=bool(seen and seen["is_whole"])), own_names)
    own = await _own(night, record, standing, row)
    counted = by_counts(facts, own)
    digests = [_digest(facts, counted, row, record, own, address, by) for by in ("mind", "counts")]
    enough = digests if night.mind is None else digests[:1]
    if seen and seen["seen_index"] in enough and (row is None or seen["is_whole"]):
        return
    for other in live[1:]:
        if other.is_dreamt:
            await _let_go(night, other.id)
    row_id = await _row_to_write(night, facts, row, standing, own, address)
    if row_id is not None:
        drafts = counted if night.mind is None else await _by_mind(night, facts, record, standing, own)
        drafts = {name: draft for name, draft in drafts.items() if name not in own.values}
        await _say(night, row_id, drafts, standing)
    progress = Ref("users", id_of_progress(night.store))
    # What was seen may have another row by now, which is dreamt.
    await night.mark_seen(_NAME, progress, seen_index=digests[0 if night.mind else 1])


async def _own_rows(night: Night) -> list[OwnRow]:
    """The rows of the owner, after what they corrected in the first of them is known to be theirs."""
    rows = await own_rows(night.store)
    if not rows or rows[0].is_deleted:
        return rows

    async def notice() -> None:
        async with night.store.transaction() as store, store.executor.connection() as connection:
            await connection.fetch(query("dreaming", "notice"), night.scope.tenant_id, ["users"], [rows[0].id])

    await when_busy(notice)
    return await own_rows(night.store)


async def _standing(night: Night, row_id: UUID) -> list[Any]:
    scope = night.scope
    async with night.store.executor.connection() as connection:
        return list(await connection.fetch(query("profiles_dream", "standing"), scope.tenant_id, scope.user_id, row_id))


def _earlier(standing: list[Any], *, is_whole: bool) -> Earlier:
    return Earlier(_messages(standing, PROFILE + "about"), _messages(standing, PROFILE + "preferences"), is_whole)


def _messages(standing: list[Any], field: str) -> frozenset[UUID]:
    """The messages that a field was made from."""
    places = [
        place
        for said in standing
        if said["name"] == field
        for place in zip(said["source_types"], said["source_ids"], strict=True)
    ]
    return frozenset(source_id for kind, source_id in places if kind == "messages")


async def _own(night: Night, record: dict[str, Any], standing: list[Any], row: OwnRow | None) -> Own:
    """What the user wrote, before the dream came or instead of it."""
    if row is None or (row.is_dreamt and not standing):
        # Without a statement a dreamt row came from a dump, and so did what is in it.
        return Own()
    scope = night.scope
    async with night.store.executor.connection() as connection:
        found = await connection.fetch(query("profiles_dream", "refused"), scope.tenant_id, scope.user_id, row.id)
    refused = {name for (name,) in found}
    dreamt = {said["name"] for said in standing if said["kind"] == "field"}
    values = {name: _value(record, name) for name in _FIELDS if name not in dreamt}
    written = {name: value for name, value in values.items() if value or name in refused}
    return Own(written, Source(Ref("users", row.id), str(record.get("key"))))


def _value(record: dict[str, Any], field: str) -> Any:
    """What a field says. Who wrote something else than an object where the parts are has written all of them."""
    value: Any = record
    for name in field.split("."):
        if not isinstance(value, dict):
            return value
        value = value.get(name)
    return value


def _digest(
    facts: ProfileFacts,
    counted: dict[str, Drafted],
    row: OwnRow | None,
    record: dict[str, Any],
    own: Own,
    address: str | None,
    by: str,
) -> int:
    """What stands for all that a profile is made from. Nothing new in it: nothing to do."""
    sources = sorted(str(source.ref.id) for source in facts.sources)
    said = [moment.summary for moment in facts.moments] if by == "mind" else []
    who = [str(row.id), record.get("role")] if row and not row.is_dreamt else [address]
    values = {name: draft.value for name, draft in counted.items()}
    whole = orjson.dumps([values, sources, said, who, own.values], option=orjson.OPT_SORT_KEYS).decode()
    return digest_of(by, whole)


async def _seen(night: Night, row: OwnRow | None) -> Any:
    scope, place = night.scope, (id_of_progress(night.store), row.id if row else None)
    async with night.store.executor.connection() as connection:
        return await connection.fetchrow(query("profiles_dream", "seen"), scope.tenant_id, scope.user_id, *place)


async def _row_to_write(
    night: Night,
    facts: ProfileFacts,
    row: OwnRow | None,
    standing: list[Any],
    own: Own,
    address: str | None,
) -> UUID | None:
    """The row of the owner, made if there is none; None if there is nothing to say of the owner."""
    if row is not None and row.is_dreamt and own.values:
        await _adopt(night, row.id)
    elif row is None or row.is_dreamt:
        return await _witnessed(night, facts, row.id if row else id_to_dream(night.store), standing, address)
    return row.id


async def _adopt(night: Night, row_id: UUID) -> None:
    scope = night.scope
    async with night.store.executor.connection() as connection:
        await connection.execute(query("profiles_dream", "adopt"), scope.tenant_id, scope.user_id, row_id)


async def _witnessed(
    night: Night, facts: ProfileFacts, row_id: UUID, standing: list[Any], address: str | None
) -> UUID | None:
    """The row, with a few conversations that speak for it: it stays as long as one of them does."""
    sources = [*(facts.activity.sessions if facts.activity else ()), *(moment.source for moment in facts.moments)]
    if not sources:
        await _let_go(night, row_id)
        return None
    witnesses = {said["subject_id"] for said in standing if said["kind"] == "row"}
    for said in standing:
        if said["kind"] == "row" and said["value"].get("email") != address:
            source = Source(Ref(said["subject_type"], said["subject_id"]), said["source_keys"][0])
            await night.say(_NAME, source.ref, [_claim(night, row_id, source, address)])
    if len(witnesses) < _FEWEST_WITNESSES and await _has_key(night):
        fresh = [source for source in sources if source.ref.id not in witnesses]
        for source in fresh[: _MOST_WITNESSES - len(witnesses)]:
            await night.say(_NAME, source.ref, [_claim(night, row_id, source, address)])
    return row_id if await record_of(night.store, row_id) else None


def _claim(night: Night, row_id: UUID, source: Source, address: str | None) -> RowClaim:
    # That the rest is empty is a part of it: when the owner fills it in, the row is the owner's own.
    user = User(id=row_id, name=str(night.scope.user_id), email=address, role=None, tier=None, tags=[])
    return RowClaim(entity=user, sources=(source,), is_named=True)


async def _has_key(night: Night) -> bool:
    async with night.store.executor.connection() as connection:
        return bool(await connection.fetchval(query("profiles_dream", "has_key"), night.scope.user_id))


async def _let_go(night: Night, row_id: UUID) -> None:
    """End all that is said of a row; one that was dreamt goes with it."""
    subjects = {Ref(said["subject_type"], said["subject_id"]) for said in await _standing(night, row_id)}
    for subject in sorted(subjects, key=lambda ref: (ref.type != "users", ref)):
        await night.say(_NAME, subject, [])


async def _by_mind(
    night: Night, facts: ProfileFacts, record: dict[str, Any], standing: list[Any], own: Own
) -> dict[str, Drafted]:
    return await by_mind(night, facts, await _present(night, record, standing, own), own)


async def _present(night: Night, record: dict[str, Any], standing: list[Any], own: Own) -> Present:
    """What the profile says by now; nothing of it if it was made from too much, so that it is built anew."""
    told = [said for said in standing if said["kind"] == "field" and said["name"] != "last_active_at"]
    ids = {source_id for said in told for source_id in said["source_ids"]}
    values: dict[str, Any] = {}
    if len(ids) <= _MOST_EARLIER:
        values = {said["name"].removeprefix(PROFILE): said["value"] for said in told}
    else:
        ids = set()
    written = {name.removeprefix(PROFILE): value or [] for name, value in own.values.items()}
    if record.get("role"):
        written["role"] = record["role"]
    if written:
        values["written_by_the_user"] = written
        ids.add(UUID(str(record["id"])))
    scope = night.scope
    async with night.store.executor.connection() as connection:
        rows = await connection.fetch(query("profiles_dream", "keys"), scope.tenant_id, scope.user_id, sorted(ids))
    return Present(values, tuple(Source(Ref(row["type"], row["id"]), row["key"]) for row in rows))


async def _say(night: Night, row_id: UUID, drafts: dict[str, Drafted], standing: list[Any]) -> None:
    """Say what is new. What a field says already stays said as it was, from when and from what it was."""
    said = {statement["name"]: statement for statement in standing if statement["kind"] == "field"}
    same = {name for name, draft in drafts.items() if name in said and said[name]["value"] == draft.value}
    subject = Ref("users", row_id)
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
    await night.say(_NAME, subject, claims, keep=[said[name]["id"] for name in same])

"""MomentsDream: derives moments from sessions, dated notes and files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rem.dreams.claims import Claim, ClaimSource, EdgeClaim, FieldClaim, RowRef
from rem.dreams.moments.draft import MomentDraft, draft_episode, draft_file, draft_mail, draft_note
from rem.dreams.moments.episodes import LOOKAHEAD_MESSAGES, MAX_EPISODE_MESSAGES, Episode, split_into_episodes
from rem.dreams.moments.files import is_mail
from rem.dreams.moments.model_extraction import extract_moments
from rem.dreams.moments.people import KnownPeople
from rem.dreams.moments.writer import DREAM_NAME, MAX_MESSAGE_CHARS, MomentWriter
from rem.dreams.run import DreamRun, PendingSession, SourceMessage
from rem.dreams.text.statements import KINDS_WITHOUT_STATEMENTS, find_kind, mask_other_kinds
from rem.models import Edge, Resource

if TYPE_CHECKING:
    from rem.search.embedder import Vector


PAGE_MESSAGES = 1000
"""Messages that are read at once."""
RESCAN_PAGE_MESSAGES = 4 * MAX_EPISODE_MESSAGES
"""The same for a range in the middle of a session: the episodes after it are soon the same as before."""
LOOKBACK_MESSAGES = 2 * MAX_EPISODE_MESSAGES
"""Messages before a new one among which the last safe start of an episode is looked for."""
MAX_PASSES = 3
"""Reading one subject may let another one be read again; it ends after so many passes."""
MAX_FILES_PER_PAUSE = 20
"""More files within one pause are a bulk import, and no event."""
FILE_PARTS = 3
MAIL_PARTS = 8
"""Many recipients may come before the body."""
MAX_PART_CHARS = 4000
MAX_MODEL_CHARS = 16_000
"""Characters of a session that a model reads at once."""


class MomentsDream:
    """Derives what happened, when, with whom and about what."""

    name = DREAM_NAME

    def __init__(self, after_writing: Callable[[DreamRun], Awaitable[None]] | None = None) -> None:
        """Create the dream. `after_writing` is called when all moments are stored and linked with each other."""
        self._after_writing = after_writing

    async def derive(self, run: DreamRun) -> None:
        """Store the moments of new messages, notes and files, and link them in the order of time."""
        moments = _MomentsRun(run, await KnownPeople.load(run.store))
        await moments.rescan_for_new_names()
        for _ in range(MAX_PASSES):
            moments.writer.needs_another_pass = False
            await run.process_each(DREAM_NAME, await run.fetch_pending_sessions(DREAM_NAME), moments.process_session)
            await run.process_each(DREAM_NAME, await moments.fetch_new_notes(), moments.process_note)
            await run.process_each(DREAM_NAME, await moments.fetch_new_files(), moments.process_file)
            if not moments.writer.needs_another_pass:
                break
        await link_moments(run)
        if self._after_writing is not None:
            await self._after_writing(run)


class _MomentsRun:
    """Derives the moments of one run."""

    def __init__(self, run: DreamRun, people: KnownPeople) -> None:
        self._run = run
        self._people = people
        self._pause = timedelta(minutes=run.settings.pause_minutes)
        self.writer = MomentWriter(run)

    async def rescan_for_new_names(self) -> None:
        """Let messages and texts be read again that mention an entity which is known since this run."""
        await self._fetch("rescan_for_new_names", self._run.run_id)

    async def process_session(self, session: PendingSession) -> None:
        """Store the moments of new messages, and of ranges that have lost some of their messages or statements."""
        for first, last in _merge_near_ranges(session.rescan_ranges):
            await self._process_messages(session, first, last)
        if session.has_new_messages:
            await self._process_messages(session, session.seen_index + 1, None)

    async def _process_messages(self, session: PendingSession, first: int, last: int | None) -> None:
        """Store the moments from message `first` to `last` or to the end, and all later ones that change by that."""
        start = await self._find_safe_start(session.id, first)
        overlapping = (await self._fetch("start_of_overlapping_moment", session.id, start))[0][0]
        start = start if overlapping is None else min(start, int(overlapping))
        page_size = PAGE_MESSAGES if last is None else RESCAN_PAGE_MESSAGES
        next_index: int | None = start
        unfinished: list[SourceMessage] = []
        while next_index is not None:
            page = await self._fetch_page(session.id, next_index, page_size)
            next_index = page.next_index
            if last is None:
                self._run.skipped.update(kind for index, kind in page.skipped if index >= first)
            is_last_page = next_index is None
            messages = [*unfinished, *page.messages]
            episodes = split_into_episodes(messages, await self._fetch_vectors(messages), self._pause)
            if not is_last_page:
                episodes = _drop_unfinished(episodes)
            end = None if last is None else await self._find_unchanged_start(session.id, episodes, start, last)
            if end is not None:
                episodes = [episode for episode in episodes if episode.first_index < end]
            seen_to = max(session.last_index, last or 0) if end is None else max(end - 1, first)
            is_session_end = is_last_page and end is None
            if episodes or is_last_page or end is not None:
                await self._write_episodes(session, (min(start, first), seen_to), start, episodes, end, is_session_end)
            if end is not None:
                return
            start = episodes[-1].last_index + 1 if episodes else start
            unfinished = [message for message in messages if message.index >= start]

    async def _find_unchanged_start(
        self, session_id: UUID, episodes: Sequence[Episode], start: int, last: int
    ) -> int | None:
        """Return the first message after `last` at which both an episode and an existing moment begin.

        From there on, all episodes are the same as before. Return None if there is no such message.
        """
        if not episodes:
            return None
        moments = await self._fetch("ranges_of_moments", session_id, start, episodes[-1].last_index)
        starts = {row["first_index"] for row in moments}
        for episode in episodes:
            index = episode.first_index
            is_inside = any(row["first_index"] < index <= row["last_index"] for row in moments)
            if index > last and index in starts and not is_inside:
                return index
        return None

    async def _write_episodes(
        self,
        session: PendingSession,
        seen_range: tuple[int, int],
        start: int,
        episodes: Sequence[Episode],
        end: int | None,
        is_session_end: bool,
    ) -> None:
        """Store the moments of episodes in batches, each together with the mark that its messages are seen.

        The moments from `start` to before `end` are replaced; without `end`, to the last episode or, with
        `is_session_end`, to the end of the session.
        """
        batches = _split_for_model(episodes) if self._run.model is not None else [list(episodes)]
        for number, batch in enumerate(batches):
            is_last = number == len(batches) - 1
            is_end = is_session_end and is_last
            last_index = batch[-1].last_index if batch else -1
            drafts = await self._draft_episodes(session, batch)
            replaced_to = end if is_last and end is not None else last_index + 1
            replaced = await self.writer.fetch_existing(session.id, start, None if is_end else replaced_to)
            own_ids = {message.id for episode in batch for message in episode.messages}
            seen_index = max(session.seen_index, last_index, session.last_index if is_end else last_index)
            is_whole_range = is_end or (is_last and end is not None)
            batch_range = seen_range if is_whole_range else (seen_range[0], max(last_index, seen_range[0]))
            await self.writer.write(session.ref, drafts, replaced, own_ids, seen_index, batch_range)
            start = last_index + 1

    async def _draft_episodes(self, session: PendingSession, episodes: Sequence[Episode]) -> list[MomentDraft]:
        meaningful = [episode for episode in episodes if episode.is_meaningful]
        if self._run.model is not None and meaningful:
            return await extract_moments(self._run, meaningful, session.id)
        drafts = (draft_episode(episode, session.id, self._people) for episode in meaningful)
        return [draft for draft in drafts if draft is not None]

    async def _find_safe_start(self, session_id: UUID, index: int) -> int:
        """Return the latest message up to `index` at which an episode begins, whatever messages follow `index`."""
        if index <= 0:
            return 0
        following = (await self._fetch_page(session_id, index, LOOKBACK_MESSAGES)).messages
        at = following[0].created_at if following else None
        start = index
        before: list[int] = []
        async for message in self._iterate_back(session_id, index - 1):
            if at is not None and abs(at - message.created_at) > self._pause:
                return start
            at, start = message.created_at, message.index
            before.append(message.index)
            if len(before) == LOOKBACK_MESSAGES:
                break
        # There is no pause. A topic change with enough messages after it is final.
        final = before[LOOKAHEAD_MESSAGES - 1] if len(before) >= LOOKAHEAD_MESSAGES else -1
        known = (await self._fetch("start_of_last_moment", session_id, final))[0][0]
        return int(known or 0) if known is not None or len(before) < LOOKBACK_MESSAGES else start

    async def _iterate_back(self, session_id: UUID, last: int) -> AsyncIterator[SourceMessage]:
        """Yield the messages with statements up to an index, latest first."""
        while True:
            rows = await self._fetch("messages_before", session_id, last, LOOKBACK_MESSAGES, MAX_MESSAGE_CHARS)
            for message in _select_statements(rows):
                yield message
            if len(rows) < LOOKBACK_MESSAGES:
                return
            last = rows[-1]["message_index"] - 1

    async def _fetch_page(self, session_id: UUID, start: int, limit: int) -> _Page:
        rows = await self._fetch("messages_from", session_id, start, limit, MAX_MESSAGE_CHARS)
        next_index = rows[-1]["message_index"] + 1 if len(rows) == limit else None
        messages = _select_statements(rows)
        read = {message.index for message in messages}
        skipped = [
            (
                row["message_index"],
                row["kind"] if row["kind"] in KINDS_WITHOUT_STATEMENTS else find_kind(row["content"]),
            )
            for row in rows
            if row["message_index"] not in read
        ]
        return _Page(messages, next_index, skipped)

    async def _fetch_vectors(self, messages: Sequence[SourceMessage]) -> Mapping[UUID, Vector] | None:
        """Return the indexed vectors of messages by id, or None if nothing is embedded."""
        import numpy as np

        message_ids = [message.id for message in messages]
        rows = await self._run.fetch("dreams/moments/moments", "message_vectors", message_ids)
        return {message_id: np.array(vector, dtype=np.float32) for message_id, vector in rows} or None

    async def fetch_new_notes(self) -> list[Resource]:
        """Return the texts with a time that the dream has not seen in their current version."""
        rows = await self._fetch("new_notes", self._run.settings.max_sources)
        notes = [Resource.from_row(row) for (row,) in rows]
        for note in notes:
            self._run.remember_version(DREAM_NAME, RowRef("resources", note.id), note.revision)
        return notes

    async def process_note(self, note: Resource) -> None:
        """Store the moment of a note."""
        ref = RowRef("resources", note.id)
        await self._write_draft(ref, draft_note(note, ClaimSource(ref, str(note.key)), self._people))

    async def fetch_new_files(self) -> list[Any]:
        """Return the ingested files that the dream has not seen in their current version."""
        files = await self._fetch("new_files", self._run.settings.max_sources, self._pause, MAX_FILES_PER_PAUSE + 1)
        for file in files:
            self._run.remember_version(DREAM_NAME, RowRef("files", file["id"]), file["updated_at"])
        return files

    async def process_file(self, file: Any) -> None:
        """Store the moment of a file or a mail, unless it came with many others."""
        is_bulk = file["nearby_count"] > MAX_FILES_PER_PAUSE
        await self._write_draft(RowRef("files", file["id"]), None if is_bulk else await self._draft_file(file))

    async def _draft_file(self, file: Any) -> MomentDraft | None:
        name, source = file["name"], ClaimSource(RowRef("files", file["id"]), file["key"])
        count = MAIL_PARTS if is_mail(name) else FILE_PARTS
        rows = await self._fetch("first_parts_of_file", str(file["id"]), count, MAX_PART_CHARS)
        parts = [
            (ClaimSource(RowRef("resources", row["id"]), row["key"]), _get_separator(previous, row) + row["content"])
            for previous, row in zip([None, *rows], rows, strict=False)
        ]
        if parts and is_mail(name):
            return draft_mail(name, rows[0]["timestamp"] or file["created_at"], source, parts, self._people)
        return draft_file(name, file["created_at"], source, parts, self._people)

    async def _write_draft(self, ref: RowRef, draft: MomentDraft | None) -> None:
        drafts = [draft] if draft is not None else []
        own_ids = draft.source_ids if draft is not None else {ref.id}
        await self.writer.write(ref, drafts, await self.writer.fetch_existing(ref.id), own_ids)

    async def _fetch(self, name: str, *parameters: Any) -> list[Any]:
        return await self._run.fetch_owned("dreams/moments/moments", name, *parameters)


@dataclass(frozen=True, slots=True)
class _Page:
    """Messages of a session that were read at once."""

    messages: list[SourceMessage]
    """Those with statements."""
    next_index: int | None
    """Where the next page begins; None if there is none."""
    skipped: list[tuple[int, str]]
    """Index and kind of each message without a statement."""


def _select_statements(rows: Iterable[Any]) -> list[SourceMessage]:
    """Return the messages with statements, and nothing but these statements in them."""
    messages = []
    for row in rows:
        text = mask_other_kinds(row["content"], row["kind"])
        if text.strip():
            messages.append(
                SourceMessage(row["id"], row["key"], row["message_index"], text, row["metadata"], row["created_at"])
            )
    return messages


def _drop_unfinished(episodes: list[Episode]) -> list[Episode]:
    """Return the episodes that the messages of the next page cannot change."""
    finished = list(episodes)
    message_count = sum(len(episode.messages) for episode in episodes)
    while len(finished) > 1:
        messages_after = message_count - sum(len(episode.messages) for episode in finished[:-1])
        if messages_after >= LOOKAHEAD_MESSAGES:
            break
        finished.pop()
    return finished[:-1]


def _get_separator(previous: Any, part: Any) -> str:
    """Return the white space between two parts of a file: a line break inside of a paragraph, else an empty line."""
    end, start = (previous["metadata"].get("end") if previous else None), part["metadata"].get("start")
    return "\n" if isinstance(end, int) and start == end + 1 else "\n\n"


def _merge_near_ranges(ranges: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Return ranges of messages from first to last, with those near to each other merged."""
    merged: list[tuple[int, int]] = []
    for first, last in ranges:
        if merged and first - merged[-1][1] <= MAX_EPISODE_MESSAGES:
            merged[-1] = merged[-1][0], last
        else:
            merged.append((first, last))
    return merged


def _split_for_model(episodes: Sequence[Episode]) -> list[list[Episode]]:
    """Return episodes in batches that a model reads at once; at least one batch, which marks the messages as seen."""
    batches: list[list[Episode]] = [[]]
    chars = 0
    for episode in episodes:
        if batches[-1] and chars + episode.chars > MAX_MODEL_CHARS:
            batches.append([])
            chars = 0
        batches[-1].append(episode)
        chars += episode.chars
    return batches


@dataclass(frozen=True, slots=True)
class _LinkedMoment:
    """A moment in the order of time."""

    id: UUID
    key: str
    starts_at: datetime
    origin: str
    session_id: UUID | None
    resource_ids: list[UUID]

    @property
    def ref(self) -> RowRef:
        return RowRef("moments", self.id)

    @property
    def source(self) -> ClaimSource:
        return ClaimSource(self.ref, self.key)

    @property
    def is_derived(self) -> bool:
        return self.origin == f"dream:{DREAM_NAME}"


async def link_moments(run: DreamRun) -> None:
    """Link the new and changed moments, and the moments that directly follow one of them."""
    chain = _MomentChain(run)
    moments = await chain.fetch_unlinked()
    unlinked_ids = {moment.id for moment in moments}
    for moment in moments:
        next_moment = await chain.fetch_next(moment)
        if next_moment is not None and next_moment.id not in unlinked_ids:
            # Before the moment itself, which is marked as seen when everything about it is done.
            await chain.link(next_moment)
        await chain.link(moment)


class _MomentChain:
    """The moments of an owner in the order of time."""

    def __init__(self, run: DreamRun) -> None:
        self._run = run

    async def fetch_unlinked(self) -> list[_LinkedMoment]:
        """Return the moments that have not been linked in their current version, earliest first."""
        rows = await self._run.fetch_owned("dreams/moments/moments", "unlinked_moments", self._run.settings.max_sources)
        return [_LinkedMoment(*row) for row in rows]

    async def fetch_next(self, moment: _LinkedMoment) -> _LinkedMoment | None:
        """Return the moment after a moment."""
        rows = await self._run.fetch_owned("dreams/moments/moments", "next_moment", moment.starts_at, moment.key)
        return _LinkedMoment(*rows[0]) if rows else None

    async def link(self, moment: _LinkedMoment) -> None:
        """Claim the edges of a derived moment. A moment that the owner wrote is left as it is."""
        if not moment.is_derived:
            await self._run.mark_seen(DREAM_NAME, moment.ref)
            return
        claims: list[Claim] = []
        previous = await self._run.fetch_owned(
            "dreams/moments/moments", "previous_moment", moment.starts_at, moment.key
        )
        for moment_id, key in previous:
            sources = (moment.source, ClaimSource(RowRef("moments", moment_id), key))
            claims.append(FieldClaim(entity=moment.ref, field="previous_moment_keys", value=[key], sources=sources))
            claims.append(_claim_edge(moment, "follows", key, "moments", sources))
        await self._run.store_claims(DREAM_NAME, moment.ref, [*claims, *await self._claim_origins(moment)])

    async def _claim_origins(self, moment: _LinkedMoment) -> list[Claim]:
        """Return edges to the session or the texts that a moment comes from."""
        claims: list[Claim] = []
        if moment.session_id is not None:
            # By id, which a session keeps when it is renamed.
            session = ClaimSource(RowRef("sessions", moment.session_id), str(moment.session_id))
            claims.append(_claim_edge(moment, "part_of", session.key, "sessions", (moment.source, session)))
        if moment.resource_ids:
            texts = await self._run.fetch_owned("dreams/moments/moments", "texts_by_id", moment.resource_ids)
            for resource_id, key in texts:
                text = ClaimSource(RowRef("resources", resource_id), key)
                claims.append(_claim_edge(moment, "derived_from", key, "resources", (moment.source, text)))
        return claims


def _claim_edge(
    moment: _LinkedMoment, rel_type: str, dst: str, dst_type: str, sources: tuple[ClaimSource, ...]
) -> EdgeClaim:
    edge = Edge(dst=dst, rel_type=rel_type, properties={"dst_entity_type": dst_type})
    return EdgeClaim(src=moment.ref, edge=edge, sources=sources)

"""Moments: the dream that finds episodes in conversations and texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rem.db.sql import query
from rem.dreaming.claims import ClaimSource, RowRef
from rem.dreaming.entities.dream import link_moments_to_entities
from rem.dreaming.moments.draft import MomentDraft, draft_episode, draft_file, draft_mail, draft_note
from rem.dreaming.moments.episodes import LOOKAHEAD_MESSAGES, MAX_EPISODE_MESSAGES, Episode, split_into_episodes
from rem.dreaming.moments.files import is_mail
from rem.dreaming.moments.links import link_moments
from rem.dreaming.moments.model_extraction import extract_moments
from rem.dreaming.moments.people import KnownPeople
from rem.dreaming.moments.writer import DREAM, MomentWriter
from rem.dreaming.owner_queries import rewrite_owner_filter
from rem.dreaming.run import PendingSession, SourceMessage
from rem.models import Resource

if TYPE_CHECKING:
    from rem.dreaming.run import DreamRun
    from rem.embeddings import Vector

_PORTION = 1000
"""Messages that are read at once."""
_READ_OF_MESSAGE = 20_000
_SMALL_PORTION = 4 * MAX_EPISODE_MESSAGES
"""Where something in the middle is to be looked at again, what comes after it is soon as it was."""
_LOOK_BACK = 2 * MAX_EPISODE_MESSAGES
_MOST_ROUNDS = 3
_MANY_FILES = 20
"""So many files within one pause are a library, and no event."""
_PARTS_OF_FILE = 3
_PARTS_OF_MAIL = 8
"""Before its body there may be many recipients."""
_CHARACTERS_OF_PART = 4000
_CHARACTERS_OF_STRETCH = 16_000
"""So much of a conversation a model reads at once."""


class MomentsDream:
    """Says what happened, when, with whom and about what."""

    name = DREAM

    async def dream(self, night: DreamRun) -> None:
        """Look at what is new in conversations, notes and files; then put the moments in their order."""
        recollection = _MomentsRun(night, await KnownPeople.load(night.store))
        await recollection.rescan_for_new_names()
        for _ in range(_MOST_ROUNDS):
            recollection.book.has_unsettled = False
            await night.process_each(DREAM, await night.fetch_pending_sessions(DREAM), recollection.process_session)
            await night.process_each(DREAM, await recollection.fetch_new_notes(), recollection.process_note)
            await night.process_each(DREAM, await recollection.fetch_new_files(), recollection.process_file)
            if not recollection.book.has_unsettled:
                break
        await link_moments(night)
        # Whom the moments of tonight mention: those who are known were found before.
        await link_moments_to_entities(night)


class _MomentsRun:
    """One night's look at conversations and texts."""

    def __init__(self, night: DreamRun, people: KnownPeople) -> None:
        self._night = night
        self._people = people
        self._pause = timedelta(minutes=night.settings.pause_minutes)
        self.book = MomentWriter(night)

    async def rescan_for_new_names(self) -> None:
        """Let what names somebody who is known since tonight be news, so that it is known who was spoken of."""
        scope = self._night.scope
        async with self._night.store.executor.connection() as connection:
            await connection.execute(
                query("dream_moments", "look_again_for_new_names"), scope.tenant_id, scope.user_id, self._night.run_id
            )

    async def process_session(self, session: PendingSession) -> None:
        """Say the episodes of a conversation that are new, have grown, or have lost some of their messages."""
        for first, last in _merge_near_ranges(session.again):
            await self._recall(session, first, last)
        if session.has_grown:
            await self._recall(session, session.seen_index + 1, None)

    async def _recall(self, session: PendingSession, first: int, last: int | None) -> None:
        """Say the episodes from a message to another, or to the end; and those after it that are others now."""
        start = await self._restart(session.id, first)
        across = (await self._rows("start_across", session.id, start))[0][0]
        start = start if across is None else min(start, int(across))
        portion = _PORTION if last is None else _SMALL_PORTION
        while True:
            said = await self._said(session.id, start, portion)
            is_rest = len(said) < portion
            episodes = split_into_episodes(said, await self._vectors(said), self._pause)
            if not is_rest:
                # What comes may belong to the last of them.
                while len(episodes) > 1 and len(said) - _count_messages(episodes[:-1]) < LOOKAHEAD_MESSAGES:
                    episodes.pop()
                episodes.pop()
            end = None if last is None else await self._settled(session.id, episodes, start, last)
            if end is not None:
                episodes = [episode for episode in episodes if episode.first_index < end]
            stretch = min(start, first), max(session.last_index, last or 0) if end is None else max(end - 1, first)
            await self._say_session(session, stretch, start, episodes, end, is_rest and end is None)
            if is_rest or end is not None:
                return
            start = episodes[-1].last_index + 1

    async def _settled(self, session_id: UUID, episodes: Sequence[Episode], start: int, last: int) -> int | None:
        """Where, after a message, an episode begins at which a moment begins already: from there all is as it was."""
        if not episodes:
            return None
        known = await self._rows("beginnings", session_id, start, episodes[-1].last_index)
        begun = {row["first_index"] for row in known}
        for episode in episodes:
            place = episode.first_index
            is_inside = any(row["first_index"] < place <= row["last_index"] for row in known)
            if place > last and place in begun and not is_inside:
                return place
        return None

    async def _say_session(
        self,
        session: PendingSession,
        looked_at: tuple[int, int],
        start: int,
        episodes: Sequence[Episode],
        end: int | None,
        is_rest: bool,
    ) -> None:
        """Say episodes, a stretch of them at a time, each marked as seen with what it says."""
        stretches = _split_for_model(episodes) if self._night.mind is not None else [list(episodes)]
        for number, stretch in enumerate(stretches):
            is_last = number == len(stretches) - 1
            is_end = is_rest and is_last
            last = stretch[-1].last_index if stretch else -1
            drafts = await self._drafts(session, stretch)
            until = end if is_last and end is not None else last + 1
            replaced = await self.book.fetch_existing(session.id, start, None if is_end else until)
            own_ids = {message.id for episode in stretch for message in episode.said}
            seen = max(session.seen_index, last, session.last_index if is_end else last)
            done = looked_at if is_end or (is_last and end is not None) else (looked_at[0], max(last, looked_at[0]))
            await self.book.write(session.ref, drafts, replaced, own_ids, seen, done)
            start = last + 1

    async def _drafts(self, session: PendingSession, stretch: Sequence[Episode]) -> list[MomentDraft]:
        worthy = [episode for episode in stretch if episode.is_meaningful]
        if self._night.mind is not None and worthy:
            return await extract_moments(self._night, worthy, session.id)
        drafts = (draft_episode(episode, session.id, self._people) for episode in worthy)
        return [draft for draft in drafts if draft is not None]

    async def _restart(self, session_id: UUID, place: int) -> int:
        """Where to begin: the latest place before a message at which an episode begins, whatever is said from there."""
        if place <= 0:
            return 0
        news = await self._said(session_id, place, limit=1)
        before = await self._rows("said_before", session_id, place - 1, _LOOK_BACK)
        at = news[0].at if news else None
        later = place
        for index, said_at in before:
            if at is not None and abs(at - said_at) > self._pause:
                break
            at, later = said_at, index
        else:
            # No pause. A topic that began with enough said after it stays begun.
            firm = before[LOOKAHEAD_MESSAGES - 1][0] if len(before) >= LOOKAHEAD_MESSAGES else -1
            known = (await self._rows("start_before", session_id, firm))[0][0]
            return int(known or 0) if known is not None or len(before) < _LOOK_BACK else later
        return later

    async def _said(self, session_id: UUID, start: int, limit: int = _PORTION) -> list[SourceMessage]:
        rows = await self._rows("said_from", session_id, start, limit, _READ_OF_MESSAGE)
        return [SourceMessage(*row) for row in rows]

    async def _vectors(self, said: Sequence[SourceMessage]) -> Mapping[UUID, Vector] | None:
        """Messages as vectors, from the index; None if nothing was embedded."""
        import numpy as np

        async with self._night.store.executor.connection() as connection:
            rows = await connection.fetch(
                query("dream_moments", "message_vectors"),
                self._night.scope.tenant_id,
                [message.id for message in said],
            )
        return {message_id: np.array(vector, dtype=np.float32) for message_id, vector in rows} or None

    async def fetch_new_notes(self) -> list[Resource]:
        """Texts with a time that the dream has not seen in this version."""
        rows = await self._rows("new_notes", self._night.settings.max_sources)
        notes = [Resource.from_row(row) for (row,) in rows]
        for note in notes:
            self._night.remember_version(DREAM, RowRef("resources", note.id), note.revision)
        return notes

    async def process_note(self, note: Resource) -> None:
        """Say that something was noted."""
        ref = RowRef("resources", note.id)
        draft = draft_note(note, ClaimSource(ref, str(note.key)), self._people)
        await self._say_text(ref, draft)

    async def fetch_new_files(self) -> list[Any]:
        """Files that were read and that the dream has not seen in this version."""
        files = await self._rows("new_files", self._night.settings.max_sources, self._pause, _MANY_FILES + 1)
        for file in files:
            self._night.remember_version(DREAM, RowRef("files", file["id"]), file["updated_at"])
        return files

    async def process_file(self, file: Any) -> None:
        """Say that a file was read, or a mail written, if it did not come with many others."""
        ref = RowRef("files", file["id"])
        draft = await self._draft_of_file(file) if file["count"] <= _MANY_FILES else None
        await self._say_text(ref, draft)

    async def _draft_of_file(self, file: Any) -> MomentDraft | None:
        name, source = file["name"], ClaimSource(RowRef("files", file["id"]), file["key"])
        count = _PARTS_OF_MAIL if is_mail(name) else _PARTS_OF_FILE
        rows = await self._rows("beginning_of_file", str(file["id"]), count, _CHARACTERS_OF_PART)
        parts = [
            (ClaimSource(RowRef("resources", row["id"]), row["key"]), _space_before(before, row) + row["content"])
            for before, row in zip([None, *rows], rows, strict=False)
        ]
        if parts and is_mail(name):
            return draft_mail(name, rows[0]["timestamp"] or file["created_at"], source, parts, self._people)
        return draft_file(name, file["created_at"], source, parts, self._people)

    async def _say_text(self, ref: RowRef, draft: MomentDraft | None) -> None:
        drafts = [draft] if draft is not None else []
        own_ids = draft.source_ids if draft is not None else {ref.id}
        await self.book.write(ref, drafts, await self.book.fetch_existing(ref.id), own_ids)

    async def _rows(self, name: str, *parameters: Any) -> list[Any]:
        scope = self._night.scope
        async with self._night.store.executor.connection() as connection:
            statement = rewrite_owner_filter(query("dream_moments", name), scope.user_id)
            return list(await connection.fetch(statement, scope.tenant_id, scope.user_id, *parameters))


def _count_messages(episodes: Sequence[Episode]) -> int:
    return sum(len(episode.said) for episode in episodes)


def _space_before(before: Any, part: Any) -> str:
    """What stands between two parts of a file: a single space goes on in a paragraph, all else begins another."""
    ends, starts = (before["metadata"].get("end") if before else None), part["metadata"].get("start")
    return "\n" if isinstance(ends, int) and starts == ends + 1 else "\n\n"


def _merge_near_ranges(stretches: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Stretches of a conversation from first to last; those that are near to each other as one."""
    together: list[tuple[int, int]] = []
    for first, last in stretches:
        if together and first - together[-1][1] <= MAX_EPISODE_MESSAGES:
            together[-1] = together[-1][0], last
        else:
            together.append((first, last))
    return together


def _split_for_model(episodes: Sequence[Episode]) -> list[list[Episode]]:
    """Episodes in portions that a model reads at once; one at least, so that what is seen gets marked."""
    stretches: list[list[Episode]] = [[]]
    size = 0
    for episode in episodes:
        if stretches[-1] and size + episode.characters > _CHARACTERS_OF_STRETCH:
            stretches.append([])
            size = 0
        stretches[-1].append(episode)
        size += episode.characters
    return stretches

"""ChangeRequests: what is to be forgotten or corrected is shown first, and done only when the user has confirmed it.

A change is stored as a request for approval (`rem.approvals`) with the rows that were shown. The decision and the
change are one transaction. A model can make a request, but it cannot confirm one: no tool takes a code.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from uuid import UUID

from rem.approvals.approvals import Approvals, Origin, Proposal, require_open
from rem.db.retry import retry_when_busy
from rem.db.sql import query, query_table
from rem.db.store import Store
from rem.dreams.owner_lock import hold_owner_lock
from rem.errors import ConflictError, InvalidInputError, NotFoundError
from rem.forget.topic import MAX_TEXT_CHARS, TopicFinder, TopicRow, select_replaced, sort_rows
from rem.forget.traces import erase_traces
from rem.models import Approval, Entity, Resource, RiskLevel
from rem.models.resource import REMEMBERED_ORIGIN
from rem.search.identifiers import find_identifiers
from rem.sessions.remember import find_free_name, make_name, remember
from rem.text import collapse_spaces, split_sentences, split_words

if TYPE_CHECKING:
    from rem.db.database import Connection, Database

ChangeKind: TypeAlias = Literal["forget", "correct"]
FindSimilar: TypeAlias = Callable[[str, int], Awaitable[dict[str, list[UUID]]]]
"""Returns the ids of the rows nearest in meaning to a topic, by table."""
MAX_ROWS = 20
"""Rows of one request. A person can read and check this many."""
MAX_SIMILAR_ROWS = 5
LOCK_TIMEOUT_SECONDS = 30.0
_TEXT_FIELDS = {"resources": "content", "moments": "summary", "ontologies": "content"}
"""The field of each table that a correction changes."""
_KEPT_TABLES = ("resources", "ontologies")
"""A text of these tables is the only one with its details. A moment has sources."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change as the user sees it: which rows, and what happens to them."""

    kind: ChangeKind
    topic: str
    rows: list[TopicRow]
    total: int
    """Rows about the topic; more than `rows` if there are too many for one request."""
    is_exact: bool
    """The rows have the words of the topic. Otherwise they are nearest to it in meaning."""
    new_text: str | None
    """The text of a correction."""

    @property
    def preview(self) -> str:
        """Return the rows as a numbered list for people, with what happens to each."""
        lines = [self._heading]
        lines += [f"{number}. {self._describe(row)}" for number, row in enumerate(self.rows, start=1)]
        if self.total > len(self.rows):
            lines.append(f"These are {len(self.rows)} of {self.total}; ask again for the next ones.")
        return "\n".join(lines)

    @property
    def proposal(self) -> Proposal:
        """Return the change as a proposal of the tool `forget` or `correct`."""
        parameters = {"what": self.topic} | ({} if self.new_text is None else {"to": self.new_text})
        rows = [[row.table, str(row.id), row.version.isoformat()] for row in self.rows]
        count = f"{len(self.rows)} {'text' if len(self.rows) == 1 else 'texts'}"
        return Proposal(
            tool_name=self.kind,
            parameters=parameters,
            # Without words of the rows: they must be gone when these are forgotten.
            description=f"Erase {count} for good" if self.kind == "forget" else f"Correct {count}",
            preview=self.preview,
            risk_level=RiskLevel.IRREVERSIBLE,
            details={"rows": rows},
            rows=[
                {
                    "number": number,
                    "table": row.table,
                    "key": row.key,
                    "date": row.happened_at.date().isoformat(),
                    "text": row.excerpt,
                }
                for number, row in enumerate(self.rows, start=1)
            ],
        )

    @property
    def _heading(self) -> str:
        found = "What I found" if self.is_exact else "No text has these words. The nearest ones are"
        if self.kind == "forget":
            return f"{found}, to be erased for good:" if self.is_exact else f"{found}:"
        return f"{found}, to be corrected to “{self.new_text}”:" if self.is_exact else f"{found}:"

    def _describe(self, row: TopicRow) -> str:
        end = ""
        if self.kind == "correct":
            is_changed = row.is_editable and not self._drops_details(row)
            end = " (the text changes)" if is_changed else " (stays, and is marked as replaced)"
        author = " (REM's answer)" if row.role == "assistant" else ""
        return f"{row.happened_at:%Y-%m-%d} {row.table} `{row.key}`{author}: “{row.excerpt}”{end}"

    def _drops_details(self, row: TopicRow) -> bool:
        return row.table in _KEPT_TABLES and drops_details(row.text, self.topic, self.new_text or "")


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """A change that waits for the user's confirmation."""

    change: Change
    approval: Approval

    @property
    def code(self) -> str:
        """The code by which a person confirms it."""
        return self.approval.code

    @property
    def kind(self) -> ChangeKind:
        """What happens to the rows."""
        return self.change.kind

    @property
    def rows(self) -> list[TopicRow]:
        """The rows that are shown."""
        return self.change.rows

    @property
    def preview(self) -> str:
        """The rows as a numbered list for people."""
        return self.change.preview


@dataclass(slots=True)
class ChangeReport:
    """The result of a confirmed request."""

    kind: ChangeKind
    erased: Counter[str] = field(default_factory=Counter)
    """Erased rows by table, without REM's own records that repeated them."""
    changed: int = 0
    replaced: int = 0
    """Texts that stay and are marked as replaced."""
    key: str | None = None
    """The key of the new statement of a correction."""

    @property
    def outcome(self) -> str:
        """Return the result as a sentence without a key, which repeats words of the text."""
        if self.kind == "forget":
            return self.summary
        return f"Corrected: {self.changed} changed, {self.replaced} marked as replaced."

    @property
    def summary(self) -> str:
        """Return the result as a sentence."""
        if self.kind == "forget":
            counts = ", ".join(f"{count} in {table}" for table, count in sorted(self.erased.items()))
            total = self.erased.total()
            return f"Forgotten: {total} {'text' if total == 1 else 'texts'} erased for good ({counts})."
        parts = [f"noted under `{self.key}`"]
        parts += [f"{self.changed} {'text' if self.changed == 1 else 'texts'} changed"] if self.changed else []
        parts += [f"{self.replaced} marked as replaced"] if self.replaced else []
        return f"Corrected: {', '.join(parts)}."


@dataclass(frozen=True, slots=True)
class _Plan:
    """What an approved change does: the rows that were shown, by table, id and version."""

    approval: Approval
    kind: ChangeKind
    rows: list[tuple[str, UUID, datetime]]
    topic: str
    new_text: str | None

    @classmethod
    def of(cls, approval: Approval, parameters: Mapping[str, Any] | None = None) -> _Plan:
        """Return the plan of a stored request, perhaps with edited arguments."""
        rows = [
            (table, UUID(row_id), datetime.fromisoformat(version))
            for table, row_id, version in approval.proposal.get("rows", ())
        ]
        given = approval.parameters if parameters is None else parameters
        kind: ChangeKind = "forget" if approval.tool_name == "forget" else "correct"
        return cls(approval, kind, rows, given.get("what") or "", given.get("to"))


class ChangeRequests:
    """Makes, confirms and rejects the requests of one owner."""

    def __init__(self, database: Database, store: Store, language: str, find_similar: FindSimilar) -> None:
        self._database = database
        self._store = store
        self._language = language
        self._find_similar = find_similar
        self._approvals = Approvals(database, store)

    async def find_forget(self, topic: str, *, session_id: UUID | None = None) -> Change:
        """Find the rows about a topic, to erase them. Nothing is stored. Raise NotFoundError if there are none."""
        return await self._find("forget", topic, None, session_id)

    async def find_correction(self, topic: str, new_text: str, *, session_id: UUID | None = None) -> Change:
        """Find the statements about a topic, to replace them by a new text. Nothing is stored."""
        if not new_text.strip():
            raise InvalidInputError("Say what is right instead: the new text is empty.")
        return await self._find("correct", topic, new_text.strip(), session_id)

    async def request_forget(self, topic: str, *, session_id: UUID | None = None) -> ChangeRequest:
        """Find the rows about a topic, and store the request to erase them. Nothing is erased."""
        return await self._request(await self.find_forget(topic, session_id=session_id), session_id)

    async def request_correction(self, topic: str, new_text: str, *, session_id: UUID | None = None) -> ChangeRequest:
        """Find the statements about a topic, and store the request to replace them by a new text. Change nothing."""
        return await self._request(await self.find_correction(topic, new_text, session_id=session_id), session_id)

    async def has_rows(self, topic: str) -> bool:
        """Return whether a row of the owner has all words of a topic."""
        async with self._database.snapshot() as inside, inside.connection() as connection:
            try:
                return bool((await TopicFinder(connection, self._store.scope, self._language).find(topic, 1))[0])
            except InvalidInputError:
                return False

    async def show(self, approval: Approval) -> Change:
        """Return the change of a stored request with its rows, to show it again."""
        plan = _Plan.of(approval)
        ids: dict[str, list[UUID]] = defaultdict(list)
        for table, row_id, _ in plan.rows:
            ids[table].append(row_id)
        async with self._database.snapshot() as inside, inside.connection() as connection:
            found = await TopicFinder(connection, self._store.scope, self._language).fetch(ids)
        by_ref = {(row.table, row.id): row for row in found}
        rows = [by_ref[table, row_id] for table, row_id, _ in plan.rows if (table, row_id) in by_ref]
        return Change(plan.kind, plan.topic, rows, len(rows), True, plan.new_text)

    async def confirm(
        self,
        request: Approval | str,
        *,
        by: str,
        numbers: Collection[int] | None = None,
        parameters: Mapping[str, Any] | None = None,
        now: datetime | None = None,
    ) -> ChangeReport:
        """Carry out a request, given itself or by its code, once: all of it or the rows with these numbers.

        Call it only for a person's confirmation; `parameters` are those that the person edited. Raise ConflictError,
        and change nothing, if it was decided before or if one of its rows has changed since it was shown.
        """
        approval = request if isinstance(request, Approval) else await self._approvals.get(request)

        async def carry_out() -> ChangeReport:
            async with self._store.transaction() as store, store.executor.connection() as connection:
                require_open(await self._approvals.lock(connection, approval.id))
                plan = _Plan.of(approval, parameters)
                if not plan.rows:
                    raise ConflictError("This request names no rows, so there is nothing to do: ask again.")
                chosen = _choose_rows(plan.rows, numbers)
                await self._require_unchanged(connection, chosen)
                finder = TopicFinder(connection, self._store.scope, self._language)
                work = _Work(connection, store, finder, plan, now or datetime.now(UTC))
                report = await (work.erase(chosen) if plan.kind == "forget" else work.correct(chosen))
                await self._approvals.complete(connection, approval.id, by=by, outcome=report.outcome)
                return report

        async with hold_owner_lock(self._database, self._store.scope, timeout_seconds=LOCK_TIMEOUT_SECONDS):
            report = await retry_when_busy(carry_out)
        if report.kind == "forget":
            await erase_traces(self._database)
        return report

    async def reject(self, request: Approval | str, *, by: str) -> None:
        """Drop a request, given itself or by its code."""
        approval = request if isinstance(request, Approval) else await self._approvals.get(request)
        await self._approvals.reject(approval, by=by)

    @property
    def _owner(self) -> tuple[str, str | None]:
        return self._store.scope.tenant_id, self._store.scope.user_id

    async def _find(self, kind: ChangeKind, topic: str, new_text: str | None, session_id: UUID | None) -> Change:
        rows, total, is_exact = await self._find_rows(topic, session_id, only_statements=kind == "correct")
        if new_text is not None:
            rows, total = (replaced := select_replaced(rows, topic, new_text)), total - len(rows) + len(replaced)
        if not rows:
            raise NotFoundError(f"I have nothing about “{topic.strip()}” that you could {kind}.")
        return Change(kind, topic, rows, total, is_exact, new_text)

    async def _request(self, change: Change, session_id: UUID | None) -> ChangeRequest:
        return ChangeRequest(change, await self._approvals.request(change.proposal, Origin(session_id)))

    async def _find_rows(
        self, topic: str, session_id: UUID | None, *, only_statements: bool
    ) -> tuple[list[TopicRow], int, bool]:
        """Return rows about a topic, their total, and whether they have its words: else those nearest in meaning.

        The message that asks for it is left out.
        """
        async with self._database.connection() as connection:
            plain = await TopicFinder(connection, self._store.scope, self._language).clean_topic(topic)
        # Not inside of the snapshot: callers that hold a connection and wait for a second one can block each other.
        named_ids = await self._find_named(plain)
        async with self._database.snapshot() as inside, inside.connection() as connection:
            finder = TopicFinder(connection, self._store.scope, self._language)
            named = await finder.fetch(named_ids)
            rows, total = await finder.find(topic, MAX_ROWS)
            known = {(row.table, row.id) for row in rows}
            added = [row for row in named if (row.table, row.id) not in known]
            current = await connection.fetchval(query("forget/changes", "latest_message"), *self._owner, session_id)
            found = [*added, *rows]
            rows = [row for row in found if row.id != current and (row.is_statement or not only_statements)][:MAX_ROWS]
            total = total + len(added) - (len(found) - len(rows)) if len(found) <= MAX_ROWS else total
        if rows:
            return rows, total, True
        similar = await self._find_similar(plain, MAX_SIMILAR_ROWS)
        async with self._database.snapshot() as inside, inside.connection() as connection:
            rows = await TopicFinder(connection, self._store.scope, self._language).fetch(similar)
        rows = [row for row in sort_rows(rows) if row.is_statement and row.id != current]
        return rows, len(rows), False

    async def _find_named(self, label: str) -> dict[str, list[UUID]]:
        """Return the ids of the owner's rows with a key, by table."""
        ids: dict[str, list[UUID]] = defaultdict(list)
        for entity in await self._store.lookup(label):
            if entity.user_id == self._store.scope.user_id:
                ids[entity.entity_type.table].append(entity.id)
        return ids

    async def _require_unchanged(self, connection: Connection, rows: Sequence[tuple[str, UUID, datetime]]) -> None:
        """Lock the rows. Raise ConflictError if one was changed or is gone."""
        versions: dict[tuple[str, UUID], datetime] = {}
        for table in sorted({table for table, _, _ in rows}):
            ids = [row_id for name, row_id, _ in rows if name == table]
            found = await connection.fetch(query_table("forget/changes", "lock_rows", table), *self._owner, ids)
            versions |= {(table, row["id"]): row["updated_at"] for row in found}
        if any(versions.get((table, row_id)) != version for table, row_id, version in rows):
            raise ConflictError(
                "These rows have changed since they were shown. Nothing was done: ask again, and look at the new list."
            )


class _Work:
    """Carries out one change, inside one transaction."""

    def __init__(self, connection: Connection, store: Store, finder: TopicFinder, plan: _Plan, now: datetime) -> None:
        self._connection = connection
        self._store = store
        self._finder = finder
        self._plan = plan
        self._now = now
        self._tenant_id, self._user_id = store.scope.tenant_id, store.scope.user_id

    async def erase(self, rows: Sequence[tuple[str, UUID, datetime]]) -> ChangeReport:
        """Erase the rows, REM's own records that repeat their texts, and the summaries of their sessions."""
        report = ChangeReport("forget")
        ids: dict[str, set[UUID]] = defaultdict(set)
        for table, row_id, _ in rows:
            ids[table].add(row_id)
            report.erased[table] += 1
        shown = await self._finder.fetch({table: sorted(table_ids) for table, table_ids in ids.items()})
        ids["messages"] |= await self._find_repetitions(ids["messages"])
        ids["messages"] |= await self._finder.find_repetitions(shown)
        refs = sorted((table, row_id) for table, table_ids in ids.items() for row_id in table_ids)
        tables, row_ids = [table for table, _ in refs], [row_id for _, row_id in refs]
        await self._connection.execute(
            query("forget/changes", "release_derived_rows"), self._tenant_id, tables, row_ids, row_ids
        )
        await self._clean_sessions(ids["messages"], shown)
        erased = [str(row_id) for row_id in row_ids]
        await self._connection.execute(
            query("approvals/approvals", "drop_repetitions"),
            self._tenant_id,
            self._user_id,
            self._plan.approval.id,
            erased,
        )
        for table, table_ids in sorted(ids.items()):
            statement = query_table("forget/forget", "erase_own", table)
            await self._connection.fetch(statement, self._tenant_id, self._user_id, sorted(table_ids))
        return report

    async def correct(self, rows: Sequence[tuple[str, UUID, datetime]]) -> ChangeReport:
        """Store the new statement, change the texts that can change, and mark the others as replaced."""
        new_text = self._plan.new_text or ""
        report = ChangeReport("correct")
        kept: list[str] = []
        note: Resource | None = None
        for table, row_id, _ in rows:
            edited = await self._edit(table, row_id, new_text)
            if edited is None:
                kept.append(f"{table}/{row_id}")
                continue
            report.changed += 1
            note = edited if isinstance(edited, Resource) and edited.content == new_text else note
        report.replaced = len(kept)
        if note is None:
            note = await remember(self._store, new_text, metadata={"supersedes": kept}, at=self._now)
        elif kept:
            metadata = {**note.metadata, "supersedes": [*note.metadata.get("supersedes", []), *kept]}
            note = await self._store.upsert(note.model_copy(update={"metadata": metadata}))
        report.key = note.key
        return report

    async def _edit(self, table: str, row_id: UUID, new_text: str) -> Entity | None:
        """Replace the sentences about the topic in a row, and keep the old text.

        Return None if it cannot change, or if details that the new text does not have would be lost.
        """
        field_name = _TEXT_FIELDS.get(table)
        if field_name is None:
            return None
        model = self._store.types.get_model(table)
        entity = await self._store.get(model, row_id)
        if "file_id" in entity.metadata:
            return None
        old_text = str(getattr(entity, field_name))
        if table in _KEPT_TABLES and drops_details(old_text, self._plan.topic, new_text):
            return None
        corrected = replace_sentences(old_text, self._plan.topic, new_text)
        history = [*entity.metadata.get("corrections", []), {"at": self._now.isoformat(), **self._keep_old(old_text)}]
        changes: dict[str, Any] = {field_name: corrected, "metadata": {**entity.metadata, "corrections": history}}
        if isinstance(entity, Resource) and entity.origin == REMEMBERED_ORIGIN and corrected == new_text:
            # Its name repeats its text.
            changes |= {
                "name": await find_free_name(self._store, make_name(new_text, self._now, self._store.executor.sealer)),
                "timestamp": self._now,
            }
        if entity.origin.startswith("dream:"):
            # From now on the row is the user's own, so no dream changes it back.
            changes["origin"] = "user"
        return await self._store.upsert(entity.model_copy(update=changes))

    def _keep_old(self, text: str) -> dict[str, str]:
        """Return the old text for the metadata, which is not encrypted."""
        sealer = self._store.executor.sealer
        return {} if sealer is not None and sealer.is_sealing else {"was": text}

    async def _find_repetitions(self, message_ids: Collection[UUID]) -> set[UUID]:
        """Return REM's own records that repeat the texts: calls of tools in the same turns, and the preview."""
        owner = self._tenant_id, self._user_id
        rows = await self._connection.fetch(query("forget/changes", "tool_calls_of_turns"), *owner, sorted(message_ids))
        approval = self._plan.approval
        if approval.session_id is not None:
            shown = approval.session_id, approval.created_at, approval.code
            rows += await self._connection.fetch(query("forget/changes", "previews"), *owner, *shown)
        return {row["id"] for row in rows}

    async def _clean_sessions(self, message_ids: Collection[UUID], shown: Sequence[TopicRow]) -> None:
        """Delete the summaries of the sessions of some messages: they are written again without them.

        The gaps of these sessions lose their tasks, which are messages or were made of them, and so do other gaps that
        repeat a text.
        """
        rows = await self._connection.fetch(
            query("forget/changes", "sessions_of_messages"), self._tenant_id, sorted(message_ids)
        )
        sessions = [row["session_id"] for row in rows]
        await self._connection.execute(query("forget/forget", "delete_summaries"), self._tenant_id, sessions)
        texts = [text for row in shown if (text := collapse_spaces(row.text)[:MAX_TEXT_CHARS])]
        owner = self._tenant_id, self._user_id
        await self._connection.execute(query("forget/changes", "blank_tool_gaps"), *owner, sessions, texts)


def replace_sentences(text: str, topic: str, new_text: str) -> str:
    """Return a text with the new text in place of the sentences that have a word of the topic, or of all of it."""
    sentences = split_sentences(text)
    replaced = _find_replaced(sentences, topic)
    if len(replaced) == len(sentences):
        return new_text
    kept = [
        new_text if number == replaced[0] else sentence
        for number, sentence in enumerate(sentences)
        if number == replaced[0] or number not in replaced
    ]
    return " ".join(kept)


def drops_details(text: str, topic: str, new_text: str) -> bool:
    """Return whether the sentences that the new text replaces have a number or an identifier, and it has none.

    "The flight is on Tuesday" leaves out the number of "My flight is LH 831 on Monday".
    """
    sentences = split_sentences(text)
    replaced = " ".join(sentences[number] for number in _find_replaced(sentences, topic))
    return _has_value(replaced) and not _has_value(new_text)


def _has_value(text: str) -> bool:
    return any(character.isdigit() for character in text) or any(True for _ in find_identifiers(text))


def _find_replaced(sentences: Sequence[str], topic: str) -> list[int]:
    """Return the numbers of the sentences that have a word of the topic; of all if none has one."""
    wanted = {word for word in split_words(topic) if len(word) > 2}
    matching = [number for number, sentence in enumerate(sentences) if wanted & set(split_words(sentence))]
    return matching or list(range(len(sentences)))


def _choose_rows(
    rows: Sequence[tuple[str, UUID, datetime]], numbers: Collection[int] | None
) -> list[tuple[str, UUID, datetime]]:
    if numbers is None:
        return list(rows)
    wrong = sorted(number for number in set(numbers) if not 1 <= number <= len(rows))
    if wrong or not numbers:
        raise InvalidInputError(f"The list has the numbers 1 to {len(rows)}: name some of these.")
    return [rows[number - 1] for number in sorted(set(numbers))]

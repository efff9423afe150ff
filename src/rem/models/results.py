"""What queries and answers return: hits with their entities, notes by code, timed steps."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime, tzinfo
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

from rem.models import BUILTIN_ENTITIES
from rem.models.entity import Entity

JsonRow: TypeAlias = dict[str, Any]
"""A row as the database made it: JSON values by column."""
Verb: TypeAlias = Literal["LOOKUP", "FUZZY", "SEARCH", "TRAVERSE", "SQL", "AGENT"]
"""AGENT: an agent answered a question over HTTP, and the only row is its output."""
Direction: TypeAlias = Literal["out", "in"]
NoteCode: TypeAlias = Literal[
    "answer",  # the answer to a question in plain words
    "misspelt",  # a word is probably a misspelt clause
    "maybe_told",  # what was read as a question may be a statement
    "weak",  # no row clearly answers the question
    "waiting",  # new rows were not searched
    "words_only",  # the embedder failed, so words alone decided
    "not_indexed",  # the newest rows could not be indexed
    "not_reranked",  # the reranker failed
    "query_cut",  # only the beginning of the query's text counts
    "missing_key",  # keys of LOOKUP without a match
    "text_cut",  # the text of a file is not complete
    "rows_cut",  # there are more rows
    "excerpts",  # some texts are excerpts
    "encrypted",  # SQL does not show encrypted texts
    "no_start",  # TRAVERSE has nothing to start from
    "dangling",  # edges lead to keys without an entity
    "only_back",  # the edges lead only to the start nodes
    "without_model",  # the language model failed, so the nearest texts answer
    "answered_by",  # the agent that answered
]
AnswerStatus: TypeAlias = Literal["answered", "nearest", "nothing"]

BUILTIN_MODELS: Mapping[str, type[Entity]] = MappingProxyType(
    {model.entity_type.table: model for model in BUILTIN_ENTITIES}
)
MAX_ASSISTANT_HITS = 3
"""A result has at most so many hits of an assistant, and at most a third, if other hits can take their places."""
_TIME_FIELDS = {"moments": ("starts_timestamp",), "resources": ("timestamp",)}
_TABLES_WITHOUT_TIME = frozenset({"users"})
"""A person has no time; the row only says when REM heard of somebody first."""


@dataclass(frozen=True, slots=True)
class Note:
    """A remark on a result. Code decides by its code; only people and models read its text."""

    code: NoteCode
    text: str

    def as_json(self) -> dict[str, str]:
        """Return the note as JSON values."""
        return {"code": self.code, "text": self.text}


@dataclass(frozen=True, slots=True)
class Ref:
    """Another row, by its table and key, and when it happened."""

    table: str
    key: str
    happened_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Passage:
    """The part of a text that SEARCH found. Its entity can be another than the hit: a session is found by a message."""

    table: str
    key: str
    field: str
    start: int
    end: int
    text: str
    """The characters of the field from `start` to `end`; "" if the hit was found by its name."""


@dataclass(frozen=True, slots=True)
class FuzzyMatch:
    """What FUZZY compared: a key or a summary."""

    matched: Literal["key", "summary"]
    key: str | None
    """The key that is similar, which can be another than the first key of the entity."""


class Walk(NamedTuple):
    """How TRAVERSE reached an entity: the keys from the start, and the last edge."""

    depth: int
    path: list[str]
    rel_type: str
    weight: float
    direction: Direction


@dataclass(frozen=True, slots=True)
class NearMessage:
    """A message of the same session, `offset` places after the hit; before it if negative."""

    role: str
    text: str
    offset: int


@dataclass(slots=True)
class Hit:
    """An entity that a query found, with what its verb tells about it. Use `replace` to change one.

    It is not frozen only because that would take five times as long, and TRAVERSE makes many of them.
    """

    table: str
    key: str
    record: JsonRow
    score: float | None = None
    passage: Passage | None = None
    similarity: float | None = None
    """The cosine of the passage and the query (SEARCH with an embedder)."""
    word_weight: float | None = None
    """The share of the query's words that the passage has, rare ones counting most (SEARCH)."""
    asked: str | None = None
    """The key as it was given (LOOKUP)."""
    fuzzy: FuzzyMatch | None = None
    walk: Walk | None = None
    said_by: Literal["assistant"] | None = None
    """Who wrote the passage, if not the user: what an assistant said is no evidence."""
    around: tuple[NearMessage, ...] = ()
    """The messages that the hit needs to be understood, in their order."""
    replaced_by: Ref | None = None
    """The newer row that makes this one outdated."""
    models: Mapping[str, type[Entity]] = field(default_factory=lambda: BUILTIN_MODELS, repr=False, compare=False)
    """The classes of the tables."""
    zone: tzinfo = field(default=UTC, repr=False, compare=False)
    """The time zone of the caller."""
    _entity: Entity | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def entity(self) -> Entity:
        """Return the record as an entity. It is built on first use. Raise CorruptRowError if the row does not fit."""
        if self._entity is None:
            self._entity = self.models[self.table].from_row(self.record)
        return self._entity

    @property
    def id(self) -> str:
        """Return the id of the entity."""
        return str(self.record["id"])

    @property
    def text(self) -> str:
        """Return the text of the entity, as `Entity.text` does, without building the entity."""
        return self._model.find_text(self.record)

    @property
    def text_field(self) -> str | None:
        """Return the column of the record that holds the text."""
        return self._model.text_field()

    @property
    def _model(self) -> type[Entity]:
        """Return the class of the table; `Entity` itself for one that another process has just registered."""
        return self.models.get(self.table, Entity)

    @property
    def shown_text(self) -> str:
        """Return the passage, or the whole text of a hit without one."""
        return self.text if self.passage is None else self.passage.text

    @property
    def happened_at(self) -> datetime | None:
        """Return when a message was said, a moment took place or a text was written; else when the row was stored.

        The time is in the zone of the caller. A person has none.
        """
        return find_time(self.table, self.record, self.zone)

    @property
    def said_before(self) -> list[str]:
        """Return the messages before the hit that it continues."""
        return [message.text for message in self.around if message.offset < 0]

    @property
    def said_after(self) -> list[str]:
        """Return the messages after the hit that continue it."""
        return [message.text for message in self.around if message.offset > 0]

    @property
    def is_from_assistant(self) -> bool:
        """Return whether the hit is a message of an assistant, and not of a named speaker.

        A session that was found by such a passage is a talk with the user.
        """
        return self.said_by == "assistant" and self.table == "messages"

    def as_json(self) -> JsonRow:
        """Return the hit as JSON values, without what its verb does not tell."""
        values: JsonRow = {"table": self.table, "key": self.key}
        happened_at = self.happened_at
        replaced_by = self.replaced_by
        optional = {
            "asked": self.asked,
            "score": self.score,
            "similarity": self.similarity,
            "weight": self.word_weight,
            "happened_at": happened_at and happened_at.isoformat(),
            "passage": self.passage and _list_fields(self.passage),
            "said_by": self.said_by,
            "said_before": self.said_before,
            "said_after": self.said_after,
            "superseded_by": replaced_by and replaced_by.key,
            "superseded_at": replaced_by and replaced_by.happened_at and replaced_by.happened_at.date().isoformat(),
        }
        values.update({name: value for name, value in optional.items() if value is not None and value != []})
        if self.fuzzy is not None:
            values.update(matched=self.fuzzy.matched, matched_key=self.fuzzy.key)
        if self.walk is not None:
            values.update(self.walk._asdict())
        values["record"] = self.record
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Hit:
        """Return the hit that `as_json` wrote."""
        happened_at, passage, newer = (values.get(name) for name in ("happened_at", "passage", "superseded_by"))
        before, after = values.get("said_before", ()), values.get("said_after", ())
        around = [(text, place - len(before)) for place, text in enumerate(before)]
        around += [(text, place) for place, text in enumerate(after, start=1)]
        return cls(
            values["table"],
            values["key"],
            values["record"],
            values.get("score"),
            Passage(**passage) if passage else None,
            values.get("similarity"),
            None if "path" in values else values.get("weight"),
            values.get("asked"),
            FuzzyMatch(values["matched"], values["matched_key"]) if "matched" in values else None,
            Walk(*(values[name] for name in Walk._fields)) if "path" in values else None,
            values.get("said_by"),
            tuple(NearMessage("user", text, offset) for text, offset in around),
            Ref(values["table"], newer, datetime.fromisoformat(values["superseded_at"])) if newer else None,
            zone=datetime.fromisoformat(happened_at).tzinfo or UTC if happened_at else UTC,
        )


def _list_fields(part: Passage | EdgeGroup) -> JsonRow:
    """Return the fields by name. `asdict` would copy each value, which takes ten times as long."""
    return {item.name: getattr(part, item.name) for item in fields(part)}


def find_time(table: str, record: Mapping[str, Any], zone: tzinfo = UTC) -> datetime | None:
    """Return when a message was said, a moment took place or a text was written; else when the row was stored."""
    if table in _TABLES_WITHOUT_TIME:
        return None
    written_at = _find_written_at(record) if table == "files" else None
    if written_at is not None:
        return written_at.astimezone(zone)
    times = (record.get(name) for name in (*_TIME_FIELDS.get(table, ()), "created_at"))
    found = next((time for time in times if isinstance(time, str)), None)
    return None if found is None else datetime.fromisoformat(found).astimezone(zone)


def _find_written_at(record: Mapping[str, Any]) -> datetime | None:
    """Return when a file was written. Users can write anything into the metadata, so only a time counts."""
    metadata = record.get("metadata")
    value = metadata.get("written_at") if isinstance(metadata, Mapping) else None
    try:
        written_at = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return written_at if written_at is not None and written_at.tzinfo else None


@dataclass(frozen=True, slots=True)
class EdgeGroup:
    """The edges of one type from or to a start node of TRAVERSE with DEPTH 0."""

    table: str
    key: str
    rel_type: str
    direction: Direction
    count: int
    destinations: list[str]
    """The keys that the edges lead to; only the first if they are many."""


def item_to_json(item: Hit | EdgeGroup | JsonRow) -> JsonRow:
    """Return one item of a result as JSON values."""
    match item:
        case Hit():
            return item.as_json()
        case EdgeGroup():
            return _list_fields(item)
    return item


@dataclass(frozen=True, slots=True)
class Step:
    """One timed part of the work for a query."""

    name: str
    milliseconds: float
    rows: int | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """What a query found, best first."""

    verb: Verb
    hits: list[Hit] = field(default_factory=list)
    rows: list[JsonRow] = field(default_factory=list)
    """The rows of a SELECT. Other verbs have none."""
    notes: tuple[Note, ...] = ()
    steps: tuple[Step, ...] = field(default=(), compare=False)
    edges: list[EdgeGroup] = field(default_factory=list)
    """The edges of the start nodes of TRAVERSE with DEPTH 0."""
    asks_assistant: bool = field(default=False, compare=False)
    """Whether the query asks for what an assistant said. Else all such hits come last: they are no evidence."""

    @property
    def count(self) -> int:
        """Return the number of hits, edges and rows."""
        return len(self.hits) + len(self.edges) + len(self.rows)

    def has_note(self, code: NoteCode) -> bool:
        """Return whether a note has this code."""
        return any(note.code == code for note in self.notes)

    def put_assistant_last(self) -> Result:
        """Return the result with what an assistant said after all other hits, unless the query asks for it."""
        if self.asks_assistant:
            return self
        return replace(self, hits=sorted(self.hits, key=lambda hit: hit.is_from_assistant))

    def keep_best(self, max_hits: int) -> Result:
        """Return the result with `max_hits` hits. Of those of an assistant, which come last, some keep their places."""
        if self.asks_assistant or len(self.hits) <= max_hits:
            return replace(self, hits=self.hits[:max_hits])
        said = [hit for hit in self.hits if hit.is_from_assistant]
        others = [hit for hit in self.hits if not hit.is_from_assistant]
        said = said[: max(min(MAX_ASSISTANT_HITS, max_hits // 3), max_hits - len(others))]
        return replace(self, hits=[*others[: max_hits - len(said)], *said])

    def keep_first(self, limit: int) -> Result:
        """Return the result with its first rows: hits, then edges, then rows of a SELECT."""
        edges_left = max(limit - len(self.hits), 0)
        rows_left = max(edges_left - len(self.edges), 0)
        return replace(self, hits=self.hits[:limit], edges=self.edges[:edges_left], rows=self.rows[:rows_left])

    def list_items(self) -> list[Hit | EdgeGroup | JsonRow]:
        """Return the hits, then the edges, then the rows of a SELECT."""
        return [*self.hits, *self.edges, *self.rows]

    def list_rows(self) -> list[JsonRow]:
        """Return the hits, edges and rows as JSON values."""
        return list(map(item_to_json, self.list_items()))

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Result:
        """Return the result that `as_json` wrote, such as that of a server."""
        verb, rows = values["query_type"], values["results"]
        notes = tuple(Note(**note) for note in values.get("notes") or ())
        if verb in ("SQL", "AGENT"):
            return cls(verb, rows=rows, notes=notes)
        return cls(
            verb,
            [Hit.from_json(row) for row in rows if "record" in row],
            notes=notes,
            edges=[EdgeGroup(**row) for row in rows if "record" not in row],
        )

    def as_json(self, *, explain: bool = False) -> JsonRow:
        """Return the result as JSON values; with `explain`, also the steps."""
        return {**self.describe(explain=explain), "results": self.list_rows()}

    def describe(self, *, explain: bool = False) -> JsonRow:
        """Return all of `as_json` but the rows, which can be many."""
        values: JsonRow = {"query_type": self.verb, "results": [], "count": self.count}
        if self.notes:
            values["notes"] = [note.as_json() for note in self.notes]
        if explain:
            values["steps"] = [asdict(step) for step in self.steps]
        return values


@dataclass(frozen=True, slots=True)
class Span:
    """A quotation from a hit of an answer."""

    hit: int
    """The place of the hit in `Answer.hits`."""
    start: int
    end: int
    """Characters of the hit's `shown_text`."""
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question in plain words, with the hits that it was read from, best first."""

    status: AnswerStatus
    """`nearest`: no hit clearly answers the question. `nothing`: there is no hit."""
    text: str
    quote: Span | None = None
    confidence: float = 0.0
    hits: list[Hit] = field(default_factory=list)
    notes: tuple[Note, ...] = ()

    def as_json(self) -> JsonRow:
        """Return the answer as JSON values."""
        return {
            "status": self.status,
            "text": self.text,
            "quote": self.quote and asdict(self.quote),
            "confidence": self.confidence,
            "hits": [hit.as_json() for hit in self.hits],
            "notes": [note.as_json() for note in self.notes],
        }


@dataclass(slots=True)
class StepProgress:
    """The details of a step that is still running."""

    rows: int | None = None
    detail: str | None = None


class Steps(list[Step]):
    """The steps of a query so far."""

    @contextmanager
    def measure(self, name: str) -> Iterator[StepProgress]:
        """Time the block and add it as a step. No step is added if the block raises."""
        progress = StepProgress()
        started = time.perf_counter()
        yield progress
        milliseconds = round((time.perf_counter() - started) * 1e3, 3)
        self.append(Step(name, milliseconds, progress.rows, progress.detail))

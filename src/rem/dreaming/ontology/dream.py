"""Ontology: what extraction agents find in files and texts, as the rules in `ontology_configs` choose them.

All rules that match a document count, the one with the highest priority first; an agent reads a document once. What was
found stands in `ontologies` until the document, the agent or the rule changes. Without a language model, what a
document states itself is taken if that is all that the agent's schema asks for; the others wait for a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

import orjson
from pydantic import ValidationError

from rem.db.sql import query
from rem.dreaming.claims import Claim, EdgeClaim, RowClaim, RowRef
from rem.dreaming.extraction_model import digest_texts
from rem.dreaming.ontology.document import OntologyDocument, fetch_new_files, fetch_new_text_uris, read_file, read_text
from rem.dreaming.ontology.document_filter import find_pattern_error, matches_mime_type, matches_pattern, matches_tags
from rem.dreaming.ontology.extraction import (
    Extraction,
    MissingFields,
    compute_version,
    extract_stated,
    extract_with_model,
    format_as_text,
)
from rem.dreaming.ontology.schema import ExtractionSchema, StoredSchemas
from rem.dreaming.owner_queries import rewrite_owner_filter
from rem.errors import RemError
from rem.models import Edge, Ontology

if TYPE_CHECKING:
    from rem.dreaming.run import DreamRun, SubjectStatement

_NAME = "ontology"
MAX_NOTED_NAMES = 5
MAX_NAME_BYTES = 700


@dataclass(frozen=True, slots=True)
class ExtractionRule:
    """An agent, and which documents it reads."""

    key: str
    schema: ExtractionSchema
    mime_type_pattern: str | None
    uri_pattern: str | None
    tag_filter: tuple[str, ...]

    def applies_to(self, document: OntologyDocument) -> bool:
        """Whether the agent reads a document."""
        return (
            matches_mime_type(self.mime_type_pattern, document.mime_type)
            and matches_pattern(self.uri_pattern, document.uri)
            and matches_tags(self.tag_filter, document.tags)
        )


class OntologyDream:
    """Lets agents extract knowledge from new and changed documents."""

    name = _NAME

    async def dream(self, night: DreamRun) -> None:
        """Look at what is new with the rules as they are, and at everything if these are new."""
        await _OntologyRun(night).dream()


class _OntologyRun:
    """One night's extraction."""

    def __init__(self, night: DreamRun) -> None:
        self._night = night
        self._rules: list[ExtractionRule] = []
        self._digest = 0
        self._unsound: set[str] = set()
        """Agents that cannot be used now. What they found before stays."""
        self._waiting: list[str] = []
        self._cut: list[str] = []

    async def dream(self) -> None:
        night = self._night
        unsound = await self._read_rules()
        night.notes += unsound
        if not self._rules:
            if not unsound:
                await self._end_all()
            return
        rules = [[rule.key, rule.schema.agent, rule.schema.digest, *self._patterns(rule)] for rule in self._rules]
        whole = orjson.dumps([rules, unsound]).decode()
        with_mind, without = digest_texts("mind", whole), digest_texts("none", whole)
        self._digest = without if night.mind is None else with_mind
        accepted = [with_mind] if night.mind else [with_mind, without]
        found: list[OntologyDocument | str] = [
            *await fetch_new_files(night, accepted),
            *await fetch_new_text_uris(night, accepted),
        ]
        try:
            await night.process_each(_NAME, found, self._look_at)
        finally:
            self._note()

    @staticmethod
    def _patterns(rule: ExtractionRule) -> list[Any]:
        return [rule.mime_type_pattern, rule.uri_pattern, list(rule.tag_filter)]

    async def _read_rules(self) -> list[str]:
        """Read the rules; what is wrong with those that cannot be used."""
        unsound = []
        for row in await self._rows("configs"):
            try:
                self._rules.append(await self._rule(row))
            except (RemError, ValueError) as error:
                self._unsound.add(row["agent_schema"])
                unsound.append(f"{_NAME}: the rule {row['key']} is not used: {error}")
        return unsound

    async def _rule(self, row: Any) -> ExtractionRule:
        for name in ("mime_type_pattern", "uri_pattern"):
            if problem := find_pattern_error(row[name]):
                raise ValueError(f"its {name} {problem}.")
        schemas = self._night.schemas or StoredSchemas(self._night.store)
        agent = row["agent_schema"]
        schema = ExtractionSchema(agent, await schemas.schema_of(agent, self._night.scope))
        return ExtractionRule(
            row["key"], schema, row["mime_type_pattern"], row["uri_pattern"], tuple(row["tag_filter"])
        )

    async def _end_all(self) -> None:
        """Without rules there is nothing to say."""
        for row in await self._rows("subjects", None):
            await self._night.store_claims(_NAME, RowRef(row["subject_type"], row["subject_id"]), [])

    async def _look_at(self, found: OntologyDocument | str) -> None:
        """Let each agent look at a document that has not, and end what others said of it."""
        document = found if isinstance(found, OntologyDocument) else await read_text(self._night, found)
        if document is None:
            return
        rules = list({rule.schema.agent: rule for rule in reversed(self._rules) if rule.applies_to(document)}.values())[
            ::-1
        ]
        standing = await self._night.fetch_statements(_NAME, document.ref.id)
        if rules and document.is_file:
            await read_file(self._night, document)
        await self._execute("unmark", document.ref.id)
        agents = {rule.schema.agent for rule in rules} | self._unsound
        left = [said for said in standing if _find_agent(said, standing) not in agents]
        if left:
            await self._night.store_claims(_NAME, document.ref, [], only=[said.id for said in left])
        for rule in rules:
            own = [said for said in standing if _find_agent(said, standing) == rule.schema.agent]
            await self._extract(document, rule, own)
        await self._move_subject(document)
        await self._mark(document)

    async def _move_subject(self, document: OntologyDocument) -> None:
        """What was said of another part of a text, when that was its first, is said of the first one now."""
        others = [part.source.ref.id for part in document.parts if part.source.ref != document.ref]
        if not document.is_file and others:
            for row in await self._rows("subjects", others):
                await self._night.store_claims(_NAME, RowRef(row["subject_type"], row["subject_id"]), [])

    async def _mark(self, document: OntologyDocument) -> None:
        scope = self._night.scope
        if document.is_file:
            await self._execute("mark_file", scope.user_id, document.ref.id, document.version, self._digest)
        else:
            await self._execute("mark_texts", scope.user_id, document.uri, document.version, self._digest)

    async def _extract(
        self, document: OntologyDocument, rule: ExtractionRule, standing: Sequence[SubjectStatement]
    ) -> None:
        """Say what an agent finds in a document, unless it is said already or was taken back."""
        night, schema = self._night, rule.schema
        agent_name = schema.agent.rpartition("/")[2]
        if await self._is_refused(document, agent_name):
            return
        version = compute_version(document, schema)
        earlier = next((said for said in standing if said.kind == "row"), None)
        found: Extraction | MissingFields | None = _reuse_extraction(earlier, version, has_mind=night.mind is not None)
        if found is None and document.text.strip():
            found = (
                extract_stated(document, schema)
                if night.mind is None
                else await extract_with_model(night, document, schema)
            )
        if found is None or isinstance(found, MissingFields):
            if found is not None:
                self._waiting.append(f"{document.name} for {schema.agent} ({', '.join(found.names) or 'says nothing'})")
            await self._say(document, [], standing)
            return
        place = await self._place(document, agent_name, earlier)
        if place is not None:
            await self._say(document, self._claims(document, rule, found, version, *place), standing)
        if found.is_cut:
            self._cut.append(f"{document.name} ({schema.agent})")

    async def _say(
        self, document: OntologyDocument, claims: Sequence[Claim], standing: Sequence[SubjectStatement]
    ) -> None:
        if claims or standing:
            await self._night.store_claims(_NAME, document.ref, claims, only=[said.id for said in standing])

    async def _is_refused(self, document: OntologyDocument, agent: str) -> bool:
        async with self._night.store.executor.connection() as connection:
            return bool(
                await connection.fetchval(
                    query("dream_ontology", "is_refused"), self._night.scope.tenant_id, document.ref.id, agent
                )
            )

    async def _place(
        self, document: OntologyDocument, agent: str, earlier: SubjectStatement | None
    ) -> tuple[str, UUID] | None:
        """Under which name and id to say it; None if the owner has a row of that name, or had one and deleted it."""
        base = document.name.encode()[:MAX_NAME_BYTES].decode(errors="ignore").strip()
        names = [f"{base}/{agent}", f"{base} {document.ref.id.hex[:8]}/{agent}"]
        own_id = uuid5(document.ref.id, agent)
        for row in await self._rows("names", names):
            if row["subject_id"] not in (None, document.ref.id):
                # Another document of the same name.
                continue
            if not row["is_free"]:
                return None
            known = row["entity_id"] or row["held_by"]
            return row["name"], known or (earlier.entity.id if earlier and earlier.name == row["key"] else own_id)
        return None

    def _claims(
        self, document: OntologyDocument, rule: ExtractionRule, found: Extraction, version: int, name: str, row_id: UUID
    ) -> list[Claim]:
        agent, at = rule.schema.agent, found.at or document.version
        about = {"rule": rule.key, "method": found.method, "version": version, "portions": found.portions}
        try:
            row = Ontology(
                id=row_id,
                name=name,
                uri=document.uri,
                content=format_as_text(name, found.data),
                extracted_data=found.data,
                confidence_score=round(found.confidence, 4),
                agent_schema=agent,
                file_id=document.ref.id if document.is_file else None,
                extraction_timestamp=at,
                metadata={"extraction": {**about, **({"is_cut": True} if found.is_cut else {})}},
                tags=list(document.tags),
            )
        except ValidationError as error:
            problem = error.errors()[0]["msg"]
            self._night.notes.append(f"{_NAME}: what {agent} found in {document.name} cannot be stored: {problem}.")
            return []
        edge = Edge(dst=document.key, rel_type="extracted_from", properties={"dst_entity_type": document.ref.type})
        common: dict[str, Any] = {
            "sources": document.sources,
            "confidence": round(found.confidence, 4),
            "valid_from": at,
        }
        return [
            RowClaim(entity=row, is_named=True, **common),
            EdgeClaim(src=RowRef("ontologies", row_id), edge=edge, **common),
        ]

    def _note(self) -> None:
        notes = self._night.notes
        if self._waiting:
            notes.append(f"{_NAME}: {_WAITING} {_join_names(self._waiting)}.")
        if self._cut:
            notes.append(f"{_NAME}: only the beginning was read of {_join_names(self._cut)}.")

    async def _rows(self, name: str, *parameters: Any) -> list[Any]:
        scope = self._night.scope
        async with self._night.store.executor.connection() as connection:
            statement = rewrite_owner_filter(query("dream_ontology", name), scope.user_id)
            return list(await connection.fetch(statement, scope.tenant_id, scope.user_id, *parameters))

    async def _execute(self, name: str, *parameters: Any) -> None:
        statement = rewrite_owner_filter(query("dream_ontology", name), self._night.scope.user_id)
        async with self._night.store.executor.connection() as connection:
            await connection.execute(statement, self._night.scope.tenant_id, *parameters)


_WAITING = "these wait for a language model (LLM__DEFAULT_MODEL), because they do not state what is needed themselves:"


def _join_names(names: Sequence[str]) -> str:
    shown = "; ".join(names[:MAX_NOTED_NAMES])
    return shown if len(names) <= MAX_NOTED_NAMES else f"{shown} and {len(names) - MAX_NOTED_NAMES} more"


def _find_agent(said: SubjectStatement, standing: Sequence[SubjectStatement]) -> str | None:
    """Whose finding a statement is: a row says it, an edge belongs to its row."""
    row = (
        said
        if said.kind == "row"
        else next((one for one in standing if one.kind == "row" and one.entity == said.entity), None)
    )
    agent = row.value.get("agent_schema") if row else None
    return agent if isinstance(agent, str) else None


def _reuse_extraction(earlier: SubjectStatement | None, version: int, *, has_mind: bool) -> Extraction | None:
    """What was found before in the same text for the same schema; not what a model could find better."""
    if earlier is None:
        return None
    about = earlier.value.get("metadata", {}).get("extraction", {})
    if about.get("version") != version or (has_mind and about.get("method") != "model"):
        return None
    return Extraction(
        earlier.value["extracted_data"],
        earlier.value["confidence_score"],
        about["method"],
        about.get("portions", 1),
        bool(about.get("is_cut")),
        datetime.fromisoformat(earlier.value["extraction_timestamp"]),
    )

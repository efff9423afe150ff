"""OntologyDream: lets agents extract data from files and texts, as the rules in `ontology_configs` assign them.

All rules that match a document apply, the highest priority first; an agent reads a document once. The extracted data
stays in `ontologies` until the document, the agent or the rule changes. Without a language model, values that a
document states itself are used if they fit the agent's schema; other documents wait for a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson
from pydantic import ValidationError

from rem.dreams.claims import Claim, EdgeClaim, RowClaim, RowRef
from rem.dreams.extraction_model import digest_texts
from rem.dreams.ontology.document import (
    OntologyDocument,
    fetch_new_files,
    fetch_new_text_uris,
    find_pattern_error,
    matches_mime_type,
    matches_pattern,
    matches_tags,
    read_file,
    read_text,
)
from rem.dreams.ontology.extraction import (
    Extraction,
    MissingFields,
    compute_version,
    extract_stated,
    extract_with_model,
    format_as_text,
)
from rem.dreams.ontology.schema import ExtractionSchema
from rem.errors import RemError
from rem.models import Edge, Ontology

if TYPE_CHECKING:
    from rem.dreams.run import DreamRun
    from rem.dreams.statement_matcher import LiveStatement

DREAM_NAME = "ontology"
MAX_NOTED_NAMES = 5
MAX_NAME_BYTES = 700
"""Of a document: the name of its entry has the agent's name behind it, and is limited as well."""


@dataclass(frozen=True, slots=True)
class ExtractionRule:
    """An agent, and the documents that it reads."""

    key: str
    schema: ExtractionSchema
    mime_type_pattern: str | None
    uri_pattern: str | None
    tag_filter: tuple[str, ...]

    def applies_to(self, document: OntologyDocument) -> bool:
        """Return whether the agent reads a document."""
        return (
            matches_mime_type(self.mime_type_pattern, document.mime_type)
            and matches_pattern(self.uri_pattern, document.uri)
            and matches_tags(self.tag_filter, document.tags)
        )

    def to_list(self) -> list[Any]:
        """Return everything that changes the result of the rule, as JSON."""
        patterns = self.mime_type_pattern, self.uri_pattern, list(self.tag_filter)
        return [self.key, self.schema.agent, self.schema.digest, *patterns]


class OntologyDream:
    """Derives ontology entries from new and changed documents."""

    name = DREAM_NAME

    async def derive(self, run: DreamRun) -> None:
        """Let agents read new and changed documents, or all documents if the rules have changed."""
        await _OntologyRun(run).derive()


class _OntologyRun:
    """Extracts the data of one run."""

    def __init__(self, run: DreamRun) -> None:
        self._run = run
        self._rules: list[ExtractionRule] = []
        self._digest = 0
        """Digest of the rules, with which documents are marked as seen."""
        self._unusable_agents: set[str] = set()
        """Agents of rules with an error. Their earlier entries stay."""
        self._waiting: list[str] = []
        """Documents that wait for a language model."""
        self._cut: list[str] = []
        """Documents of which only the beginning was read."""

    async def derive(self) -> None:
        run = self._run
        errors = await self._load_rules()
        run.notes += errors
        if not self._rules:
            if not errors:
                await self._end_all_statements()
            return
        encoded = orjson.dumps([[rule.to_list() for rule in self._rules], errors]).decode()
        # "mind" stays: another word would change the stored digests, and all documents would be read again.
        with_model, without_model = digest_texts("mind", encoded), digest_texts("none", encoded)
        self._digest = with_model if run.model else without_model
        # A model has to read again what was read without one, but not the other way round.
        accepted = [with_model] if run.model else [with_model, without_model]
        documents: list[OntologyDocument | str] = [
            *await fetch_new_files(run, accepted),
            *await fetch_new_text_uris(run, accepted),
        ]
        try:
            await run.process_each(DREAM_NAME, documents, self._process_document)
        finally:
            self._add_notes()

    async def _load_rules(self) -> list[str]:
        """Load the rules, and return a note for each one that cannot be used."""
        notes = []
        for row in await self._fetch("rules"):
            try:
                self._rules.append(await self._to_rule(row))
            except (RemError, ValueError) as error:
                self._unusable_agents.add(row["agent_schema"])
                notes.append(f"{DREAM_NAME}: the rule {row['key']} is not used: {error}")
        return notes

    async def _to_rule(self, row: Any) -> ExtractionRule:
        for name in ("mime_type_pattern", "uri_pattern"):
            if error := find_pattern_error(row[name]):
                raise ValueError(f"its {name} {error}.")
        agent = row["agent_schema"]
        schema = ExtractionSchema(agent, await self._run.schemas.output_schema(agent, self._run.scope))
        return ExtractionRule(
            row["key"], schema, row["mime_type_pattern"], row["uri_pattern"], tuple(row["tag_filter"])
        )

    async def _end_all_statements(self) -> None:
        """End all statements of this dream, because there are no rules."""
        await self._end_statements_of(await self._fetch("subjects", None))

    async def _end_statements_of(self, subjects: Sequence[Any]) -> None:
        for row in subjects:
            await self._run.store_claims(DREAM_NAME, RowRef(row["subject_type"], row["subject_id"]), [])

    async def _process_document(self, document_or_uri: OntologyDocument | str) -> None:
        """Let each agent of a matching rule read a document, and end the statements of other agents about it."""
        document = (
            document_or_uri
            if isinstance(document_or_uri, OntologyDocument)
            else await read_text(self._run, document_or_uri)
        )
        if document is None:
            return
        rules = self._select_rules(document)
        statements = await self._run.fetch_statements(DREAM_NAME, document.ref.id)
        if rules and document.is_file:
            await read_file(self._run, document)
        # Not seen until all of its agents have read it.
        await self._run.fetch("dreams/dreams", "forget_progress_of_subject", DREAM_NAME, document.ref.id)
        agents = {rule.schema.agent for rule in rules} | self._unusable_agents
        ended = [statement for statement in statements if _find_agent(statement, statements) not in agents]
        if ended:
            await self._run.store_claims(DREAM_NAME, document.ref, [], only=[statement.id for statement in ended])
        for rule in rules:
            own = [statement for statement in statements if _find_agent(statement, statements) == rule.schema.agent]
            await self._apply_rule(document, rule, own)
        await self._end_moved_statements(document)
        await self._mark_seen(document)

    def _select_rules(self, document: OntologyDocument) -> list[ExtractionRule]:
        """Return the rules that apply to a document, one for each agent: the one with the highest priority."""
        by_agent: dict[str, ExtractionRule] = {}
        for rule in self._rules:
            if rule.applies_to(document):
                by_agent.setdefault(rule.schema.agent, rule)
        return list(by_agent.values())

    async def _end_moved_statements(self, document: OntologyDocument) -> None:
        """End statements about a text that used to be the first of its address: the first one is the subject now."""
        others = [part.source.ref.id for part in document.parts if part.source.ref != document.ref]
        if not document.is_file and others:
            await self._end_statements_of(await self._fetch("subjects", others))

    async def _mark_seen(self, document: OntologyDocument) -> None:
        if document.is_file:
            seen = DREAM_NAME, "files", document.ref.id, document.version, self._digest
            await self._run.fetch_owned("dreams/dreams", "mark_seen", *seen)
        else:
            await self._fetch("mark_texts", document.uri, document.version, self._digest)

    async def _apply_rule(
        self, document: OntologyDocument, rule: ExtractionRule, statements: Sequence[LiveStatement]
    ) -> None:
        """Store the data that an agent extracts from a document, in place of the agent's earlier statements."""
        schema = rule.schema
        agent_name = schema.agent.rpartition("/")[2]
        if await self._is_refused(document, agent_name):
            return
        version = compute_version(document, schema)
        earlier = next((statement for statement in statements if statement.kind == "row"), None)
        extraction = await self._extract(document, schema, earlier, version)
        if extraction is None or isinstance(extraction, MissingFields):
            if extraction is not None:
                missing = ", ".join(extraction.names) or "says nothing"
                self._waiting.append(f"{document.name} for {schema.agent} ({missing})")
            await self._replace_statements(document, [], statements)
            return
        entry = await self._find_entry(document, agent_name, earlier)
        if entry is not None:
            claims = self._make_claims(document, rule, extraction, version, *entry)
            await self._replace_statements(document, claims, statements)
        if extraction.is_cut:
            self._cut.append(f"{document.name} ({schema.agent})")

    async def _extract(
        self, document: OntologyDocument, schema: ExtractionSchema, earlier: LiveStatement | None, version: int
    ) -> Extraction | MissingFields | None:
        """Return the data for a schema, from an earlier run if nothing has changed; None if the document is empty."""
        extraction = _reuse_extraction(earlier, version, has_model=self._run.model is not None)
        if extraction is not None or not document.text.strip():
            return extraction
        if self._run.model is None:
            return extract_stated(document, schema)
        return await extract_with_model(self._run, document, schema)

    async def _replace_statements(
        self, document: OntologyDocument, claims: Sequence[Claim], statements: Sequence[LiveStatement]
    ) -> None:
        if claims or statements:
            only = [statement.id for statement in statements]
            await self._run.store_claims(DREAM_NAME, document.ref, claims, only=only)

    async def _is_refused(self, document: OntologyDocument, agent: str) -> bool:
        rows = await self._run.fetch("dreams/ontology/ontology", "is_refused", document.ref.id, agent)
        return bool(rows[0][0])

    async def _find_entry(
        self, document: OntologyDocument, agent: str, earlier: LiveStatement | None
    ) -> tuple[str, UUID] | None:
        """Return name and id of the entry, or None if the owner has a row of that name, or deleted one."""
        base = document.name.encode()[:MAX_NAME_BYTES].decode(errors="ignore").strip()
        names = [f"{base}/{agent}", f"{base} {document.ref.id.hex[:8]}/{agent}"]
        own_id = self._run.store.executor.derived_ids.make("ontology", str(document.ref.id), agent)
        for row in await self._fetch("entries_by_name", names):
            if row["subject_id"] not in (None, document.ref.id):
                # Another document of the same name has it.
                continue
            if not row["is_free"]:
                return None
            known = row["entity_id"] or row["held_by"]
            return row["name"], known or (earlier.entity.id if earlier and earlier.name == row["key"] else own_id)
        return None

    def _make_claims(
        self,
        document: OntologyDocument,
        rule: ExtractionRule,
        extraction: Extraction,
        version: int,
        name: str,
        row_id: UUID,
    ) -> list[Claim]:
        agent, extracted_at = rule.schema.agent, extraction.at or document.version
        details: dict[str, Any] = {
            "rule": rule.key,
            "method": extraction.method,
            "version": version,
            "portions": extraction.portions,
        }
        if extraction.is_cut:
            details["is_cut"] = True
        try:
            row = Ontology(
                id=row_id,
                name=name,
                uri=document.uri,
                content=format_as_text(name, extraction.data),
                extracted_data=extraction.data,
                confidence_score=round(extraction.confidence, 4),
                agent_schema=agent,
                file_id=document.ref.id if document.is_file else None,
                extraction_timestamp=extracted_at,
                metadata={"extraction": details},
                tags=list(document.tags),
            )
        except ValidationError as error:
            reason = error.errors()[0]["msg"]
            self._run.notes.append(
                f"{DREAM_NAME}: the data that {agent} extracted from {document.name} cannot be stored: {reason}."
            )
            return []
        edge = Edge(dst=document.key, rel_type="extracted_from", properties={"dst_entity_type": document.ref.type})
        common: dict[str, Any] = {
            "sources": document.sources,
            "confidence": round(extraction.confidence, 4),
            "valid_from": extracted_at,
        }
        return [
            RowClaim(entity=row, is_named=True, **common),
            EdgeClaim(src=RowRef("ontologies", row_id), edge=edge, **common),
        ]

    def _add_notes(self) -> None:
        if self._waiting:
            self._run.notes.append(
                f"{DREAM_NAME}: these documents wait for a language model (LLM__DEFAULT_MODEL), because they do not "
                f"state all required values themselves: {_join_names(self._waiting)}."
            )
        if self._cut:
            self._run.notes.append(f"{DREAM_NAME}: only the beginning was read of {_join_names(self._cut)}.")

    async def _fetch(self, name: str, *parameters: Any) -> list[Any]:
        return await self._run.fetch_owned("dreams/ontology/ontology", name, *parameters)


def _join_names(names: Sequence[str]) -> str:
    shown = "; ".join(names[:MAX_NOTED_NAMES])
    return shown if len(names) <= MAX_NOTED_NAMES else f"{shown} and {len(names) - MAX_NOTED_NAMES} more"


def _find_agent(statement: LiveStatement, statements: Sequence[LiveStatement]) -> str | None:
    """Return the agent that a statement comes from: a row contains it, an edge belongs to its row."""
    row = (
        statement
        if statement.kind == "row"
        else next((other for other in statements if other.kind == "row" and other.entity == statement.entity), None)
    )
    agent = row.value.get("agent_schema") if row else None
    return agent if isinstance(agent, str) else None


def _reuse_extraction(earlier: LiveStatement | None, version: int, *, has_model: bool) -> Extraction | None:
    """Return an earlier extraction from the same text for the same schema, unless a model could extract more."""
    if earlier is None:
        return None
    details = earlier.value.get("metadata", {}).get("extraction", {})
    if details.get("version") != version or (has_model and details.get("method") != "model"):
        return None
    return Extraction(
        earlier.value["extracted_data"],
        earlier.value["confidence_score"],
        details["method"],
        details.get("portions", 1),
        bool(details.get("is_cut")),
        datetime.fromisoformat(earlier.value["extraction_timestamp"]),
    )

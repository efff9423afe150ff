"""Turn an OpenAPI or Swagger document into knowledge entries: the API, its operations and its schemas."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from rem.db.yaml import YamlLimitError, load_yaml
from rem.errors import FileUnreadableError
from rem.ingest.file_store import clean_labels
from rem.ingest.models import FetchedFile, ParsedDocument
from rem.knowledge.entries import EntryLink, KnowledgeEntry
from rem.models.field_types import shorten_json

_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
MAX_NODES = 200_000
"""Nodes that are searched for references."""
_API_ID = "api"
"""The id of the entry for the API itself."""


def parse_openapi(file: FetchedFile, document: ParsedDocument) -> list[KnowledgeEntry] | None:
    """Return the entries of an API description; None if the file is something else."""
    if document.format != "data" or not any(word in document.text for word in ("openapi", "swagger")):
        return None
    try:
        is_json = document.mime_type == "application/json"
        value = json.loads(document.text) if is_json else load_yaml(document.text)
    except YamlLimitError as error:
        raise FileUnreadableError(f"{file.name} cannot be read as an API description: {error}.") from error
    except (yaml.YAMLError, RecursionError, ValueError):
        return None
    if (
        not isinstance(value, dict)
        or not isinstance(value.get("paths"), dict)
        or not ({"openapi", "swagger"} & set(value))
    ):
        return None
    return list(_ApiDescription(file, value).entries())


class _ApiDescription:
    """A parsed API description."""

    def __init__(self, file: FetchedFile, value: Mapping[str, Any]) -> None:
        info = _as_mapping(value.get("info"))
        self._value = value
        self._title = str(info.get("title") or file.name)
        self._info = info
        self._uri_hash = hashlib.sha256(file.uri.encode(errors="surrogatepass")).hexdigest()[:8]

    def entries(self) -> Iterator[KnowledgeEntry]:
        """Yield the entry of the API, and then those of its operations and schemas."""
        yield self._make_entry(_API_ID, self._title, self._format_overview(), (), {"kind": "api"})
        for path, item in _as_mapping(self._value["paths"]).items():
            for method in _METHODS:
                operation = _as_mapping(item).get(method)
                if isinstance(operation, dict):
                    yield self._operation_entry(method, str(path), operation, _as_mapping(item))
        for name, schema in self._schemas().items():
            yield self._schema_entry(str(name), schema)

    def _operation_entry(
        self, method: str, path: str, operation: Mapping[str, Any], item: Mapping[str, Any]
    ) -> KnowledgeEntry:
        name = f"{method.upper()} {path}"
        parameters = [*_as_list(item.get("parameters")), *_as_list(operation.get("parameters"))]
        content = "\n\n".join(
            part
            for part in (
                f"# {name}",
                str(operation.get("summary") or ""),
                str(operation.get("description") or ""),
                _format_list("Parameters", map(_format_parameter, parameters)),
                _format_body("Request body", operation.get("requestBody")),
                _format_list(
                    "Responses",
                    (
                        _format_response(status, response)
                        for status, response in _as_mapping(operation.get("responses")).items()
                    ),
                ),
            )
            if part
        )
        links = (EntryLink("part_of", _API_ID, is_same_file=True), *self._find_used_schemas([operation, parameters]))
        operation_id = operation.get("operationId")
        tags = tuple(str(tag) for tag in _as_list(operation.get("tags")))
        data = {"kind": "operation", "method": method.upper(), "path": path}
        return self._make_entry(
            name, name, content, links, data, aliases=(str(operation_id),) if operation_id else (), tags=tags
        )

    def _schema_entry(self, name: str, schema: Any) -> KnowledgeEntry:
        content = "\n\n".join(
            part for part in (f"# {name}", _get_text(schema, "description"), _format_properties(schema)) if part
        )
        links = (
            EntryLink("part_of", _API_ID, is_same_file=True),
            *(link for link in self._find_used_schemas(schema) if link.label != f"schema {name}"),
        )
        return self._make_entry(f"schema {name}", name, content, links, {"kind": "schema"})

    def _make_entry(
        self,
        identity: str,
        name: str,
        content: str,
        links: tuple[EntryLink, ...],
        data: dict[str, Any],
        aliases: tuple[str, ...] = (),
        tags: tuple[str, ...] = (),
    ) -> KnowledgeEntry:
        names = tuple(clean_labels([name, f"{self._title} {name}", f"{self._title} {name} {self._uri_hash}"]))
        return KnowledgeEntry(identity, names, content, links, tuple(clean_labels(aliases)), tags, shorten_json(data))

    def _format_overview(self) -> str:
        servers = [str(_as_mapping(server).get("url")) for server in _as_list(self._value.get("servers"))]
        parts = (
            f"# {self._title}",
            str(self._info.get("description") or ""),
            f"Version: {self._info['version']}" if self._info.get("version") else "",
            _format_list("Servers", servers),
        )
        return "\n\n".join(part for part in parts if part)

    def _schemas(self) -> Mapping[str, Any]:
        return _as_mapping(_as_mapping(self._value.get("components")).get("schemas")) or _as_mapping(
            self._value.get("definitions")
        )

    def _find_used_schemas(self, value: Any) -> Iterator[EntryLink]:
        """Yield links to the schemas that a part of the description refers to."""
        known = self._schemas()
        for reference in sorted(set(_find_references(value))):
            name = reference.rpartition("/")[2].replace("~1", "/").replace("~0", "~")
            if name in known:
                yield EntryLink("uses", f"schema {name}", is_same_file=True)


def _find_references(value: Any) -> Iterator[str]:
    """Yield all local `$ref`s below a value. Nodes that YAML aliases repeat are visited once."""
    pending: list[Any] = [value]
    seen: set[int] = set()
    while pending and len(seen) < MAX_NODES:
        node = pending.pop()
        if not isinstance(node, dict | list) or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, list):
            pending += node
            continue
        reference = node.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/"):
            yield reference
        pending += node.values()


def _format_parameter(value: Any) -> str:
    parameter = _as_mapping(value)
    if "$ref" in parameter:
        return str(parameter["$ref"]).rpartition("/")[2]
    needed = ", required" if parameter.get("required") else ""
    return _format_line(f"{parameter.get('name')} (in {parameter.get('in')}{needed})", parameter.get("description"))


def _format_response(status: Any, value: Any) -> str:
    return _format_line(str(status), _as_mapping(value).get("description"))


def _format_properties(schema: Any) -> str:
    fields = _as_mapping(_as_mapping(schema).get("properties"))
    required = {str(name) for name in _as_list(_as_mapping(schema).get("required"))}
    lines = []
    for name, value in fields.items():
        field = _as_mapping(value)
        kind = field.get("type") or str(field.get("$ref") or "").rpartition("/")[2]
        notes = ", ".join(part for part in (str(kind or ""), "required" if name in required else "") if part)
        lines.append(_format_line(f"{name} ({notes})" if notes else str(name), field.get("description")))
    return _format_list("Fields", lines)


def _format_body(title: str, value: Any) -> str:
    text = _get_text(value, "description")
    kinds = ", ".join(str(kind) for kind in _as_mapping(_as_mapping(value).get("content")))
    return _format_line(f"{title}: {kinds}" if kinds else title, text) if text or kinds else ""


def _format_list(title: str, lines: Any) -> str:
    shown = [f"- {line}" for line in lines if line]
    return "\n".join([f"{title}:", *shown]) if shown else ""


def _format_line(head: str, text: Any) -> str:
    return f"{head}: {' '.join(str(text).split())}" if text else head


def _get_text(value: Any, name: str) -> str:
    return str(_as_mapping(value).get(name) or "")


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []

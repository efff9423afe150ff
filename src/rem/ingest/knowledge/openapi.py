"""Descriptions of HTTP APIs (OpenAPI, Swagger): an entry for each operation and schema, and how they hang together."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from rem.db.yaml import YamlLimitError, load_yaml
from rem.errors import FileUnreadableError
from rem.ingest.json_values import to_json_value
from rem.ingest.knowledge.entries import EntryLink, KnowledgeEntry, clean_names
from rem.ingest.models import FetchedFile, ParsedDocument

_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_MOST_NODES = 200_000
_API = "api"


def parse_openapi(file: FetchedFile, document: ParsedDocument) -> list[KnowledgeEntry] | None:
    """The entries of an API's description; None if the file is none."""
    if document.format != "data" or not any(word in document.text for word in ("openapi", "swagger")):
        return None
    try:
        is_json = document.mime_type == "application/json"
        value = json.loads(document.text) if is_json else load_yaml(document.text)
    except YamlLimitError as error:
        raise FileUnreadableError(f"{file.name} is not read as an API's description: {error}.") from error
    except (yaml.YAMLError, RecursionError, ValueError):
        return None
    if (
        not isinstance(value, dict)
        or not isinstance(value.get("paths"), dict)
        or not ({"openapi", "swagger"} & set(value))
    ):
        return None
    return list(_Api(file, value).entries())


class _Api:
    def __init__(self, file: FetchedFile, value: Mapping[str, Any]) -> None:
        info = _mapping(value.get("info"))
        self._value = value
        self._title = str(info.get("title") or file.name)
        self._info = info
        self._mark = hashlib.sha256(file.uri.encode(errors="surrogatepass")).hexdigest()[:8]

    def entries(self) -> Iterator[KnowledgeEntry]:
        yield self._entry(_API, self._title, self._overview(), (), {"kind": "api"})
        for path, item in _mapping(self._value["paths"]).items():
            for method in _METHODS:
                operation = _mapping(item).get(method)
                if isinstance(operation, dict):
                    yield self._operation(method, str(path), operation, _mapping(item))
        for name, schema in self._schemas().items():
            yield self._schema(str(name), schema)

    def _operation(
        self, method: str, path: str, operation: Mapping[str, Any], item: Mapping[str, Any]
    ) -> KnowledgeEntry:
        name = f"{method.upper()} {path}"
        parameters = [*_list(item.get("parameters")), *_list(operation.get("parameters"))]
        content = "\n\n".join(
            part
            for part in (
                f"# {name}",
                str(operation.get("summary") or ""),
                str(operation.get("description") or ""),
                _listed("Parameters", map(_parameter, parameters)),
                _described("Request body", operation.get("requestBody")),
                _listed(
                    "Responses",
                    (_response(status, answer) for status, answer in _mapping(operation.get("responses")).items()),
                ),
            )
            if part
        )
        links = (EntryLink("part_of", _API, is_inside=True), *self._uses([operation, parameters]))
        label = operation.get("operationId")
        tags = tuple(str(tag) for tag in _list(operation.get("tags")))
        data = {"kind": "operation", "method": method.upper(), "path": path}
        return self._entry(name, name, content, links, data, aliases=(str(label),) if label else (), tags=tags)

    def _schema(self, name: str, schema: Any) -> KnowledgeEntry:
        content = "\n\n".join(part for part in (f"# {name}", _text(schema, "description"), _properties(schema)) if part)
        links = (
            EntryLink("part_of", _API, is_inside=True),
            *(link for link in self._uses(schema) if link.label != f"schema {name}"),
        )
        return self._entry(f"schema {name}", name, content, links, {"kind": "schema"})

    def _entry(
        self,
        identity: str,
        name: str,
        content: str,
        links: tuple[EntryLink, ...],
        data: dict[str, Any],
        aliases: tuple[str, ...] = (),
        tags: tuple[str, ...] = (),
    ) -> KnowledgeEntry:
        names = clean_names([name, f"{self._title} {name}", f"{self._title} {name} {self._mark}"])
        return KnowledgeEntry(identity, names, content, links, clean_names(aliases), tags, to_json_value(data))

    def _overview(self) -> str:
        servers = [str(_mapping(server).get("url")) for server in _list(self._value.get("servers"))]
        parts = (
            f"# {self._title}",
            str(self._info.get("description") or ""),
            f"Version: {self._info['version']}" if self._info.get("version") else "",
            _listed("Servers", servers),
        )
        return "\n\n".join(part for part in parts if part)

    def _schemas(self) -> Mapping[str, Any]:
        return _mapping(_mapping(self._value.get("components")).get("schemas")) or _mapping(
            self._value.get("definitions")
        )

    def _uses(self, value: Any) -> Iterator[EntryLink]:
        """The schemas that a part of the description refers to."""
        known = self._schemas()
        for reference in sorted(set(_references(value))):
            name = reference.rpartition("/")[2].replace("~1", "/").replace("~0", "~")
            if name in known:
                yield EntryLink("uses", f"schema {name}", is_inside=True)


def _references(value: Any) -> Iterator[str]:
    """All `$ref`s below a value; what an anchor repeats is looked at once."""
    todo: list[Any] = [value]
    seen: set[int] = set()
    while todo and len(seen) < _MOST_NODES:
        node = todo.pop()
        if not isinstance(node, dict | list) or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, list):
            todo += node
            continue
        reference = node.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/"):
            yield reference
        todo += node.values()


def _parameter(value: Any) -> str:
    parameter = _mapping(value)
    if "$ref" in parameter:
        return str(parameter["$ref"]).rpartition("/")[2]
    needed = ", required" if parameter.get("required") else ""
    return _line(f"{parameter.get('name')} (in {parameter.get('in')}{needed})", parameter.get("description"))


def _response(status: Any, value: Any) -> str:
    return _line(str(status), _mapping(value).get("description"))


def _properties(schema: Any) -> str:
    fields = _mapping(_mapping(schema).get("properties"))
    required = {str(name) for name in _list(_mapping(schema).get("required"))}
    lines = []
    for name, value in fields.items():
        field = _mapping(value)
        kind = field.get("type") or str(field.get("$ref") or "").rpartition("/")[2]
        notes = ", ".join(part for part in (str(kind or ""), "required" if name in required else "") if part)
        lines.append(_line(f"{name} ({notes})" if notes else str(name), field.get("description")))
    return _listed("Fields", lines)


def _described(title: str, value: Any) -> str:
    text = _text(value, "description")
    kinds = ", ".join(str(kind) for kind in _mapping(_mapping(value).get("content")))
    return _line(f"{title}: {kinds}" if kinds else title, text) if text or kinds else ""


def _listed(title: str, lines: Any) -> str:
    shown = [f"- {line}" for line in lines if line]
    return "\n".join([f"{title}:", *shown]) if shown else ""


def _line(head: str, text: Any) -> str:
    return f"{head}: {' '.join(str(text).split())}" if text else head


def _text(value: Any, name: str) -> str:
    return str(_mapping(value).get(name) or "")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []

"""Write the types of the HTTP API for the web interface, from the server's OpenAPI document: `make web-types`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rem.api.main import create_app
from rem.settings import Settings

TYPES_FILE = Path(__file__).parent.parent / "web" / "src" / "api" / "types.ts"
HEADER = """// Written by `make web-types` from the server's OpenAPI document. Do not edit.

/* The objects of the API. */
"""
_PREFIX = "#/components/schemas/"
_SCALARS = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
_METHODS = ("get", "post", "put", "patch", "delete")
_PLACES = ("path", "query")
"""Where parameters are. The client itself adds the headers."""


def write_types(document: Mapping[str, Any]) -> str:
    """Return a TypeScript module with the objects and the operations of an OpenAPI document."""
    schemas: dict[str, Any] = document["components"]["schemas"]
    lines = [HEADER.rstrip("\n")]
    lines += [f"export type {_to_name(name)} = {_to_type(schemas[name])};" for name in sorted(schemas)]
    lines += ["", "/* Parameters, body and answer of each operation. */", "export interface Operations {"]
    lines += [f"  {line}" for line in _write_operations(document["paths"])]
    return "\n".join([*lines, "}", ""])


def _write_operations(paths: Mapping[str, Any]) -> Iterator[str]:
    for path in sorted(paths):
        for method in _METHODS:
            if method in paths[path]:
                fields = "; ".join(_write_fields(paths[path][method]))
                yield f"{json.dumps(f'{method.upper()} {path}')}: {{ {fields} }};"


def _write_fields(operation: Mapping[str, Any]) -> Iterator[str]:
    for place in _PLACES:
        parameters = [item for item in operation.get("parameters", ()) if item["in"] == place]
        if parameters:
            named = [_to_field(item["name"], item["schema"], item.get("required", False)) for item in parameters]
            yield f"{place}: {{ {'; '.join(named)} }}"
    body = operation.get("requestBody")
    if body is not None:
        yield f"body{'' if body.get('required') else '?'}: {_to_content_type(body['content'])}"
    answers = [answer for status, answer in operation["responses"].items() if status.startswith("2")]
    types = [_to_content_type(answer["content"]) if "content" in answer else "void" for answer in answers]
    yield f"answer: {' | '.join(dict.fromkeys(types)) or 'void'}"


def _to_content_type(content: Mapping[str, Any]) -> str:
    if "application/json" in content:
        return _to_type(content["application/json"].get("schema", {}))
    return "FormData" if "multipart/form-data" in content else "string"


def _to_type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return _to_name(schema["$ref"].removeprefix(_PREFIX))
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    for joint, sign in (("anyOf", " | "), ("oneOf", " | "), ("allOf", " & ")):
        if joint in schema:
            return sign.join(dict.fromkeys(_to_type(part) for part in schema[joint]))
    match schema.get("type"):
        case "array":
            inner = _to_type(schema.get("items", {}))
            return f"({inner})[]" if " " in inner else f"{inner}[]"
        case "object":
            return _to_object(schema)
        case list() as kinds:
            return " | ".join(_to_type({**schema, "type": kind}) for kind in kinds)
        case kind:
            return _SCALARS.get(str(kind), "unknown")


def _to_object(schema: Mapping[str, Any]) -> str:
    properties = schema.get("properties", {})
    required = schema.get("required", ())
    fields = [_to_field(name, inner, name in required) for name, inner in properties.items()]
    others = schema.get("additionalProperties")
    if fields:
        return f"{{ {'; '.join([*fields, '[name: string]: unknown'] if others else fields)} }}"
    return f"Record<string, {_to_type(others) if isinstance(others, dict) else 'unknown'}>"


def _to_field(name: str, schema: Mapping[str, Any], is_required: bool) -> str:
    quoted = name if name.isidentifier() else json.dumps(name)
    return f"{quoted}{'' if is_required else '?'}: {_to_type(schema)}"


def _to_name(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.replace("-", "_").split("_") if part)


if __name__ == "__main__":
    TYPES_FILE.parent.mkdir(parents=True, exist_ok=True)
    TYPES_FILE.write_text(write_types(create_app(Settings()).openapi()), encoding="utf-8")

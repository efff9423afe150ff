"""Sealer: encrypt texts and JSON for one place in the database, and open them only there.

A sealed value is the text `rem1:KEY_ID:DIGEST:DATA`. DATA is the header (tenant, row, column) and the ciphertext of
AES-256-SIV, which authenticates the header and the id of the key. The mode is deterministic: the same text in the same
column of the same row gives the same value, so an unchanged row is still recognised as unchanged, and equal texts of
two rows still differ. DIGEST is empty, or a keyed hash of the text where REM must find an equal text again.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import orjson

from rem.encryption.key_ring import KeyRing, derive
from rem.errors import EncryptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX = "rem1:"
TOKEN = re.compile(r"rem1:([a-z0-9][a-z0-9-]{0,31}):([A-Za-z0-9_-]*):([A-Za-z0-9_-]{50,})")
"""A sealed value, wherever it stands."""
JSON_KEY = "rem_sealed"
"""The only name of the object that stands for a sealed JSON object."""
_TENANT_BYTES = 8
_HEADER_BYTES = _TENANT_BYTES + 16 + 1
_TEXT, _JSON = 0, 128
COLUMNS = (
    *("content", "tool_calls", "summary", "description", "system_prompt", "comment", "attempted_task", "parameters"),
    *("tool_arguments", "state", "upload", "secret", "profile", "caption", "headers", "values"),
)
"""The columns with sealed values. Their numbers are stored, so new ones are added at the end."""
_NUMBERS = {name: number for number, name in enumerate(COLUMNS)}
SEALED_TEXTS: Mapping[str, tuple[str, ...]] = {
    "messages": ("content",),
    "resources": ("content",),
    "records": ("content", "caption"),
    "documents": ("content",),
    "moments": ("summary",),
    "ontologies": ("content",),
    "users": ("summary",),
    "sessions": ("description", "system_prompt"),
    "feedbacks": ("comment",),
    "tool_gaps": ("attempted_task",),
}
"""The text columns of entities that are sealed, by table."""
SEALED_JSON: Mapping[str, tuple[str, ...]] = {
    "messages": ("tool_calls",),
    "approvals": ("parameters",),
    "records": ("headers", "values"),
}
"""The JSON columns of entities that are sealed, by table."""


PROFILE_FIELDS = "metadata.profile."
"""How the names of a profile's fields begin."""


class Place(NamedTuple):
    """Where a sealed value belongs."""

    tenant_id: str
    row_id: UUID
    column: str


class _Header(NamedTuple):
    tenant: bytes
    row_id: UUID
    column: str
    is_json: bool


class Sealer:
    """Seals and opens values with the keys of an installation."""

    def __init__(self, keys: KeyRing, index_key: bytes, *, is_sealing: bool) -> None:
        """Take the keys, and the secret of the database for the hashes of words and texts."""
        self.keys = keys
        self.is_sealing = is_sealing
        """False: values are opened, but new ones are stored as they are."""
        self._digest_key = derive(index_key, b"rem digests", 32)
        self.word_key = derive(index_key, b"rem words", 32).hex()

    def seal(self, text: str, place: Place, *, with_digest: bool = False) -> str:
        """Return a text as a sealed value. An empty text stays empty."""
        if not self.is_sealing or not text:
            return text
        return seal(self.keys, text.encode(), place, digest=self.digest(text) if with_digest else "")

    def seal_json(self, value: Any, place: Place) -> Any:
        """Return a JSON object or list as one that contains a sealed value. An empty one stays as it is."""
        if not self.is_sealing or not value:
            return value
        token = seal(self.keys, orjson.dumps(value, default=str), place, is_json=True)
        return [token] if isinstance(value, list) else {JSON_KEY: token}

    def seal_text(self, table: str, column: str, text: str, tenant_id: str, row_id: UUID) -> str:
        """Return the text of an entity's column as a sealed value, if the column is sealed."""
        if column not in SEALED_TEXTS.get(table, ()):
            return text
        return self.seal(text, Place(tenant_id, row_id, column), with_digest=table == "resources")

    def digest(self, text: str) -> str:
        """Return the keyed hash of a text."""
        mac = hmac.digest(self._digest_key, text.encode(), hashlib.sha256)
        return _encode(mac[:16])

    def open(self, text: str, row_ids: Iterable[UUID], tenant_id: str | None = None) -> str:
        """Return a text without encryption. Other texts are returned as they are.

        Raise EncryptionError if the value belongs to none of the rows, or to another tenant.
        """
        opened = self._open_all(text, frozenset(row_ids), tenant_id)
        return text if opened is None else "\n".join(str(part) for part in opened)

    def seal_bytes(self, content: bytes, place: Place) -> bytes:
        """Return the bytes of a file as a sealed value."""
        if not self.is_sealing or not content:
            return content
        return seal(self.keys, content, place).encode()

    def open_bytes(self, content: bytes, row_ids: frozenset[UUID], tenant_id: str | None = None) -> bytes:
        """Return the bytes of a file without encryption."""
        match = TOKEN.fullmatch(content.decode(errors="replace"))
        if match is None:
            return content
        header, opened = open_token(self.keys, match)
        _require_place(header, row_ids, tenant_id)
        return opened

    def open_value(self, value: Any, row_ids: frozenset[UUID], tenant_id: str | None = None) -> Any:
        """Return a JSON value with everything opened that belongs to one of the rows, or to a row that it names."""
        if isinstance(value, str):
            return self.open(value, row_ids, tenant_id) if value.startswith(PREFIX) else value
        if isinstance(value, dict):
            return self._open_object(value, row_ids, tenant_id)
        if isinstance(value, list):
            return self._open_list(value, row_ids, tenant_id)
        return value

    def _open_object(self, value: dict[str, Any], row_ids: frozenset[UUID], tenant_id: str | None) -> Any:
        if value.keys() == {JSON_KEY}:
            return self._open_json(value[JSON_KEY], row_ids, tenant_id)
        named = {UUID(value[name]) for name in ("id", "entity_id") if _is_uuid(value.get(name))}
        if "tenant_id" in value and isinstance(value["tenant_id"], str):
            tenant_id = value["tenant_id"]
        known = frozenset(named) if named else row_ids
        return {name: self.open_value(item, known, tenant_id) for name, item in value.items()}

    def _open_list(self, value: list[Any], row_ids: frozenset[UUID], tenant_id: str | None) -> Any:
        if len(value) == 1 and isinstance(value[0], str) and value[0].startswith(PREFIX):
            opened = self._open_all(value[0], row_ids, tenant_id)
            is_document = opened is not None and not isinstance(opened[0], str)
            return opened[0] if opened is not None and is_document else [self._join(value[0], opened)]
        named = frozenset(UUID(item) for item in value if _is_uuid(item))
        known = named or row_ids
        return [self.open_value(item, known, tenant_id) for item in value]

    def _join(self, text: str, opened: list[Any] | None) -> str:
        return text if opened is None else "\n".join(str(part) for part in opened)

    def _open_json(self, token: Any, row_ids: frozenset[UUID], tenant_id: str | None) -> Any:
        opened = self._open_all(token, row_ids, tenant_id) if isinstance(token, str) else None
        return {JSON_KEY: token} if opened is None else opened[0]

    def _open_all(self, text: str, row_ids: frozenset[UUID], tenant_id: str | None) -> list[Any] | None:
        """Return the contents of a text that consists of sealed values; None for any other text."""
        if not text.startswith(PREFIX):
            return None
        opened: list[Any] = []
        # What dreams say about one entity is put together by lines.
        for line in text.split("\n"):
            match = TOKEN.fullmatch(line)
            if match is None:
                return None
            header, content = open_token(self.keys, match)
            _require_place(header, row_ids, tenant_id)
            opened.append(orjson.loads(content) if header.is_json else content.decode())
        if len(opened) > 1:
            return ["\n".join(_merge_lines(str(part) for part in opened))]
        return opened


def seal_statement(sealer: Sealer, row: Mapping[str, Any], tenant_id: str) -> Any:
    """Return the value of a dream's statement with its texts encrypted for the entity that it is about."""
    table, row_id, value = row["entity_type"], UUID(str(row["entity_id"])), row["value"]
    if row["kind"] == "field" and row["name"].startswith(PROFILE_FIELDS):
        return _seal_item(sealer, value, Place(tenant_id, row_id, "profile"))
    if row["kind"] == "field" and isinstance(value, str):
        return sealer.seal_text(table, row["name"], value, tenant_id, row_id)
    if row["kind"] != "row" or not isinstance(value, dict):
        return value
    return {
        name: sealer.seal_text(table, name, item, tenant_id, row_id) if isinstance(item, str) else item
        for name, item in value.items()
    }


def seal_profile(sealer: Sealer, metadata: dict[str, Any], tenant_id: str, row_id: UUID) -> dict[str, Any]:
    """Return the metadata of a user with the texts of the profile encrypted, each like the statement it comes from."""
    profile = metadata.get("profile")
    if not isinstance(profile, dict):
        return metadata
    place = Place(tenant_id, row_id, "profile")
    return {**metadata, "profile": {name: _seal_item(sealer, item, place) for name, item in profile.items()}}


def _seal_item(sealer: Sealer, value: Any, place: Place) -> Any:
    if isinstance(value, str):
        return sealer.seal(value, place)
    return sealer.seal_json(value, place) if isinstance(value, dict | list) else value


def seal_tool_arguments(sealer: Sealer, metadata: dict[str, Any], tenant_id: str, row_id: UUID) -> dict[str, Any]:
    """Return the metadata of a message with the arguments of its tool call encrypted."""
    if not metadata.get("tool_arguments"):
        return metadata
    place = Place(tenant_id, row_id, "tool_arguments")
    return {**metadata, "tool_arguments": sealer.seal_json(metadata["tool_arguments"], place)}


def seal(keys: KeyRing, content: bytes, place: Place, *, digest: str = "", is_json: bool = False) -> str:
    """Return a content as a sealed value of a place."""
    number = _NUMBERS[place.column] | (_JSON if is_json else _TEXT)
    header = _hash_tenant(place.tenant_id) + place.row_id.bytes + bytes([number])
    return _seal(keys, header, content, digest)


def reseal(keys: KeyRing, match: re.Match[str]) -> str:
    """Return a sealed value with the key that seals now."""
    if match[1] == keys.sealing_id:
        return match[0]
    _, content = open_token(keys, match)
    return _seal(keys, _decode(match[3])[:_HEADER_BYTES], content, match[2])


def open_token(keys: KeyRing, match: re.Match[str]) -> tuple[_Header, bytes]:
    """Return the header and the content of a sealed value. Raise EncryptionError if the key is missing or wrong."""
    from cryptography.exceptions import InvalidTag

    data = _decode(match[3])
    raw, sealed = data[:_HEADER_BYTES], data[_HEADER_BYTES:]
    cipher = keys.get_cipher(match[1])
    try:
        content = cipher.decrypt(sealed, [match[1].encode(), match[2].encode(), raw])
    except (InvalidTag, ValueError) as error:
        raise EncryptionError(
            f"A text that is encrypted with the key {match[1]} cannot be opened: the key has another value than the "
            "one that encrypted it, or the text was changed."
        ) from error
    number = raw[-1]
    column = COLUMNS[number & ~_JSON] if number & ~_JSON < len(COLUMNS) else ""
    header = _Header(raw[:_TENANT_BYTES], UUID(bytes=raw[_TENANT_BYTES:-1]), column, bool(number & _JSON))
    return header, content


def _seal(keys: KeyRing, header: bytes, content: bytes, digest: str) -> str:
    key_id = keys.sealing_id
    sealed = keys.get_cipher(key_id).encrypt(content, [key_id.encode(), digest.encode(), header])
    return f"{PREFIX}{key_id}:{digest}:{_encode(header + sealed)}"


def _hash_tenant(tenant_id: str) -> bytes:
    return hashlib.sha256(tenant_id.encode()).digest()[:_TENANT_BYTES]


def _require_place(header: _Header, row_ids: frozenset[UUID], tenant_id: str | None) -> None:
    if header.row_id not in row_ids or (tenant_id is not None and header.tenant != _hash_tenant(tenant_id)):
        raise EncryptionError(
            f"An encrypted text of the row {header.row_id} stands in another row: the database was changed by "
            "something else than REM. The text is not shown."
        )


def _merge_lines(texts: Iterable[str]) -> Iterator[str]:
    """Yield the lines of some texts once, those with the latest date at their beginning first."""
    lines = dict.fromkeys(line for text in texts for line in text.split("\n") if line)
    yield from sorted(lines, key=lambda line: line[:10], reverse=True)


def _is_uuid(value: Any) -> bool:
    if isinstance(value, UUID):
        return True
    if not isinstance(value, str) or len(value) != 36:
        return False
    try:
        UUID(value)
    except ValueError:
        return False
    return True


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


SEALED_METADATA: Mapping[str, Callable[[Sealer, dict[str, Any], str, UUID], dict[str, Any]]] = {
    "messages": seal_tool_arguments,
    "users": seal_profile,
}
"""What encrypts parts of the metadata of a table."""

"""Seal texts and JSON for one place, and open them only there."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from rem.encryption.key_ring import KeyRing
from rem.encryption.sealed_values import PREFIX, TOKEN, Place, Sealer, reseal
from rem.errors import EncryptionError
from rem.settings import EncryptionSettings
from tests.encryption.keys import K1, K2, OTHER_K1

ROW, OTHER_ROW = UUID(int=1), UUID(int=2)
PLACE = Place("default", ROW, "content")


def make_sealer(*keys: str, is_sealing: bool = True) -> Sealer:
    ring = KeyRing.from_settings(EncryptionSettings(keys=SecretStr(",".join(keys))))
    return Sealer(ring, b"0" * 32, is_sealing=is_sealing)


SEALER = make_sealer(K1)


@given(st.text(min_size=1))
def test_texts_come_back(text: str) -> None:
    sealed = SEALER.seal(text, PLACE)
    assert TOKEN.fullmatch(sealed)
    assert SEALER.open(sealed, [ROW], "default") == text


def test_value_is_bound_to_its_row_column_and_tenant() -> None:
    sealed = SEALER.seal("a secret", PLACE)
    assert sealed == SEALER.seal("a secret", PLACE)
    others = [Place("acme", ROW, "content"), Place("default", OTHER_ROW, "content"), Place("default", ROW, "summary")]
    assert len({sealed, *(SEALER.seal("a secret", place) for place in others)}) == 4
    for row, tenant in ((OTHER_ROW, "default"), (ROW, "acme")):
        with pytest.raises(EncryptionError, match="another row"):
            SEALER.open(sealed, [row], tenant)


def test_changed_value_and_wrong_key_are_refused() -> None:
    sealed = SEALER.seal("a secret", PLACE)
    changed = sealed[:-1] + ("A" if sealed[-1] != "A" else "B")
    for sealer, value in ((SEALER, changed), (make_sealer(OTHER_K1), sealed), (SEALER, sealed.replace(":k1:", ":k2:"))):
        with pytest.raises(EncryptionError):
            sealer.open(value, [ROW])


def test_texts_that_only_look_like_values_stay() -> None:
    for text in ("", "rem1:", "rem1: a note", "plain", f"{PREFIX}k1::short"):
        assert SEALER.open(text, [ROW]) == text


@pytest.mark.parametrize("value", [{"a": [1, {"b": None}]}, [{"arguments": {"text": "x"}}], ["x"]])
def test_json_comes_back(value: Any) -> None:
    sealed = SEALER.seal_json(value, Place("default", ROW, "tool_calls"))
    assert type(sealed) is type(value)
    record = {"id": str(ROW), "tenant_id": "default", "tool_calls": sealed, "metadata": {"arguments": sealed}}
    assert SEALER.open_value(record, frozenset()) == {**record, "tool_calls": value, "metadata": {"arguments": value}}


def test_json_names_the_row_of_its_values() -> None:
    sealed = SEALER.seal("a secret", PLACE)
    assert SEALER.open_value([3, sealed, str(ROW)], frozenset()) == [3, "a secret", str(ROW)]
    for foreign in ({"id": str(OTHER_ROW), "content": sealed}, [sealed, str(OTHER_ROW)], {"content": sealed}):
        with pytest.raises(EncryptionError):
            SEALER.open_value(
                foreign, frozenset({ROW}) if "id" in str(foreign) and isinstance(foreign, dict) else frozenset()
            )


def test_lines_of_several_values_are_merged() -> None:
    texts = ["2026-01-01: first\n2026-03-01: third", "2026-02-01: second\n2026-01-01: first"]
    sealed = "\n".join(SEALER.seal(text, PLACE) for text in texts)
    assert SEALER.open(sealed, [ROW]) == "2026-03-01: third\n2026-02-01: second\n2026-01-01: first"


def test_resealed_value_has_the_new_key_and_the_same_place() -> None:
    sealed = SEALER.seal("a secret", PLACE, with_digest=True)
    both = make_sealer(K2, K1)
    match = TOKEN.fullmatch(sealed)
    assert match is not None
    renewed = reseal(both.keys, match)
    assert renewed.startswith("rem1:k2:")
    assert make_sealer(K2).open(renewed, [ROW], "default") == "a secret"
    assert renewed == both.seal("a secret", PLACE, with_digest=True)


def test_nothing_is_sealed_while_encryption_is_off() -> None:
    off = make_sealer(K1, is_sealing=False)
    assert off.seal("plain", PLACE) == "plain"
    assert off.seal_json([1], PLACE) == [1]
    assert off.open(SEALER.seal("a secret", PLACE), [ROW]) == "a secret"


def test_bytes_come_back() -> None:
    row = uuid4()
    sealed = SEALER.seal_bytes(b"\x00\xff%PDF", Place("default", row, "upload"))
    assert b"PDF" not in sealed
    assert SEALER.open_bytes(sealed, frozenset({row})) == b"\x00\xff%PDF"
    with pytest.raises(EncryptionError):
        SEALER.open_bytes(sealed, frozenset({ROW}))

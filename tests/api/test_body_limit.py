"""Bodies with very many values are refused, because checking them would stop the server for everyone."""

from __future__ import annotations

import json
import time

import httpx2
import pytest
from pydantic import ValidationError

from rem.api.chat_request import ChatRequest
from rem.api.middleware import MAX_JSON_VALUES, JsonValueCounter

DOCUMENTS = {
    "values": [1, 2, {"a": [], "b": {}}],
    "text with marks": {"content": ",[{" * 1000},
    "text with quotes": {"content": '\\ " \\" , \\\\" [', "b": "\\", "c": ['\\"', "x"]},
    "empty": "",
}


@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
def test_only_marks_outside_of_texts_count(name: str, size: int) -> None:
    body = json.dumps(DOCUMENTS[name]).encode()
    counter = JsonValueCounter()
    for start in range(0, len(body), size):
        counter.add(body[start : start + size])
    expected = {"values": 7, "text with marks": 1, "text with quotes": 5, "empty": 0}
    assert counter.values == expected[name]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le"])
def test_no_encoding_hides_values(encoding: str) -> None:
    body = ('{"a":"\\"","b":[' + "0," * MAX_JSON_VALUES + "0]}").encode(encoding)
    counter = JsonValueCounter()
    for start in range(0, len(body), 65_536):
        counter.add(body[start : start + 65_536])
    assert counter.values > MAX_JSON_VALUES


@pytest.mark.parametrize("path", ["/api/v1/entities/resources", "/api/v1/chat/completions", "/api/v1/mcp"])
@pytest.mark.parametrize("content_type", ["application/json", "multipart/x; application/json"])
async def test_body_with_too_many_values_is_refused(as_alice: httpx2.AsyncClient, path: str, content_type: str) -> None:
    body = '{"name": "x", "metadata": {"a": [' + "0," * (MAX_JSON_VALUES + 10) + "0]}}"
    answer = await as_alice.post(path, content=body, headers={"Content-Type": content_type})
    assert answer.status_code == 413, answer.text
    assert answer.json()["error"]["message"] == "The body has more than 20,000 values: send less at once."


async def test_text_with_many_commas_is_stored(as_alice: httpx2.AsyncClient) -> None:
    row = {"name": "Table", "content": "1,2,3\n" * 50_000}
    assert (await as_alice.post("/api/v1/entities/resources", json=row)).status_code == 201


def test_many_errors_in_a_chat_are_described_in_linear_time() -> None:
    body = {"messages": [{"role": "user", "content": [{"type": "x"}] * 1000}] * 10}
    started = time.process_time()
    with pytest.raises(ValidationError) as error:
        ChatRequest.model_validate(body)
    assert time.process_time() - started < 5
    assert 0 < error.value.error_count() <= 100

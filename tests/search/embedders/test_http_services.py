"""The OpenAI and Ollama providers, on a scripted server with every kind of failure."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import numpy as np
import pytest

from rem.errors import EmbeddingMisconfiguredError, EmbeddingUnavailableError
from rem.search.embedder import Embedder, ProviderEmbedder
from rem.search.providers.http_service import HttpService, RetryPolicy
from rem.search.providers.ollama import OllamaProvider
from rem.search.providers.openai import OpenAIProvider
from tests.search.embedders.scripted_server import Reply, ScriptedServer


def vector(text: str) -> list[float]:
    """Return a vector that identifies its text."""
    return [float(len(text)), float(ord(text[0])), 1.0, -0.5]


def direction(text: str) -> Any:
    """Return the unit vector that the embedder makes of it."""
    length = math.hypot(*vector(text))
    return pytest.approx([number / length for number in vector(text)], abs=1e-6)


def openai_answer(body: Any) -> object:
    """Return a valid answer of OpenAI. Its items are out of order, as the protocol allows."""
    items = [{"object": "embedding", "index": n, "embedding": vector(text)} for n, text in enumerate(body["input"])]
    return {"object": "list", "data": items[::-1], "model": body["model"]}


def ollama_answer(body: Any) -> object:
    """Return a valid answer of Ollama."""
    return {"model": body["model"], "embeddings": [vector(text) for text in body["input"]]}


def _openai(
    server: ScriptedServer,
    *,
    retries: int = 3,
    timeout: float = 5.0,
    model: str = "m",
    dimension: int = 4,
    batch_size: int = 3,
) -> Embedder:
    service = HttpService(server.url + "/v1/", {"Authorization": "Bearer sk-test"}, RetryPolicy(retries, timeout, 0.01))
    return ProviderEmbedder(OpenAIProvider(service, model, dimension, batch_size), 8)


def _ollama(server: ScriptedServer, *, retries: int = 3, timeout: float = 5.0) -> Embedder:
    service = HttpService(server.url, {}, RetryPolicy(retries, timeout, 0.01))
    return ProviderEmbedder(OllamaProvider(service, "m", 4, 3), 8)


Opener = Callable[..., Embedder]
BOTH = pytest.mark.parametrize(("opened", "right"), [(_openai, openai_answer), (_ollama, ollama_answer)])


@BOTH
async def test_texts_go_in_batches_and_come_back_in_order(server: ScriptedServer, opened: Opener, right: Any) -> None:
    server.set_script(Reply(right))
    embedder = opened(server)
    texts = ["a", "bb", "ccc", "dddd", "eeeee", "ffffff", "g" * 7]
    vectors = await embedder.embed(texts)
    assert [row.tolist() for row in vectors] == [direction(text) for text in texts]
    assert vectors.dtype == np.float32
    assert [len(request.body["input"]) for request in server.requests] == [3, 3, 1]
    await embedder.close()


async def test_openai_request_follows_its_protocol(server: ScriptedServer) -> None:
    server.set_script(Reply(openai_answer))
    embedder = _openai(server)
    await embedder.embed(["a\0b 😀"])
    (request,) = server.requests
    assert request.path == "/v1/embeddings"
    assert request.headers["authorization"] == "Bearer sk-test"
    assert request.body == {"model": "m", "input": ["a b 😀"], "encoding_format": "float", "dimensions": 4}
    await embedder.close()


async def test_ollama_request_follows_its_protocol(server: ScriptedServer) -> None:
    server.set_script(Reply(ollama_answer))
    embedder = _ollama(server)
    await embedder.embed(["a"])
    (request,) = server.requests
    assert (request.path, request.body) == ("/api/embed", {"model": "m", "input": ["a"], "truncate": True})
    await embedder.close()


async def test_native_dimension_is_not_sent(server: ScriptedServer) -> None:
    server.set_script(Reply(lambda body: {"data": [{"index": 0, "embedding": [0.5] * 1536}]}))
    embedder = _openai(server, model="text-embedding-ada-002", dimension=1536)
    await embedder.embed(["a"])
    assert "dimensions" not in server.requests[0].body
    await embedder.close()


async def test_dimensions_are_dropped_after_the_server_rejects_them(server: ScriptedServer) -> None:
    refusal = {"object": "error", "message": "Model m does not support matryoshka representation"}
    server.set_script(Reply(lambda body: refusal, 400), Reply(openai_answer))
    embedder = _openai(server)
    await embedder.embed(["a", "b", "c", "d"])
    assert ["dimensions" in request.body for request in server.requests] == [True, False, False]
    await embedder.close()


async def test_requests_are_bounded_and_long_texts_are_truncated(server: ScriptedServer) -> None:
    server.set_script(Reply(openai_answer))
    embedder = _openai(server, batch_size=100)
    await embedder.embed([chr(97 + number) + "é" * 500_000 for number in range(20)])
    sizes = [[len(text.encode()) for text in request.body["input"]] for request in server.requests]
    assert sum(map(len, sizes)) == 20
    assert all(sum(request) <= 500_000 and max(request) <= 32_000 for request in sizes)
    await embedder.close()


async def test_too_long_text_is_truncated_until_it_fits(server: ScriptedServer) -> None:
    too_long = {"error": {"message": "This model's maximum context length is 512 tokens", "code": None}}
    server.set_script(Reply(lambda body: too_long, 400), Reply(lambda body: too_long, 400), Reply(openai_answer))
    embedder = _openai(server)
    await embedder.embed(["word " * 2_000, "short"])
    assert [len(request.body["input"][0]) for request in server.requests] == [10_000, 5_000, 2_500]
    assert {request.body["input"][1] for request in server.requests} == {"short"}
    await embedder.close()


async def test_text_that_never_fits_is_an_error(server: ScriptedServer) -> None:
    server.set_script(Reply(lambda body: {"error": {"message": "input is too long"}}, 400))
    embedder = _openai(server)
    with pytest.raises(EmbeddingMisconfiguredError, match="input is too long"):
        await embedder.embed(["word " * 20_000])
    assert len(server.requests) < 12
    await embedder.close()


@BOTH
@pytest.mark.parametrize("status", [429, 500, 502, 503, 529])
async def test_temporary_failure_is_retried(server: ScriptedServer, opened: Opener, right: Any, status: int) -> None:
    server.set_script(Reply(b"busy", status), Reply(b"busy", status), Reply(right))
    embedder = opened(server)
    assert (await embedder.embed_one("abc")).tolist() == direction("abc")
    assert len(server.requests) == 3
    await embedder.close()


@BOTH
async def test_dropped_connection_is_retried(server: ScriptedServer, opened: Opener, right: Any) -> None:
    server.set_script(Reply(None), Reply(right))
    embedder = opened(server)
    assert (await embedder.embed_one("abc")).tolist() == direction("abc")
    await embedder.close()


@BOTH
async def test_slow_answer_times_out_and_is_retried(server: ScriptedServer, opened: Opener, right: Any) -> None:
    server.set_script(Reply(right, delay=0.8), Reply(right))
    embedder = opened(server, timeout=0.2)
    assert (await embedder.embed_one("abc")).tolist() == direction("abc")
    assert len(server.requests) == 2
    await embedder.close()


@BOTH
async def test_service_that_stays_down_is_unavailable(server: ScriptedServer, opened: Opener, right: Any) -> None:
    server.set_script(Reply(right, delay=0.5))
    embedder = opened(server, timeout=0.1, retries=1)
    with pytest.raises(EmbeddingUnavailableError, match=r"did not answer within 0.1 s \(EMBEDDING__TIMEOUT_SECONDS\)"):
        await embedder.embed(["abc"])
    assert len(server.requests) == 2
    await embedder.close()


async def test_retry_after_is_obeyed_as_seconds_and_as_a_date(server: ScriptedServer) -> None:
    for header in ("0.6", None):
        # A date has whole seconds, so this one is between one and two seconds away.
        date = format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)
        server.requests.clear()
        server.set_script(Reply(b"{}", 429, {"Retry-After": header or date}), Reply(openai_answer))
        embedder = _openai(server)
        started = time.perf_counter()
        await embedder.embed(["abc"])
        assert 0.5 <= time.perf_counter() - started < 4
        await embedder.close()


async def test_long_retry_after_fails_at_once(server: ScriptedServer) -> None:
    server.set_script(Reply(lambda body: {"error": {"message": "rate limit"}}, 429, {"Retry-After": "7200"}))
    embedder = _openai(server)
    with pytest.raises(EmbeddingUnavailableError, match="answered 429: rate limit"):
        await embedder.embed(["abc"])
    assert len(server.requests) == 1
    await embedder.close()


async def test_exhausted_quota_is_not_retried(server: ScriptedServer) -> None:
    server.set_script(Reply(lambda body: {"error": {"message": "You exceeded", "code": "insufficient_quota"}}, 429))
    embedder = _openai(server)
    with pytest.raises(EmbeddingUnavailableError, match="You exceeded"):
        await embedder.embed(["abc"])
    assert len(server.requests) == 1
    await embedder.close()


@BOTH
@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, "EMBEDDING__API_KEY"),
        (403, "EMBEDDING__API_KEY"),
        (404, "EMBEDDING__"),
        (400, "bad"),
        (301, "EMBEDDING__BASE_URL"),
    ],
)
async def test_permanent_failure_is_raised_at_once(
    server: ScriptedServer, opened: Opener, right: Any, status: int, said: str
) -> None:
    server.set_script(Reply(lambda body: {"error": {"message": "bad"}}, status, {"Location": "/elsewhere"}))
    embedder = opened(server)
    with pytest.raises(EmbeddingMisconfiguredError, match=said) as caught:
        await embedder.embed(["abc"])
    assert len(server.requests) == 1
    assert "sk-test" not in str(caught.value)
    await embedder.close()


async def test_missing_ollama_model_error_names_the_pull_command(server: ScriptedServer) -> None:
    server.set_script(Reply(lambda body: {"error": 'model "m" not found, try pulling it first'}, 404))
    embedder = _ollama(server)
    with pytest.raises(EmbeddingMisconfiguredError, match="ollama pull m"):
        await embedder.embed(["abc"])
    await embedder.close()


@BOTH
@pytest.mark.parametrize(
    "body", [b"<html>Welcome</html>", b"", b"[1, 2", b"[]", b"null", b'{"data": null}', b'{"data": [1]}', b'"x"']
)
async def test_invalid_answer_is_an_error(server: ScriptedServer, opened: Opener, right: Any, body: bytes) -> None:
    server.set_script(Reply(body))
    embedder = opened(server)
    with pytest.raises(EmbeddingUnavailableError, match="EMBEDDING__BASE_URL"):
        await embedder.embed(["abc"])
    await embedder.close()


def _rows(server: ScriptedServer, rows: list[Any]) -> None:
    server.set_script(
        Reply(
            lambda body: {
                "data": [{"index": number, "embedding": row} for number, row in enumerate(rows)],
                "embeddings": rows,
            }
        )
    )


_GOOD = [1.0, 2.0, 3.0, 4.0]


@BOTH
@pytest.mark.parametrize(
    "rows",
    [
        [],
        [_GOOD],
        [_GOOD, _GOOD, _GOOD],
        [_GOOD, [0.0, 0.0, 0.0, 0.0]],
        [_GOOD, [1.0, None, 1.0, 1.0]],
        [_GOOD, [1.0, "2", 1.0, 1.0]],
        [_GOOD, [1.0, True, 1.0, 1.0]],
        [_GOOD, [1.0, 1e39, 1.0, 1.0]],
        [_GOOD, [1.0, float("nan"), 1.0, 1.0]],
        [_GOOD, [1.0, float("inf"), 1.0, 1.0]],
        [_GOOD, [1.0, 2.0]],
        [_GOOD, 7],
        [_GOOD, [[1.0], [2.0], [3.0], [4.0]]],
    ],
    ids=str,
)
async def test_invalid_vectors_are_rejected(
    server: ScriptedServer, opened: Opener, right: Any, rows: list[Any]
) -> None:
    _rows(server, rows)
    embedder = opened(server)
    with pytest.raises(EmbeddingUnavailableError):
        await embedder.embed(["abc", "def"])
    await embedder.close()


@BOTH
async def test_wrong_dimension_error_names_the_setting(server: ScriptedServer, opened: Opener, right: Any) -> None:
    _rows(server, [[1.0] * 6])
    embedder = opened(server)
    with pytest.raises(
        EmbeddingMisconfiguredError, match="6 dimensions, and EMBEDDING__DIMENSION is 4: set EMBEDDING__DIMENSION=6"
    ):
        await embedder.embed(["abc"])
    await embedder.close()


async def test_repeated_index_in_the_answer_is_an_error(server: ScriptedServer) -> None:
    server.set_script(
        Reply(lambda body: {"data": [{"index": 0, "embedding": _GOOD}, {"index": 0, "embedding": _GOOD}]})
    )
    embedder = _openai(server)
    with pytest.raises(EmbeddingUnavailableError, match="one vector for each of 2 texts"):
        await embedder.embed(["abc", "def"])
    await embedder.close()


async def test_failed_query_is_not_cached(server: ScriptedServer) -> None:
    server.set_script(Reply(b"<html>"), Reply(openai_answer))
    embedder = _openai(server)
    with pytest.raises(EmbeddingUnavailableError):
        await embedder.embed_one("abc")
    assert (await embedder.embed_one("abc")).tolist() == direction("abc")
    await embedder.embed_one("abc")
    assert len(server.requests) == 2
    await embedder.close()


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://no.such.host.invalid"])
async def test_unreachable_server_is_unavailable(url: str) -> None:
    embedder = ProviderEmbedder(OllamaProvider(HttpService(url, {}, RetryPolicy(1, 2.0, 0.01)), "m", 4, 3), 8)
    with pytest.raises(EmbeddingUnavailableError, match=r"Is EMBEDDING__BASE_URL right\?"):
        await embedder.embed(["abc"])
    await embedder.close()


@pytest.mark.parametrize("url", ["localhost:11434", "ftp://host", "http://host:port", "nonsense"])
async def test_invalid_address_is_misconfigured(url: str) -> None:
    embedder = ProviderEmbedder(OllamaProvider(HttpService(url, {}, RetryPolicy(3, 2.0, 0.01)), "m", 4, 3), 8)
    with pytest.raises(EmbeddingMisconfiguredError, match=r"EMBEDDING__BASE_URL .* is not a valid address"):
        await embedder.embed(["abc"])
    await embedder.close()


async def test_waiting_for_a_service_can_be_cancelled(server: ScriptedServer) -> None:
    server.set_script(Reply(b"{}", 503, {"Retry-After": "30"}))
    embedder = _openai(server)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(embedder.embed(["abc"]), 0.3)
    await embedder.close()

"""The model of the package: its vectors stay the same in every batch, without blocking the event loop."""

from __future__ import annotations

import asyncio
import json
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rem.errors import InvalidInputError
from rem.search.embedder import Embedder, Vectors
from rem.search.embedder_factory import open_embedder
from rem.search.models.files import (
    EMBEDDER,
    MAX_TOKENS,
    SessionWithWords,
    has_exact_int8_sums,
    load_session,
    load_tokenizer,
    load_words,
    read_file,
)
from rem.search.providers.local import HEAD_CHARS, LocalProvider
from rem.search.thread_pool import plan_batches
from rem.settings import EmbeddingSettings, Settings
from tests.rem_command import run_python

_REFERENCE = json.loads((Path(__file__).parent / "reference.json").read_text(encoding="utf-8"))
_WORDS = re.findall(
    r"\w+",
    "memory river tuesday compiler garden sarah meeting violin invoice harbour lantern theory bread quiet signal "
    "mountain doctor ticket winter orange protocol neighbour castle engine letter",
)


def sentences(count: int, longest: int = 80) -> list[str]:
    source = random.Random(count)
    return [" ".join(source.choices(_WORDS, k=source.randint(1, longest))) + f" {n}" for n in range(count)]


def cosines(left: Vectors, right: Vectors) -> Vectors:
    product: Vectors = (left * right).sum(axis=1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)
    return product


async def test_vectors_are_those_of_the_release(local: Embedder) -> None:
    vectors = await local.embed(_REFERENCE["texts"])
    assert cosines(vectors, np.array(_REFERENCE["vectors"], dtype=np.float32)).min() >= 0.9999


def test_cpu_without_exact_sums_gets_the_same_vectors() -> None:
    assert has_exact_int8_sums() in (True, False)
    tokens = load_tokenizer().encode_batch(_REFERENCE["texts"])
    for ids in (np.array([own.ids], dtype=np.int32) for own in tokens):
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        graph = read_file(EMBEDDER)
        sessions = [
            SessionWithWords(load_session(graph, has_exact_sums=has_exact_sums), load_words())
            for has_exact_sums in (has_exact_int8_sums(), False)
        ]
        usual, slow = (session.run(["embedding"], feed)[0] for session in sessions)
        assert np.abs(usual - slow).max() < 1e-5


async def test_vectors_are_unit_float32_rows(local: Embedder) -> None:
    vectors = await local.embed(sentences(10))
    assert (vectors.shape, str(vectors.dtype)) == ((10, 384), "float32")
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert (local.model, local.dimension) == ("rem-embed-2", 384)


async def test_vector_does_not_depend_on_the_batch(local: Embedder) -> None:
    texts = sentences(60)
    together = await local.embed(texts)
    alone = np.stack([await local.embed_one(text) for text in texts])
    shuffled = await local.embed(texts[::-1])
    assert cosines(together, alone).min() > 0.99999
    assert cosines(together, shuffled[::-1]).min() > 0.99999


async def test_repeated_texts_have_one_row_each(local: Embedder) -> None:
    vectors = await local.embed(["a river", "a garden", "a river"])
    assert (vectors[0] == vectors[2]).all()
    assert not (vectors[0] == vectors[1]).all()


async def test_no_texts_give_no_vectors(local: Embedder) -> None:
    assert (await local.embed([])).shape == (0, 384)


@pytest.mark.parametrize("blank", ["", "   ", "\n\t ", "\0", "\u200b\u200e", "\x00 \x1f"])
async def test_blank_texts_are_rejected_with_their_position(local: Embedder, blank: str) -> None:
    with pytest.raises(InvalidInputError, match="blank text at position 1"):
        await local.embed(["something", blank])
    with pytest.raises(InvalidInputError, match="blank text"):
        await local.embed_one(blank)


@pytest.mark.parametrize(
    "text",
    [
        "a\0b",
        "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 😀🏽",
        "half a pair \ud83d",
        "[CLS] [MASK] [PAD]",
        "日本語" * 50,
        "x" * 1_000_000,
        "é\u0301" * 500,
    ],
)
async def test_any_readable_text_has_a_vector(local: Embedder, text: str) -> None:
    assert np.isfinite(await local.embed_one(text)).all()


async def test_only_the_first_256_tokens_count(local: Embedder) -> None:
    start = "The observatory opens at night. " * 60
    long = start + "Nobody reads this. " * 50_000
    started = time.perf_counter()
    assert (await local.embed_one(long) == await local.embed_one(start)).all()
    assert time.perf_counter() - started < 2


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10**6),
    glue=st.sampled_from([" ", "", "\n", "\u3000", "-", "\u0301"]),
    words=st.lists(st.sampled_from([*_WORDS, "日本", "x" * 300, "ünï", "😀", "a.b"]), min_size=1, max_size=6),
)
def test_start_of_a_long_text_gives_the_same_tokens(seed: int, glue: str, words: list[str]) -> None:
    text = glue.join(random.Random(seed).choices(words, k=3 * HEAD_CHARS // (len(words[0]) + len(glue)) + 1))
    provider = LocalProvider(threads=1, batch_size=8)
    provider._load = lambda: _Tokenizing  # type: ignore[assignment,method-assign,return-value]
    assert provider._tokenize([text])[0] == _Tokenizing.tokenizer.encode(text).ids


class _Tokenizing:
    tokenizer = load_tokenizer()


def test_batches_hold_every_text_once_with_bounded_tokens() -> None:
    source = random.Random(7)
    lengths = [source.randint(2, MAX_TOKENS) for _ in range(500)]
    made = list(plan_batches(lengths, 64))
    assert sorted(number for batch in made for number in batch) == list(range(500))
    assert all(len(batch) <= 64 and len(batch) * max(lengths[n] for n in batch) <= 512 for batch in made)
    padding = sum(len(batch) * lengths[batch[0]] for batch in made) / sum(lengths)
    assert padding < 1.05
    assert list(plan_batches([5, 5, 5], 2)) == [[0, 1], [2]]
    assert list(plan_batches([], 2)) == []


async def test_embedding_does_not_block_the_event_loop(local: Embedder) -> None:
    await local.embed_one("warm")
    work = asyncio.ensure_future(local.embed(sentences(150)))
    pauses, last = [], time.perf_counter()
    while not work.done():
        await asyncio.sleep(0.001)
        pauses.append(time.perf_counter() - last)
        last = time.perf_counter()
    assert len(pauses) > 20
    assert sorted(pauses)[len(pauses) // 2] < 0.05


async def test_query_does_not_wait_for_a_large_batch(local: Embedder) -> None:
    await local.embed_one("warm")
    work = asyncio.ensure_future(local.embed(sentences(250)))
    await asyncio.sleep(0.05)
    await local.embed_one("a query in between")
    assert not work.done()
    await work


async def test_cancelled_call_stops_and_the_next_one_works(local: Embedder) -> None:
    work = asyncio.ensure_future(local.embed(sentences(2_000)))
    await asyncio.sleep(0.2)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    started = time.perf_counter()
    await local.embed_one("still here")
    assert time.perf_counter() - started < 5


async def test_concurrent_calls_get_their_own_rows(local: Embedder) -> None:
    groups = [sentences(count) for count in (3, 17, 40)]
    answers = await asyncio.gather(*(local.embed(group) for group in groups))
    for group, answer in zip(groups, answers, strict=True):
        assert cosines(answer, await local.embed(group)).min() > 0.99999


async def test_recent_queries_are_cached_read_only(local: Embedder) -> None:
    first = await local.embed_one("where is the lantern")
    assert await local.embed_one("where is the lantern") is first
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 0


async def test_query_cache_is_bounded() -> None:
    embedder = open_embedder(Settings(embedding=EmbeddingSettings(provider="local", cache_size=2)))
    first, second = await embedder.embed_one("one"), await embedder.embed_one("two")
    assert await embedder.embed_one("one") is first
    await embedder.embed_one("three")
    assert await embedder.embed_one("one") is first
    assert await embedder.embed_one("two") is not second
    await embedder.close()


_SHARE = """
import asyncio, weakref
from rem.search.embedder_factory import open_embedder
from rem.search.providers.local import LOADED_MODELS, MODEL
from rem.settings import Settings

async def main():
    first, second = open_embedder(Settings()), open_embedder(Settings())
    expected = await first.embed_one("load it")
    model = weakref.ref(LOADED_MODELS[MODEL])
    is_same = (await second.embed_one("load it") == expected).all()
    is_shared = LOADED_MODELS[MODEL] is model()
    await first.close()
    still_works = (await second.embed_one("still there") != 0).any()
    await second.close()
    print(is_same, is_shared, still_works, model() is None)

asyncio.run(main())
"""


def test_open_embedders_share_one_model_and_the_last_frees_it() -> None:
    # In a process of its own: in this one, other tests may have the model open.
    assert run_python(_SHARE, settings={}).stdout.split() == ["True"] * 4


def test_opening_an_embedder_imports_no_model_library() -> None:
    probe = (
        "import sys; from pathlib import Path; from rem.search.embedder_factory import open_embedder;"
        "from rem.settings import Settings; open_embedder(Settings(rem_home=Path('/nowhere')));"
        "heavy = {'numpy', 'onnx', 'onnxruntime', 'tokenizers', 'httpx2', 'safetensors', 'fastembed'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

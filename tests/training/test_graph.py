"""The graphs that training exports: int8 is close to float32, and texts do not depend on their batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from bench.embedder import make_weights
from numpy.typing import NDArray
from training.graph import EXACT_STEPS, HEADS, OUTLIER_CHANNELS, build_encoder, build_reader, build_tagger
from training.load_weights import unpack_graph

from rem.search.models.files import FOLDER, READER, SessionWithWords, load_session, load_words
from rem.search.reader import LoadedReader, load_reader

_SIZE, _HEADS, _WORDS = 48, 4, 100
_WEIGHTS = make_weights(_SIZE, layers=2, words=_WORDS, positions=32)
_HEADED = _WEIGHTS | {
    "head.weight": np.ones((3, _SIZE), dtype=np.float32),
    "head.bias": np.array([0.1, 0.2, 0.7], dtype=np.float32),
    "case": np.ones((4, _SIZE), dtype=np.float32),
}
_IDS = np.random.default_rng(2).integers(1, _WORDS, (6, 20)).astype(np.int32)


def _run(graph: Any, output: str, **feed: NDArray[Any]) -> NDArray[Any]:
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run([output], feed)[0])


def _embed(ids: NDArray[Any], steps: int | None, **options: bool) -> NDArray[Any]:
    graph = build_encoder(_WEIGHTS, heads=_HEADS, outliers={3: 10.0}, weight_steps=steps, **options)
    words = {"words": _WEIGHTS["embeddings.word_embeddings.weight"][ids]} if options.get("has_words") is False else {}
    return _run(graph, "embedding", **(words or {"input_ids": ids}), attention_mask=np.ones_like(ids))


@pytest.mark.parametrize("options", [{}, {"int8_words": True}, {"has_words": False}])
def test_int8_vectors_are_close_to_exact_ones(options: dict[str, bool]) -> None:
    exact, small = _embed(_IDS, None), _embed(_IDS, EXACT_STEPS, **options)
    assert np.allclose(np.linalg.norm(small, axis=1), 1, atol=1e-5)
    assert (exact * small).sum(axis=1).min() > 0.999


def test_int8_vector_does_not_depend_on_the_batch() -> None:
    together = _embed(_IDS, EXACT_STEPS)
    alone = np.concatenate([_embed(_IDS[row : row + 1], EXACT_STEPS) for row in range(len(_IDS))])
    assert np.abs(together - alone).max() < 1e-5


def test_tagger_gives_the_probabilities_of_each_token() -> None:
    words = _WEIGHTS["embeddings.word_embeddings.weight"][_IDS]
    graph = build_tagger(_HEADED, heads=_HEADS, outliers={}, weight_steps=EXACT_STEPS)
    found = _run(graph, "probabilities", words=words, cases=np.zeros_like(_IDS), attention_mask=np.ones_like(_IDS))
    assert found.shape == (*_IDS.shape, 3)
    assert np.allclose(found.sum(axis=-1), 1, atol=1e-5)


def test_heads_of_the_reader_are_close_to_exact_ones() -> None:
    words = _WEIGHTS["embeddings.word_embeddings.weight"][_IDS]
    heads = {"pair": 3, "span": 2, "message": 5}
    generator = np.random.default_rng(3)
    weights = dict(_WEIGHTS)
    for name, size in heads.items():
        weights[f"{name}.weight"] = generator.normal(size=(size, _SIZE)).astype(np.float32) * 0.1
        weights[f"{name}.bias"] = np.zeros(size, dtype=np.float32)
    kinds = np.repeat([[0] * 8 + [1] * 12], len(_IDS), 0).astype(np.int32)
    feed = {"words": words, "token_type_ids": kinds, "attention_mask": np.ones_like(_IDS)}
    graphs = [build_reader(weights, heads=_HEADS, outliers={}, weight_steps=steps) for steps in (None, EXACT_STEPS)]
    for name, size in heads.items():
        exact, small = (_run(graph, name, **feed) for graph in graphs)
        assert small.shape == ((*_IDS.shape, size) if name == "span" else (len(_IDS), size))
        assert np.allclose(exact, small, atol=0.1)
    # The head of messages reads only the first text.
    feed["words"] = np.concatenate([words[:, :8], words[::-1, 8:]], axis=1)
    alone = {key: value[:, :8] for key, value in feed.items()}
    assert _run(graphs[0], "message", **alone).shape == (len(_IDS), heads["message"])


def test_lower_layers_and_unpacked_weights_are_those_of_the_package() -> None:
    weights = unpack_graph(FOLDER / READER)
    again = build_reader(weights, heads=HEADS, outliers=OUTLIER_CHANNELS, weight_steps=EXACT_STEPS)
    pairs = [load_reader().encode("Where is the lamp?", "The lamp is in the attic")]
    (known,), (made,) = (
        model.run(pairs)
        for model in (
            load_reader(),
            LoadedReader(SessionWithWords(load_session(again.SerializeToString()), load_words())),
        )
    )
    assert np.allclose(known.pair, made.pair, atol=0.5)
    assert known.message.argmax() == made.message.argmax()

"""The ONNX graph: float32 is exact, int8 is close to it, and the CPU's arithmetic is probed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from rem.embeddings.minilm.graph import build_encoder, has_exact_int8_sums, reduce_steps
from rem.embeddings.minilm.model import MiniLM
from rem.embeddings.minilm.weights import HEADS, OUTLIER_CHANNELS, TENSORS, find_weights

pytestmark = pytest.mark.slow

_REFERENCE = json.loads((Path(__file__).parent / "reference.json").read_text(encoding="utf-8"))


def _run(
    weight_steps: int | None, texts: list[str], *, int8_words: bool = False, reduced_to: int | None = None
) -> NDArray[Any]:
    folder = find_weights(Path("/nowhere"))
    assert folder is not None
    weights = load_file(folder / TENSORS)
    model = build_encoder(
        weights, heads=HEADS, outliers=OUTLIER_CHANNELS, weight_steps=weight_steps, int8_words=int8_words
    )
    graph = model.SerializeToString()
    if weight_steps is not None and reduced_to is not None:
        graph = reduce_steps(graph, weight_steps, reduced_to)
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    tokens = [encoding.ids for encoding in MiniLM(Path("/nowhere"), folder).load_tokenizer().encode_batch(texts)]
    ids = np.zeros((len(tokens), max(map(len, tokens))), dtype=np.int32)
    mask = np.zeros_like(ids)
    for row, own in enumerate(tokens):
        ids[row, : len(own)], mask[row, : len(own)] = own, 1
    return np.asarray(session.run(None, {"input_ids": ids, "attention_mask": mask})[0])


@pytest.mark.parametrize(("weight_steps", "least"), [(None, 0.99999), (127, 0.99), (63, 0.98)])
def test_vectors_match_the_torch_model_within_their_precision(weight_steps: int | None, least: float) -> None:
    vectors = _run(weight_steps, _REFERENCE["texts"])
    reference = np.array(_REFERENCE["vectors"])
    assert ((vectors * reference).sum(axis=1) / np.linalg.norm(reference, axis=1)).min() >= least


@pytest.mark.parametrize(("reduced_to", "least"), [(None, 0.99), (63, 0.98)])
def test_small_graph_matches_the_torch_model(reduced_to: int | None, least: float) -> None:
    vectors = _run(127, _REFERENCE["texts"], int8_words=True, reduced_to=reduced_to)
    reference = np.array(_REFERENCE["vectors"])
    assert ((vectors * reference).sum(axis=1) / np.linalg.norm(reference, axis=1)).min() >= least


def test_int8_keeps_the_order_of_neighbours() -> None:
    texts = [text for text in _REFERENCE["texts"] if len(text) < 200]
    exact, quick = _run(None, texts), _run(127, texts)
    assert np.abs(exact @ exact.T - quick @ quick.T).max() < 0.05


def test_cpu_is_probed_for_exact_int8_sums() -> None:
    assert has_exact_int8_sums() in (True, False)

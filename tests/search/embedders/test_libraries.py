"""fastembed with a tiny model, and sentence-transformers with a stand-in package (the real one needs torch)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from rem.errors import EmbeddingMisconfiguredError, EmbeddingUnavailableError
from rem.search.embedder_factory import open_embedder
from rem.search.models.files import TOKENIZER, read_file
from rem.settings import EmbeddingSettings, Settings

pytestmark = pytest.mark.slow

_MODEL = "sentence-transformers/all-MiniLM-L6-v2"


@pytest.fixture
def tiny_model(tmp_path: Path) -> Path:
    """Write a tiny model in the files that fastembed reads: a random row for each token."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes(read_file(TOKENIZER))
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    files = {
        "config.json": {"pad_token_id": 0},
        "tokenizer_config.json": {"model_max_length": 512, **special},
        "special_tokens_map.json": special,
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    table = np.random.default_rng(1).normal(size=(30_522, 384)).astype(np.float32)
    names = ("input_ids", "attention_mask", "token_type_ids")
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])],
        "tiny",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"]) for name in names],
        [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["batch", "tokens", 384])],
        [numpy_helper.from_array(table, "table")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.save(model, folder / "model.onnx")
    return folder


def _settings(home: Path, **wanted: object) -> Settings:
    return Settings(rem_home=home, embedding=EmbeddingSettings.model_validate(wanted))


async def test_fastembed_loads_a_model_from_a_folder_and_embeds(tiny_model: Path, tmp_path: Path) -> None:
    wanted = {"provider": "fastembed", "model_path": tiny_model, "batch_size": 2, "threads": 1}
    embedder = open_embedder(_settings(tmp_path, **wanted))
    vectors = await embedder.embed(["a river", "a garden", "a river in the garden", "😀", "word " * 3_000])
    assert (vectors.shape, str(vectors.dtype)) == ((5, 384), "float32")
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-4)
    assert np.allclose(await embedder.embed_one("a garden"), vectors[1], atol=1e-5)
    assert vectors[0] @ vectors[2] > vectors[0] @ vectors[3]
    await embedder.close()


async def test_fastembed_reports_the_matching_dimension(tiny_model: Path, tmp_path: Path) -> None:
    embedder = open_embedder(_settings(tmp_path, provider="fastembed", model_path=tiny_model, dimension=768))
    with pytest.raises(EmbeddingMisconfiguredError, match="set EMBEDDING__DIMENSION=384"):
        await embedder.embed(["text"])
    await embedder.close()


async def test_unknown_fastembed_model_is_a_helpful_error(tmp_path: Path) -> None:
    embedder = open_embedder(_settings(tmp_path, provider="fastembed", model="nobody/nothing"))
    with pytest.raises(EmbeddingUnavailableError, match=r"nobody/nothing cannot be loaded: .*EMBEDDING__MODEL_PATH"):
        await embedder.embed(["text"])
    await embedder.close()


_STAND_IN = '''
"""The part of sentence-transformers that REM calls, on rows of letter counts."""
import numpy

class SentenceTransformer:
    def __init__(self, name, device=None):
        if name == "broken":
            raise OSError("there is no such model")
        self.name, self.device = name, device

    def get_embedding_dimension(self):
        return 26

    def encode(self, sentences, batch_size=32, normalize_embeddings=False, show_progress_bar=None):
        assert self.device == "cpu" and show_progress_bar is False and 0 < len(sentences) <= batch_size
        if "fail" in sentences:
            raise RuntimeError("out of memory")
        rows = numpy.array([[text.count(chr(97 + n)) for n in range(26)] for text in sentences], dtype=numpy.float64)
        with numpy.errstate(invalid="ignore"):
            return rows / numpy.linalg.norm(rows, axis=1, keepdims=True) if normalize_embeddings else rows
'''


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a stand-in package `sentence_transformers` importable."""
    (tmp_path / "sentence_transformers.py").write_text(_STAND_IN, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "sentence_transformers", raising=False)


@pytest.mark.usefixtures("stand_in")
async def test_sentence_transformers_is_called_with_its_arguments(tmp_path: Path) -> None:
    wanted = {"provider": "sentence-transformers", "dimension": 26, "batch_size": 2}
    embedder = open_embedder(_settings(tmp_path, **wanted))
    vectors = await embedder.embed(["abc", "aab", "xyz"])
    assert (vectors.shape, str(vectors.dtype), embedder.model) == ((3, 26), "float32", _MODEL)
    assert vectors[0] @ vectors[1] > 0.5 > vectors[0] @ vectors[2]
    with pytest.raises(EmbeddingUnavailableError, match="failed: out of memory"):
        await embedder.embed(["fail"])
    with pytest.raises(EmbeddingUnavailableError, match="not finite"):
        await embedder.embed(["123"])
    await embedder.close()


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize(
    ("wanted", "kind", "said"),
    [
        ({"model": "broken", "dimension": 26}, EmbeddingUnavailableError, "broken cannot be loaded: there is no such"),
        ({}, EmbeddingMisconfiguredError, "set EMBEDDING__DIMENSION=26"),
    ],
)
async def test_unsuitable_sentence_transformers_models_are_rejected(
    tmp_path: Path, wanted: dict[str, object], kind: type[Exception], said: str
) -> None:
    embedder = open_embedder(_settings(tmp_path, provider="sentence-transformers", **wanted))
    with pytest.raises(kind, match=said):
        await embedder.embed(["text"])
    await embedder.close()

"""A tiny cross-encoder for tests: its score is the number of words that the question and the text share."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
WORDS = ("river", "garden", "violin", "lantern", "bread", "zürich", "東京", "😀", "where", "is", "the", "a")
_FILLERS = tuple(f"w{number}" for number in range(40))
VOCABULARY = {word: number for number, word in enumerate((*SPECIAL, *WORDS, *_FILLERS))}
_OPSET, _IR_VERSION = 18, 10


@dataclass(frozen=True)
class Tiny:
    """The options of the model. Its logits are `shared words - 2`; with two labels, the negative comes first."""

    labels: int = 1
    flat: bool = False
    """Whether the output of one label has no dimension for labels."""
    inputs: tuple[str, ...] = ("input_ids", "attention_mask", "token_type_ids")
    integers: int = TensorProto.INT64
    positions: int = 512
    """The model fails with more tokens, as real models do."""
    bias: float = -2.0
    output: str = "logits"

    def graph(self) -> bytes:
        """Return the model as ONNX."""
        table = np.eye(len(VOCABULARY), dtype=np.float32)
        table[[VOCABULARY[word] for word in SPECIAL]] = 0
        if "attention_mask" in self.inputs:
            table[VOCABULARY["[PAD]"]] = 100  # ruins the score, unless the mask hides it
        constants: dict[str, NDArray[Any]] = {
            "table": table,
            "places": np.zeros((self.positions, len(VOCABULARY)), dtype=np.float32),
            "zero": np.array(0, dtype=np.int64),
            "one": np.array(1, dtype=np.int64),
            "one_float": np.array(1, dtype=np.float32),
            "half": np.array(0.5, dtype=np.float32),
            "bias": np.array(self.bias, dtype=np.float32),
            "tokens_axis": np.array([1], dtype=np.int64),
            "last_axis": np.array([-1], dtype=np.int64),
        }
        nodes = [
            helper.make_node("Gather", ["table", "input_ids"], ["looked_up"]),
            helper.make_node("Shape", ["input_ids"], ["shape"]),
            helper.make_node("Gather", ["shape", "one"], ["length"]),
            helper.make_node("Range", ["zero", "length", "one"], ["positions"]),
            helper.make_node("Gather", ["places", "positions"], ["placed"]),
            helper.make_node("Add", ["looked_up", "placed"], ["embedded"]),
            *self._masked(),
            *(self._shared_by_type() if "token_type_ids" in self.inputs else self._shared_by_repetition()),
            helper.make_node("Add", ["shared", "bias"], ["score"]),
            *self._labelled(),
        ]
        graph = helper.make_graph(
            nodes,
            "tiny",
            [helper.make_tensor_value_info(name, self.integers, ["batch", "tokens"]) for name in self.inputs],
            [helper.make_tensor_value_info(self.output, TensorProto.FLOAT, None)],
            [numpy_helper.from_array(values, name) for name, values in constants.items()],
        )
        opsets = [helper.make_opsetid("", _OPSET)]
        content: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION).SerializeToString()
        return content

    def _masked(self) -> list[Any]:
        if "attention_mask" not in self.inputs:
            return [helper.make_node("Identity", ["embedded"], ["visible"])]
        return [
            helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["mask", "last_axis"], ["mask_column"]),
            helper.make_node("Mul", ["embedded", "mask_column"], ["visible"]),
        ]

    def _shared_by_type(self) -> list[Any]:
        """Return nodes that compare the words of the question with those of the text."""
        return [
            helper.make_node("Cast", ["token_type_ids"], ["types"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["types", "last_axis"], ["second"]),
            helper.make_node("Sub", ["one_float", "second"], ["first"]),
            helper.make_node("Mul", ["visible", "first"], ["in_question"]),
            helper.make_node("Mul", ["visible", "second"], ["in_text"]),
            helper.make_node("ReduceMax", ["in_question", "tokens_axis"], ["question"], keepdims=0),
            helper.make_node("ReduceMax", ["in_text", "tokens_axis"], ["text"], keepdims=0),
            helper.make_node("Mul", ["question", "text"], ["both"]),
            helper.make_node("ReduceSum", ["both", "last_axis"], ["shared"], keepdims=1),
        ]

    def _shared_by_repetition(self) -> list[Any]:
        """Return nodes that count the shared words, if no word is repeated within the question or the text."""
        return [
            helper.make_node("ReduceSum", ["visible", "tokens_axis"], ["counts"], keepdims=0),
            helper.make_node("Mul", ["counts", "counts"], ["squares"]),
            helper.make_node("Sub", ["squares", "counts"], ["repeated"]),
            helper.make_node("Mul", ["repeated", "half"], ["halves"]),
            helper.make_node("ReduceSum", ["halves", "last_axis"], ["shared"], keepdims=1),
        ]

    def _labelled(self) -> list[Any]:
        if self.labels == 0:
            return [helper.make_node("Identity", ["embedded"], [self.output])]
        if self.flat:
            return [helper.make_node("Squeeze", ["score", "last_axis"], [self.output])]
        negative = helper.make_node("Neg", ["score"], ["opposite"])
        parts = ["opposite"] * (self.labels - 1) + ["score"]
        return [negative, helper.make_node("Concat", parts, [self.output], axis=1)]


def tokenizer(*, pairs: bool = True) -> Tokenizer:
    """Return a tokenizer that encodes a question and a text as `[CLS] question [SEP] text [SEP]`."""
    made = Tokenizer(models.WordLevel(VOCABULARY, unk_token="[UNK]"))
    made.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.add_special_tokens(list(SPECIAL))
    if pairs:
        made.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[(word, VOCABULARY[word]) for word in ("[CLS]", "[SEP]")],
        )
    # Published files have these settings, and REM must ignore them.
    made.enable_padding(pad_id=VOCABULARY["[PAD]"], length=64)
    made.enable_truncation(16)
    return made


def write_model(folder: Path, model: Tiny | None = None, *, graph: str = "model.onnx", **config: Any) -> Path:
    """Write a model folder in the export layout, with the given name for the graph."""
    path = folder / graph
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((model or Tiny()).graph())
    tokenizer().save(str(folder / "tokenizer.json"))
    said = {"max_position_embeddings": 512, "vocab_size": len(VOCABULARY), "pad_token_id": 0} | config
    (folder / "config.json").write_text(json.dumps(said), encoding="utf-8")
    return folder

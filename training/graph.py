"""Build the ONNX graph of a BERT encoder from its weights. Its output is the unit vector of the mean over the tokens.

The linear layers are int8: weights have a scale for each output channel, activations a scale for each token. ONNX
Runtime's own dynamic quantization has one scale for the whole batch, so the vector of a text would depend on the other
texts in the batch and be less exact. A few outlier channels have much larger activations than the others, which would
leave few int8 steps for the others. Part of that magnitude is moved from the activations into the weights
(docs/decisions/0005).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

Array = NDArray[Any]

HEADS = 12
EXACT_STEPS = 127
"""The int8 steps of the weights of the linear layers, on each side of zero."""
OUTLIER_CHANNELS = {99: 25.0, 223: 10.0, 63: 8.0}
"""Channels of all-MiniLM-L6-v2 with unusually large activations, and their largest value after normalization in all
layers. The others reach about 1.8."""
OPSET_VERSION = 18
IR_VERSION = 10
MICROSOFT_DOMAIN = "com.microsoft"
NORM_EPSILON = 1e-12
ZERO_POINT = 128
"""The uint8 value of zero for activations that are symmetric around zero."""
GELU_ZERO_POINT = 32
"""The uint8 value of zero after GELU. Its values are never below -0.17, so most steps are for positive values."""
MAX_NEGATIVE_GELU = 0.17
WORD_STEPS = 127
"""The int8 steps of the word embeddings on each side of zero."""
USUAL_MAGNITUDE = 1.8
"""The largest activation of a channel that is not an outlier."""
SMOOTHING_STRENGTH = 0.6
"""The share of a channel's magnitude that moves from the activations into the weights."""


def build_encoder(
    weights: Mapping[str, Array],
    *,
    heads: int,
    outliers: Mapping[int, float],
    weight_steps: int | None,
    int8_words: bool = False,
    has_words: bool = True,
) -> ModelProto:
    """Build the encoder. Its linear layers have `weight_steps` int8 steps on each side of zero, or float32 for None.

    `outliers` maps each outlier channel to its largest activation after a layer's normalization. With `int8_words`, the
    word embeddings are int8 as well, with a scale for each word, which makes the file a third as large. Without
    `has_words` they are not part of the graph, but its input `words`.
    """
    return _GraphBuilder(weights, heads, outliers, weight_steps, int8_words, has_words).model()


def build_tagger(
    weights: Mapping[str, Array], *, heads: int, outliers: Mapping[int, float], weight_steps: int | None
) -> ModelProto:
    """Build a graph with the probability of each label for each token.

    The word embeddings are not part of it: they are its input `words`. Its weights `case` has the embeddings of letter
    case, and `head.weight` and `head.bias` are the last linear layer.
    """
    return _GraphBuilder(weights, heads, outliers, weight_steps, int8_words=False, has_words=False).tagger()


def build_reader(
    weights: Mapping[str, Array], *, heads: int, outliers: Mapping[int, float], weight_steps: int | None
) -> ModelProto:
    """Build a graph that reads a question, whose tokens have the type 0, and a row after it, of the type 1.

    The word embeddings are not part of it: they are its input `words`. Its outputs are linear layers: `pair` of the
    mean over all tokens, `span` of each token, and `message` of the mean over the tokens of the type 0.
    """
    return _GraphBuilder(weights, heads, outliers, weight_steps, int8_words=False, has_words=False).reader()


def build_probe() -> ModelProto:
    """Build the graph with which REM finds out whether a CPU sums int8 products without overflow."""
    size = 64
    node = helper.make_node("MatMulInteger", ["left", "right"], ["sum"])
    right = numpy_helper.from_array(np.full((size, size), 127, dtype=np.int8), "right")
    inputs = [helper.make_tensor_value_info("left", TensorProto.UINT8, [1, size])]
    outputs = [helper.make_tensor_value_info("sum", TensorProto.INT32, [1, size])]
    return _make_model(helper.make_graph([node], "probe", inputs, outputs, [right]))


def _make_model(graph: onnx.GraphProto) -> ModelProto:
    opsets = [helper.make_opsetid("", OPSET_VERSION), helper.make_opsetid(MICROSOFT_DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


class _GraphBuilder:
    """Collects nodes and constants. Every method adds some, and returns the name of its output."""

    def __init__(
        self,
        weights: Mapping[str, Array],
        heads: int,
        outliers: Mapping[int, float],
        weight_steps: int | None,
        int8_words: bool,
        has_words: bool,
    ) -> None:
        self._int8_words = int8_words
        self._has_words = has_words
        self._weights = weights
        self._heads = heads
        self._outliers = outliers
        self._steps = weight_steps
        self._nodes: list[NodeProto] = []
        self._constants: dict[str, Array] = {}

    def model(self) -> ModelProto:
        flat = self._add_sum(self._add_layers(self._add_token_embeddings()))
        # Only the direction matters, so the sum over the tokens stands for their mean.
        self._nodes.append(helper.make_node("LpNormalization", [flat], ["embedding"], axis=1, p=2))
        size = self._weights["embeddings.LayerNorm.weight"].shape[0]
        tokens = helper.make_tensor_value_info("input_ids", TensorProto.INT32, ["batch", "tokens"])
        words = helper.make_tensor_value_info("words", TensorProto.FLOAT, ["batch", "tokens", size])
        mask = helper.make_tensor_value_info("attention_mask", TensorProto.INT32, ["batch", "tokens"])
        inputs = [tokens if self._has_words else words, mask]
        outputs = [helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", size])]
        return _make_model(helper.make_graph(self._nodes, "encoder", inputs, outputs, self._initializers()))

    def _initializers(self) -> list[onnx.TensorProto]:
        return [numpy_helper.from_array(np.ascontiguousarray(value), name) for name, value in self._constants.items()]

    def tagger(self) -> ModelProto:
        types = self._weights["embeddings.token_type_embeddings.weight"]
        positions = self._weights["embeddings.position_embeddings.weight"] + types[0]
        logits = self._add_head(self._add_layers(self._add_given_embeddings("cases", "case", positions)), "head")
        self._nodes.append(helper.make_node("Softmax", [logits], ["probabilities"], axis=-1))
        labels = len(self._weights["head.bias"])
        return self._make_typed("tagger", "cases", {"probabilities": ["batch", "tokens", labels]})

    def reader(self) -> ModelProto:
        hidden = self._add_typed_layers()
        (mask,) = self._add("Cast", ["attention_mask"], to=TensorProto.FLOAT)
        (kinds,) = self._add("Cast", ["token_type_ids"], to=TensorProto.FLOAT)
        (others,) = self._add("Mul", [mask, kinds])
        (asked,) = self._add("Sub", [mask, others])
        pooled = {"pair": self._add_mean(hidden, mask), "span": hidden, "message": self._add_mean(hidden, asked)}
        shapes: dict[str, list[str | int]] = {"pair": ["batch"], "span": ["batch", "tokens"], "message": ["batch"]}
        for name, state in pooled.items():
            self._nodes.append(helper.make_node("Identity", [self._add_head(state, name)], [name]))
            shapes[name].append(len(self._weights[f"{name}.bias"]))
        return self._make_typed("reader", "token_type_ids", shapes)

    def _add_typed_layers(self) -> str:
        positions = self._weights["embeddings.position_embeddings.weight"]
        types = "embeddings.token_type_embeddings.weight"
        return self._add_layers(self._add_given_embeddings("token_type_ids", types, positions))

    def _add_mean(self, hidden: str, mask: str) -> str:
        """Add the mean over the tokens of a mask."""
        axis = self._constant("last.axis", np.array([-1], dtype=np.int64))
        (count,) = self._add("ReduceSum", [mask, axis])
        return self._add("Div", [self._add_sum(hidden, mask), count])[0]

    def _make_typed(self, name: str, kinds: str, shapes: Mapping[str, list[str | int]]) -> ModelProto:
        """Return the graph of a model with these outputs. `kinds` is the input with the kind of each token."""
        size = self._weights["embeddings.LayerNorm.weight"].shape[0]
        inputs = [
            helper.make_tensor_value_info("words", TensorProto.FLOAT, ["batch", "tokens", size]),
            helper.make_tensor_value_info(kinds, TensorProto.INT32, ["batch", "tokens"]),
            helper.make_tensor_value_info("attention_mask", TensorProto.INT32, ["batch", "tokens"]),
        ]
        outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape) for output, shape in shapes.items()]
        return _make_model(helper.make_graph(self._nodes, name, inputs, outputs, self._initializers()))

    def _add_head(self, hidden: str, name: str) -> str:
        weight, bias = self._linear_weights(name)
        (product,) = self._add("MatMul", [hidden, self._constant(f"{name}.columns", weight.T)])
        return self._add("Add", [product, self._constant(f"{name}.bias", bias)])[0]

    def _add_layers(self, hidden: str) -> str:
        layers = len({name.split(".")[2] for name in self._weights if name.startswith("encoder.layer.")})
        for number in range(layers):
            hidden = self._add_layer(hidden, f"encoder.layer.{number}")
        return hidden

    def _add_given_embeddings(self, kinds: str, weight: str, positions: Array) -> str:
        """Add the embeddings of place and of the kind of each token to the given ones of the words."""
        (kind,) = self._add("Gather", [self._weight(weight), kinds])
        (word,) = self._add("Add", ["words", kind])
        return self._add_places(word, kinds, positions)

    def _add_token_embeddings(self) -> str:
        # All tokens of a single text have token type 0, so its embedding is added to that of every position.
        positions = self._weights["embeddings.position_embeddings.weight"]
        types = self._weights["embeddings.token_type_embeddings.weight"]
        if not self._has_words:
            return self._add_places("words", "attention_mask", positions + types[0])
        if self._int8_words:
            return self._add_int8_token_embeddings(positions + types[0])
        inputs = [
            "input_ids",
            "",
            self._weight("embeddings.word_embeddings.weight"),
            self._constant("embeddings.positions", positions + types[0]),
            "",
            self._weight("embeddings.LayerNorm.weight"),
            self._weight("embeddings.LayerNorm.bias"),
            "attention_mask",
        ]
        return self._add_fused("EmbedLayerNormalization", inputs, outputs=2, epsilon=NORM_EPSILON)[0]

    def _add_int8_token_embeddings(self, positions: Array) -> str:
        words = self._weights["embeddings.word_embeddings.weight"]
        scale = np.maximum(np.abs(words).max(axis=1, keepdims=True), 1e-9) / WORD_STEPS
        steps = self._constant("embeddings.words", np.round(words / scale).astype(np.int8))
        (rows,) = self._add("Gather", [steps, "input_ids"])
        (cast,) = self._add("Cast", [rows], to=TensorProto.FLOAT)
        (scales,) = self._add("Gather", [self._constant("embeddings.scale", scale.astype(np.float32)), "input_ids"])
        (word,) = self._add("Mul", [cast, scales])
        return self._add_places(word, "input_ids", positions)

    def _add_places(self, word: str, shaped: str, positions: Array) -> str:
        """Add the embedding of each place to those of the words, and normalize. `shaped` has the batch's shape."""
        (length,) = self._add("Shape", [shaped], start=1, end=2)
        start, axis = (self._constant(f"embeddings.{name}", np.zeros(1, dtype=np.int64)) for name in ("start", "axis"))
        (place,) = self._add("Slice", [self._constant("embeddings.positions", positions), start, length, axis])
        (total,) = self._add("Add", [word, place])
        norm = [self._weight(f"embeddings.LayerNorm.{part}") for part in ("weight", "bias")]
        return self._add("LayerNormalization", [total, *norm], epsilon=NORM_EPSILON)[0]

    def _add_layer(self, hidden: str, name: str) -> str:
        attended = self._add_attention(hidden, f"{name}.attention")
        hidden = self._add_residual_norm(hidden, attended, f"{name}.attention.output.LayerNorm")
        weight, bias = self._linear_weights(f"{name}.intermediate.dense")
        widened = self._add_product(*self._smooth(hidden, f"{name}.intermediate", weight))
        widened = self._add_fused("BiasGelu", [widened, self._constant(f"{name}.intermediate.bias", bias)])[0]
        narrowed = self._add_linear(widened, f"{name}.output", *self._linear_weights(f"{name}.output.dense"), gelu=True)
        return self._add_residual_norm(hidden, narrowed, f"{name}.output.LayerNorm")

    def _add_attention(self, hidden: str, name: str) -> str:
        parts = [self._linear_weights(f"{name}.self.{part}") for part in ("query", "key", "value")]
        weight = np.concatenate([weight for weight, _ in parts])
        bias = np.concatenate([bias for _, bias in parts])
        together = self._add_linear(*self._smooth(hidden, f"{name}.self", weight), bias)
        query_key_value = self._add("Split", [together], outputs=3, axis=-1, num_outputs=3)
        inputs = [*query_key_value, "", "attention_mask"]
        context = self._add_fused("MultiHeadAttention", inputs, num_heads=self._heads)[0]
        return self._add_linear(context, f"{name}.output", *self._linear_weights(f"{name}.output.dense"))

    def _add_residual_norm(self, residual: str, added: str, name: str) -> str:
        inputs = [residual, added, self._weight(f"{name}.weight"), self._weight(f"{name}.bias")]
        return self._add_fused("SkipLayerNormalization", inputs, epsilon=NORM_EPSILON)[0]

    def _add_sum(self, hidden: str, mask: str | None = None) -> str:
        """Add the sum over the tokens of each text, or those of a mask of floats."""
        axis = self._constant("pooling.axis", np.array([1], dtype=np.int64))
        if mask is None:
            (mask,) = self._add("Cast", ["attention_mask"], to=TensorProto.FLOAT)
        (row,) = self._add("Unsqueeze", [mask, axis])
        (summed,) = self._add("MatMul", [row, hidden])
        return self._add("Squeeze", [summed, axis])[0]

    def _smooth(self, hidden: str, name: str, weight: Array) -> tuple[str, str, Array]:
        """Move part of each channel's magnitude from the activations into the weights. The product stays the same."""
        if self._steps is None:
            return hidden, name, weight
        magnitude = np.full(weight.shape[1], USUAL_MAGNITUDE, dtype=np.float32)
        for channel, largest in self._outliers.items():
            magnitude[channel] = largest
        factor = magnitude**SMOOTHING_STRENGTH / np.abs(weight).max(axis=0) ** (1 - SMOOTHING_STRENGTH)
        factor /= np.median(factor)
        (smoothed,) = self._add("Mul", [hidden, self._constant(f"{name}.evening", 1 / factor)])
        return smoothed, name, weight * factor

    def _add_linear(self, hidden: str, name: str, weight: Array, bias: Array, *, gelu: bool = False) -> str:
        product = self._add_product(hidden, name, weight, gelu=gelu)
        return self._add("Add", [product, self._constant(f"{name}.bias", bias)])[0]

    def _add_product(self, hidden: str, name: str, weight: Array, *, gelu: bool = False) -> str:
        columns = weight.T
        if self._steps is None:
            return self._add("MatMul", [hidden, self._constant(f"{name}.weight", columns)])[0]
        scale = np.abs(columns).max(axis=0) / self._steps
        steps = np.round(columns / scale).astype(np.int8)
        quantized, span, zero, positive_steps = self._quantize_rows(hidden, gelu=gelu)
        inputs = [
            quantized,
            self._constant(f"{name}.weight", steps),
            self._constant("one", np.array(1, dtype=np.float32)),
            self._constant(f"{name}.scale", (scale / positive_steps).astype(np.float32)),
            zero,
        ]
        (product,) = self._add_fused("MatMulIntegerToFloat", inputs)
        return self._add("Mul", [product, span])[0]

    def _quantize_rows(self, hidden: str, *, gelu: bool) -> tuple[str, str, str, int]:
        """Quantize the row of each token to uint8.

        Return the names of the row, its span and its zero point, and the number of steps above zero.
        """
        zero_point = GELU_ZERO_POINT if gelu else ZERO_POINT
        positive_steps = 255 - zero_point
        min_span = MAX_NEGATIVE_GELU * positive_steps / zero_point if gelu else 1e-9
        prefix = "gelu" if gelu else "even"
        magnitudes = hidden if gelu else self._add("Abs", [hidden])[0]
        (largest,) = self._add("ReduceMax", [magnitudes, self._constant("last.axis", np.array([-1], dtype=np.int64))])
        (span,) = self._add("Max", [largest, self._constant(f"{prefix}.least", np.array(min_span, dtype=np.float32))])
        steps = self._constant(f"{prefix}.steps", np.array(positive_steps, dtype=np.float32))
        (factor,) = self._add("Div", [steps, span])
        (scaled,) = self._add("Mul", [hidden, factor])
        zero = self._constant(f"{prefix}.zero", np.array(zero_point, dtype=np.uint8))
        one = self._constant("one", np.array(1, dtype=np.float32))
        (quantized,) = self._add("QuantizeLinear", [scaled, one, zero])
        return quantized, span, zero, positive_steps

    def _linear_weights(self, name: str) -> tuple[Array, Array]:
        return self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]

    def _weight(self, name: str) -> str:
        return self._constant(name, self._weights[name])

    def _constant(self, name: str, value: Array) -> str:
        self._constants.setdefault(name, value)
        return name

    def _add_fused(self, operator: str, inputs: Sequence[str], *, outputs: int = 1, **attributes: object) -> list[str]:
        return self._add(operator, inputs, outputs=outputs, domain=MICROSOFT_DOMAIN, **attributes)

    def _add(
        self, operator: str, inputs: Sequence[str], *, outputs: int = 1, domain: str = "", **attributes: Any
    ) -> list[str]:
        label = f"{operator}_{len(self._nodes)}"
        names = [f"{label}:{number}" for number in range(outputs)]
        self._nodes.append(helper.make_node(operator, inputs, names, name=label, domain=domain, **attributes))
        return names

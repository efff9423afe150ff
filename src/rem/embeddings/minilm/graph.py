"""The ONNX graph of a BERT encoder that ends in a mean over the tokens and a unit vector, made from its weights.

The linear layers are int8: weights with a scale per output channel, activations with a scale per token. ONNX Runtime's
own dynamic quantisation has one scale for the whole batch, so that a text's vector depends on its neighbours in the
batch and is further from the exact one. A few channels are far louder than the rest and would leave them few steps;
part of their loudness is moved from the activations into the weights (docs/decisions/0005).
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

GRAPH_VERSION = 1
"""Part of the cache's key: raise it whenever the graph changes."""

Array = NDArray[Any]

_OPSET, _IR_VERSION = 18, 10
_MICROSOFT = "com.microsoft"
_EPSILON = 1e-12
_MIDDLE = 128
# GELU is never below -0.17: after it, most of the 256 steps go to the positive side.
_GELU_LEAST, _GELU_ZERO = 0.17, 32
_USUAL_REACH = 1.8
_MOVED_LOUDNESS = 0.6


def build_encoder(
    weights: Mapping[str, Array], *, heads: int, loud: Mapping[int, float], weight_steps: int | None
) -> ModelProto:
    """The encoder with `weight_steps` int8 steps to each side of zero in its linear layers; with None, float32.

    `loud` says how far the channels reach that are louder than the rest after a layer's normalisation.
    """
    return _Builder(weights, heads, loud, weight_steps).model()


def has_exact_int8_sums() -> bool:
    """Whether this CPU sums int8 products without overflow; those without VNNI clip each pair at 16 bits."""
    import onnxruntime

    depth = 64
    left = np.full((1, depth), 255, dtype=np.uint8)
    node = helper.make_node("MatMulInteger", ["left", "right"], ["sum"])
    right = numpy_helper.from_array(np.full((depth, depth), 127, dtype=np.int8), "right")
    graph = helper.make_graph(
        [node],
        "probe",
        [helper.make_tensor_value_info("left", TensorProto.UINT8, [1, depth])],
        [helper.make_tensor_value_info("sum", TensorProto.INT32, [1, depth])],
        [right],
    )
    session = onnxruntime.InferenceSession(_finish(graph).SerializeToString(), providers=["CPUExecutionProvider"])
    (total,) = session.run(None, {"left": left})
    return bool((np.asarray(total) == 255 * 127 * depth).all())


def _finish(graph: onnx.GraphProto) -> ModelProto:
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)


class _Builder:
    """Collects nodes and constants; every method adds some and returns the name of its output."""

    def __init__(
        self, weights: Mapping[str, Array], heads: int, loud: Mapping[int, float], weight_steps: int | None
    ) -> None:
        self._weights = weights
        self._heads = heads
        self._loud = loud
        self._steps = weight_steps
        self._nodes: list[NodeProto] = []
        self._constants: dict[str, Array] = {}

    def model(self) -> ModelProto:
        layers = len({name.split(".")[2] for name in self._weights if name.startswith("encoder.layer.")})
        hidden = self._embedded_tokens()
        for number in range(layers):
            hidden = self._layer(hidden, f"encoder.layer.{number}")
        self._pooled(hidden)
        size = self._weights["embeddings.word_embeddings.weight"].shape[1]
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.INT32, ["batch", "tokens"])
            for name in ("input_ids", "attention_mask")
        ]
        outputs = [helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", size])]
        constants = [
            numpy_helper.from_array(np.ascontiguousarray(value), name) for name, value in self._constants.items()
        ]
        return _finish(helper.make_graph(self._nodes, "encoder", inputs, outputs, constants))

    def _embedded_tokens(self) -> str:
        # Single texts have token type 0 throughout, so its embedding is part of every position's.
        positions = self._weights["embeddings.position_embeddings.weight"]
        types = self._weights["embeddings.token_type_embeddings.weight"]
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
        return self._fused("EmbedLayerNormalization", inputs, outputs=2, epsilon=_EPSILON)[0]

    def _layer(self, hidden: str, name: str) -> str:
        attended = self._attention(hidden, f"{name}.attention")
        hidden = self._add_and_norm(hidden, attended, f"{name}.attention.output.LayerNorm")
        weight, bias = self._linear_weights(f"{name}.intermediate.dense")
        widened = self._product(*self._evened(hidden, f"{name}.intermediate", weight))
        widened = self._fused("BiasGelu", [widened, self._constant(f"{name}.intermediate.bias", bias)])[0]
        narrowed = self._linear(widened, f"{name}.output", *self._linear_weights(f"{name}.output.dense"), gelu=True)
        return self._add_and_norm(hidden, narrowed, f"{name}.output.LayerNorm")

    def _attention(self, hidden: str, name: str) -> str:
        parts = [self._linear_weights(f"{name}.self.{part}") for part in ("query", "key", "value")]
        weight = np.concatenate([weight for weight, _ in parts])
        bias = np.concatenate([bias for _, bias in parts])
        together = self._linear(*self._evened(hidden, f"{name}.self", weight), bias)
        query_key_value = self._add("Split", [together], outputs=3, axis=-1, num_outputs=3)
        inputs = [*query_key_value, "", "attention_mask"]
        context = self._fused("MultiHeadAttention", inputs, num_heads=self._heads)[0]
        return self._linear(context, f"{name}.output", *self._linear_weights(f"{name}.output.dense"))

    def _add_and_norm(self, residual: str, added: str, name: str) -> str:
        inputs = [residual, added, self._weight(f"{name}.weight"), self._weight(f"{name}.bias")]
        return self._fused("SkipLayerNormalization", inputs, epsilon=_EPSILON)[0]

    def _pooled(self, hidden: str) -> None:
        """The mean over the text's own tokens; only its direction counts, so the sum will do."""
        axis = self._constant("pooling.axis", np.array([1], dtype=np.int64))
        (mask,) = self._add("Cast", ["attention_mask"], to=TensorProto.FLOAT)
        (row,) = self._add("Unsqueeze", [mask, axis])
        (summed,) = self._add("MatMul", [row, hidden])
        (flat,) = self._add("Squeeze", [summed, axis])
        self._nodes.append(helper.make_node("LpNormalization", [flat], ["embedding"], axis=1, p=2))

    def _evened(self, hidden: str, name: str, weight: Array) -> tuple[str, str, Array]:
        """The same product of normalised activations and weights, with the loudness shared between the two."""
        if self._steps is None:
            return hidden, name, weight
        reach = np.full(weight.shape[1], _USUAL_REACH, dtype=np.float32)
        for channel, loudness in self._loud.items():
            reach[channel] = loudness
        factor = reach**_MOVED_LOUDNESS / np.abs(weight).max(axis=0) ** (1 - _MOVED_LOUDNESS)
        factor /= np.median(factor)
        (evened,) = self._add("Mul", [hidden, self._constant(f"{name}.evening", 1 / factor)])
        return evened, name, weight * factor

    def _linear(self, hidden: str, name: str, weight: Array, bias: Array, *, gelu: bool = False) -> str:
        product = self._product(hidden, name, weight, gelu=gelu)
        return self._add("Add", [product, self._constant(f"{name}.bias", bias)])[0]

    def _product(self, hidden: str, name: str, weight: Array, *, gelu: bool = False) -> str:
        columns = weight.T
        if self._steps is None:
            return self._add("MatMul", [hidden, self._constant(f"{name}.weight", columns)])[0]
        scale = np.abs(columns).max(axis=0) / self._steps
        steps = np.round(columns / scale).astype(np.int8)
        quantised, span, zero, positive_steps = self._quantised_rows(hidden, gelu=gelu)
        inputs = [
            quantised,
            self._constant(f"{name}.weight", steps),
            self._constant("one", np.array(1, dtype=np.float32)),
            self._constant(f"{name}.scale", (scale / positive_steps).astype(np.float32)),
            zero,
        ]
        (product,) = self._fused("MatMulIntegerToFloat", inputs)
        return self._add("Mul", [product, span])[0]

    def _quantised_rows(self, hidden: str, *, gelu: bool) -> tuple[str, str, str, int]:
        """Each token's row as uint8: the row, how far it reaches, where zero is, and the steps above zero."""
        middle = _GELU_ZERO if gelu else _MIDDLE
        positive_steps = 255 - middle
        least_span = _GELU_LEAST * positive_steps / middle if gelu else 1e-9
        kind = "gelu" if gelu else "even"
        reach = hidden if gelu else self._add("Abs", [hidden])[0]
        (most,) = self._add("ReduceMax", [reach, self._constant("last.axis", np.array([-1], dtype=np.int64))])
        (span,) = self._add("Max", [most, self._constant(f"{kind}.least", np.array(least_span, dtype=np.float32))])
        steps = self._constant(f"{kind}.steps", np.array(positive_steps, dtype=np.float32))
        (factor,) = self._add("Div", [steps, span])
        (scaled,) = self._add("Mul", [hidden, factor])
        zero = self._constant(f"{kind}.zero", np.array(middle, dtype=np.uint8))
        one = self._constant("one", np.array(1, dtype=np.float32))
        (quantised,) = self._add("QuantizeLinear", [scaled, one, zero])
        return quantised, span, zero, positive_steps

    def _linear_weights(self, name: str) -> tuple[Array, Array]:
        return self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]

    def _weight(self, name: str) -> str:
        return self._constant(name, self._weights[name])

    def _constant(self, name: str, value: Array) -> str:
        self._constants.setdefault(name, value)
        return name

    def _fused(self, operator: str, inputs: Sequence[str], *, outputs: int = 1, **attributes: object) -> list[str]:
        return self._add(operator, inputs, outputs=outputs, domain=_MICROSOFT, **attributes)

    def _add(
        self, operator: str, inputs: Sequence[str], *, outputs: int = 1, domain: str = "", **attributes: Any
    ) -> list[str]:
        label = f"{operator}_{len(self._nodes)}"
        names = [f"{label}:{number}" for number in range(outputs)]
        self._nodes.append(helper.make_node(operator, inputs, names, name=label, domain=domain, **attributes))
        return names

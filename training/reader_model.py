"""The reader in torch: an encoder with three heads, and the texts that it reads as tokens.

A pair is `[CLS] question [SEP] row [SEP]` with the token types 0 and 1, a message `[CLS] message [SEP] previous [SEP]`.
The lower layers are not trained: they run as an int8 graph, which is faster than torch (training/train_reader.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from rem.search.models.files import load_tokenizer, load_words
from rem.search.reader import MESSAGE_HEAD, PAIR_HEAD
from training.encoder import Encoder
from training.graph import EXACT_STEPS, HEADS, OUTLIER_CHANNELS, build_lower_layers

MAX_QUESTION_TOKENS, MAX_PAIR_TOKENS = 62, 192
CLS, SEP = 101, 102
FROZEN_LAYERS = 3
HEAD_SIZES = {"pair": len(PAIR_HEAD), "span": 2, "message": len(MESSAGE_HEAD)}
_IMPOSSIBLE = -1e4


@dataclass(frozen=True, slots=True)
class Input:
    """Tokens with their types; `first` is the position of the second text, whose tokens have these offsets in it."""

    ids: list[int]
    kinds: list[int]
    first: int
    offsets: list[tuple[int, int]]

    def find_span(self, start: int, end: int) -> tuple[int, int] | None:
        """Return the first and last token of a piece of the second text, or None if it was cut off."""
        inside = [place for place, (left, right) in enumerate(self.offsets) if right > start and left < end]
        if not inside or self.offsets[inside[-1]][1] < end:
            return None
        return self.first + inside[0], self.first + inside[-1]


class Tokens:
    """Makes inputs of texts."""

    def __init__(self) -> None:
        self._tokenizer: Tokenizer = load_tokenizer()
        self._tokenizer.no_truncation()
        self._tokenizer.encode_special_tokens = True

    def join(self, question: str, text: str | None) -> Input:
        """Return the tokens of a question, and of a text after it."""
        asked = self._tokenizer.encode(question, add_special_tokens=False).ids[:MAX_QUESTION_TOKENS]
        head = [CLS, *asked, SEP]
        if text is None:
            return Input(head, [0] * len(head), len(head), [])
        encoded = self._tokenizer.encode(text, add_special_tokens=False)
        size = MAX_PAIR_TOKENS - len(head) - 1
        ids = [*head, *encoded.ids[:size], SEP]
        return Input(ids, [0] * len(head) + [1] * (len(ids) - len(head)), len(head), encoded.offsets[:size])


class ReaderModel(nn.Module):
    """An encoder with the heads `pair`, `span` and `message`."""

    def __init__(self, weights: Mapping[str, np.ndarray], dropout: float = 0.0) -> None:
        super().__init__()
        upper = [n for n in _list_layers(weights) if n >= FROZEN_LAYERS]
        self.encoder = Encoder(weights, upper, dropout=dropout)
        self.lower = _open_lower(weights)
        size = self.encoder.word.shape[1]
        self.heads = nn.ModuleDict({name: nn.Linear(size, count) for name, count in HEAD_SIZES.items()})
        for name, head in self.heads.items():
            _start_head(head, weights, name)

    def forward(self, inputs: Sequence[Input]) -> tuple[Tensor, Tensor, Tensor]:
        """Return the outputs of the heads for each input."""
        ids, kinds, mask = pad(inputs)
        words = load_words().embed(ids.astype(np.int64))
        feed = {"words": words, "token_type_ids": kinds, "attention_mask": mask}
        state = torch.from_numpy(self.lower.run(["hidden"], feed)[0])
        types, real = torch.from_numpy(kinds), torch.from_numpy(mask)
        for layer in self.encoder.layers:
            state = layer(state, real[:, None, None, :].bool())
        pair = self.heads["pair"](_mean(state, real)).float()
        message = self.heads["message"](_mean(state, real * (1 - types))).float()
        outside = ~((types == 1) & (real == 1))[..., None]
        return pair, self.heads["span"](state).float().masked_fill(outside, _IMPOSSIBLE), message

    def weights(self) -> dict[str, np.ndarray]:
        """Return the trained layers and the heads under their published names."""
        found = {
            name.replace(f"layer.{n}.", f"layer.{n + FROZEN_LAYERS}."): value.astype(np.float32)
            for name, value in self.encoder.published_names().items()
            for n in [int(name.split(".")[2])]
        }
        for name, head in self.heads.items():
            found |= {f"{name}.{part}": value.detach().numpy() for part, value in head.named_parameters()}
        return found


def _list_layers(weights: Mapping[str, np.ndarray]) -> list[int]:
    return sorted({int(name.split(".")[2]) for name in weights if name.startswith("encoder.layer.")})


def _open_lower(weights: Mapping[str, np.ndarray]) -> onnxruntime.InferenceSession:
    """Return a session on the layers that are not trained."""
    kept = {
        name: value
        for name, value in weights.items()
        if not name.startswith("encoder.layer.") or int(name.split(".")[2]) < FROZEN_LAYERS
    }
    graph = build_lower_layers(kept, heads=HEADS, outliers=OUTLIER_CHANNELS, weight_steps=EXACT_STEPS)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(graph.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _start_head(head: nn.Linear, weights: Mapping[str, np.ndarray], name: str) -> None:
    """Set the weights of a head: known ones, for `pair` those of a reranker with one logit, or small random ones."""
    nn.init.normal_(head.weight, std=0.02)
    nn.init.zeros_(head.bias)
    known = name if f"{name}.weight" in weights else "head" if name == "pair" else None
    if known is not None:
        with torch.no_grad():
            head.weight.copy_(torch.from_numpy(np.asarray(weights[f"{known}.weight"])).expand_as(head.weight))
            head.bias.copy_(torch.from_numpy(np.asarray(weights[f"{known}.bias"])).expand_as(head.bias))


def pad(inputs: Sequence[Input]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the tokens of inputs, their types, and which of them are real."""
    length = -(-max(len(item.ids) for item in inputs) // 8) * 8
    ids, kinds, mask = (np.zeros((len(inputs), length), dtype=np.int32) for _ in range(3))
    for row, item in enumerate(inputs):
        size = len(item.ids)
        ids[row, :size], kinds[row, :size], mask[row, :size] = item.ids, item.kinds, 1
    return ids, kinds, mask


def _mean(state: Tensor, mask: Tensor) -> Tensor:
    weight = mask[..., None].to(state.dtype)
    return (state * weight).sum(1) / weight.sum(1)


def save(path: Path, frozen: Mapping[str, np.ndarray], model: ReaderModel) -> None:
    """Write all weights but the words as a file for training/export_reader.py."""
    arrays = {name: value for name, value in frozen.items() if "word_embeddings" not in name}
    np.savez(path, **{k: v for k, v in arrays.items() if not k.startswith("head.")} | model.weights())

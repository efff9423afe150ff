"""A BERT encoder in plain torch, with the parameter names of the published weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

HEADS, EPSILON = 12, 1e-12
MAX_TOKENS_PER_BATCH = 65_536


class Layer(nn.Module):
    """One transformer layer."""

    def __init__(self, size: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.qkv = nn.Linear(size, 3 * size)
        self.out = nn.Linear(size, size)
        self.norm1 = nn.LayerNorm(size, eps=EPSILON)
        self.up = nn.Linear(size, inner)
        self.down = nn.Linear(inner, size)
        self.norm2 = nn.LayerNorm(size, eps=EPSILON)
        self.dropout = dropout

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Return the next hidden state. `mask` is [batch, 1, 1, tokens]."""
        batch, tokens, size = hidden.shape
        q, k, v = self.qkv(hidden).view(batch, tokens, 3, HEADS, size // HEADS).permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        context = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
        attended = self.out(context.transpose(1, 2).reshape(batch, tokens, size))
        hidden = self.norm1(hidden + functional.dropout(attended, self.dropout, self.training))
        narrowed = self.down(functional.gelu(self.up(hidden)))
        return self.norm2(hidden + functional.dropout(narrowed, self.dropout, self.training))


class Encoder(nn.Module):
    """Embeddings, which are not trained, and layers."""

    def __init__(
        self, tensors: Mapping[str, np.ndarray], layers: Sequence[int] | None = None, dropout: float = 0.0
    ) -> None:
        super().__init__()
        weights = {name: torch.from_numpy(np.asarray(value, dtype=np.float32)) for name, value in tensors.items()}
        self.word = nn.Parameter(_word_table(weights), requires_grad=False)
        self.place = nn.Parameter(weights["embeddings.position_embeddings.weight"].clone(), requires_grad=False)
        self.kind = nn.Parameter(weights["embeddings.token_type_embeddings.weight"].clone(), requires_grad=False)
        self.norm = nn.LayerNorm(self.word.shape[1], eps=EPSILON).requires_grad_(requires_grad=False)
        with torch.no_grad():
            self.norm.weight.copy_(weights["embeddings.LayerNorm.weight"])
            self.norm.bias.copy_(weights["embeddings.LayerNorm.bias"])
        known = sorted({int(name.split(".")[2]) for name in weights if name.startswith("encoder.layer.")})
        self.layers = nn.ModuleList(
            _make_layer(weights, f"encoder.layer.{number}", dropout) for number in (known if layers is None else layers)
        )

    def hidden(self, ids: Tensor, mask: Tensor, kinds: Tensor | None = None, extra: Tensor | None = None) -> Tensor:
        """Return the last hidden state. `kinds` are token types (default 0); `extra` is added to the embeddings."""
        state = self.word[ids] + self.place[: ids.shape[1]] + self.kind[0 if kinds is None else kinds]
        state = self.norm(state if extra is None else state + extra)
        attention = mask[:, None, None, :].bool()
        for layer in self.layers:
            state = layer(state, attention)
        return state

    def forward(self, ids: Tensor, mask: Tensor, kinds: Tensor | None = None) -> Tensor:
        """Return the mean over the tokens of each text."""
        state = self.hidden(ids, mask, kinds)
        weight = mask[..., None].float()
        return (state * weight).sum(1) / weight.sum(1)

    def embed(self, texts: Sequence[np.ndarray]) -> Tensor:
        """Return the unit vectors of tokenized texts, in their order. Texts of similar length share a batch."""
        device = self.word.device
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        parts = [
            functional.normalize(self(*pad([texts[i] for i in batch], device))) for batch in _batches(order, texts)
        ]
        place = torch.empty(len(order), dtype=torch.long, device=device)
        place[torch.tensor(order, device=device)] = torch.arange(len(order), device=device)
        return torch.cat(parts)[place]

    def published_names(self) -> dict[str, np.ndarray]:
        """Return the layers under the names of the published weights, as float16."""
        result = {}
        for number, layer in enumerate(self.layers):
            prefix = f"encoder.layer.{number}"
            for part, weight, bias in zip(
                ("query", "key", "value"), layer.qkv.weight.chunk(3), layer.qkv.bias.chunk(3), strict=True
            ):
                result[f"{prefix}.attention.self.{part}.weight"] = weight
                result[f"{prefix}.attention.self.{part}.bias"] = bias
            for name, module in _MODULES.items():
                result[f"{prefix}.{name}.weight"] = getattr(layer, module).weight
                result[f"{prefix}.{name}.bias"] = getattr(layer, module).bias
        return {name: value.detach().half().cpu().numpy() for name, value in result.items()}


_MODULES = {
    "attention.output.dense": "out",
    "attention.output.LayerNorm": "norm1",
    "intermediate.dense": "up",
    "output.dense": "down",
    "output.LayerNorm": "norm2",
}


def _word_table(weights: Mapping[str, Tensor]) -> Tensor:
    """Return the word embeddings. A base file for travel has only the rows of some tokens."""
    table = weights["embeddings.word_embeddings.weight"]
    if "word_ids" not in weights:
        return table.clone()
    full = torch.zeros(int(weights["vocabulary"]), table.shape[1])
    full[weights["word_ids"].long()] = table
    return full


def _make_layer(weights: Mapping[str, Tensor], prefix: str, dropout: float) -> Layer:
    size, inner = weights[f"{prefix}.output.dense.weight"].shape
    layer = Layer(size, inner, dropout)
    parts = [f"{prefix}.attention.self.{part}" for part in ("query", "key", "value")]
    with torch.no_grad():
        layer.qkv.weight.copy_(torch.cat([weights[f"{part}.weight"] for part in parts]))
        layer.qkv.bias.copy_(torch.cat([weights[f"{part}.bias"] for part in parts]))
        for name, module in _MODULES.items():
            getattr(layer, module).weight.copy_(weights[f"{prefix}.{name}.weight"])
            getattr(layer, module).bias.copy_(weights[f"{prefix}.{name}.bias"])
    return layer


def pad(texts: Sequence[np.ndarray], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return token ids, padded to a multiple of 8, and the mask."""
    length = -(-max(map(len, texts)) // 8) * 8
    ids = np.zeros((len(texts), length), dtype=np.int64)
    mask = np.zeros((len(texts), length), dtype=np.int64)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = text
        mask[row, : len(text)] = 1
    return torch.from_numpy(ids).to(device, non_blocking=True), torch.from_numpy(mask).to(device, non_blocking=True)


def _batches(order: Sequence[int], texts: Sequence[np.ndarray]) -> Iterable[list[int]]:
    batch: list[int] = []
    for i in order:
        if batch and (len(batch) + 1) * len(texts[i]) > MAX_TOKENS_PER_BATCH:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def load_base(path: Path) -> dict[str, np.ndarray]:
    """Load weights from an .npz or .safetensors file."""
    if path.suffix == ".npz":
        return dict(np.load(path))
    from training.load_weights import load_weights

    return load_weights(path)

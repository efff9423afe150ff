"""The reader in torch: an encoder with three heads. It needs torch and numpy only."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from training.encoder import Encoder

_IMPOSSIBLE = -1e4


class ReaderModel(nn.Module):
    """An encoder with the heads `pair`, `span` and `message`. The lowest `frozen` layers stay as they are."""

    def __init__(
        self, weights: Mapping[str, np.ndarray], sizes: Mapping[str, int], *, dropout: float, frozen: int
    ) -> None:
        super().__init__()
        self.encoder = Encoder(weights, dropout=dropout)
        for layer in self.encoder.layers[:frozen]:
            layer.requires_grad_(requires_grad=False)
        size = self.encoder.word.shape[1]
        self.heads = nn.ModuleDict({name: nn.Linear(size, count) for name, count in sizes.items()})
        for name, head in self.heads.items():
            _start_head(head, weights, name)

    def forward(self, ids: Tensor, kinds: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the outputs of the heads for each input."""
        state = self.encoder.hidden(ids, mask, kinds)
        pair = self.heads["pair"](_mean(state, mask)).float()
        message = self.heads["message"](_mean(state, mask * (1 - kinds))).float()
        outside = ~((kinds == 1) & (mask == 1))[..., None]
        return pair, self.heads["span"](state).float().masked_fill(outside, _IMPOSSIBLE), message

    def weights(self) -> dict[str, np.ndarray]:
        """Return the layers and the heads under their published names."""
        found = {name: value.astype(np.float32) for name, value in self.encoder.published_names().items()}
        for name, head in self.heads.items():
            found |= {f"{name}.{part}": value.detach().cpu().numpy() for part, value in head.named_parameters()}
        return found


def _start_head(head: nn.Linear, weights: Mapping[str, np.ndarray], name: str) -> None:
    """Set the weights of a head: known ones, for `pair` those of a reranker with one logit, or small random ones."""
    nn.init.normal_(head.weight, std=0.02)
    nn.init.zeros_(head.bias)
    known = name if f"{name}.weight" in weights else "head" if name == "pair" else None
    if known is not None:
        with torch.no_grad():
            for part, target in (("weight", head.weight), ("bias", head.bias)):
                value = torch.from_numpy(np.asarray(weights[f"{known}.{part}"], dtype=np.float32))
                target.copy_(value.expand_as(target))


def _mean(state: Tensor, mask: Tensor) -> Tensor:
    weight = mask[..., None].to(state.dtype)
    return (state * weight).sum(1) / weight.sum(1)


def save(path: Path, start: Mapping[str, np.ndarray], model: ReaderModel) -> None:
    """Write all weights but the words as a file for training/export_reader.py."""
    arrays = {name: value for name, value in start.items() if "word_embeddings" not in name}
    np.savez(path, **{k: v for k, v in arrays.items() if not k.startswith("head.")} | model.weights())

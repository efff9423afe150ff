"""Measure a trained embedder with several weights of the meaning in REM's ranking.

    python -m training.weigh_meaning DATA BASE.npz LAYERS.npz OUT.json --dev friends squad --eval locomo beam

LAYERS.npz is what training/train_embedder.py saved; "-" stands for the base model. The held-out parts of the sets of
--dev choose the weights; the sets of --eval are only measured. Weights for documents are not changed.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import torch

from training.encoder import Encoder, load_base
from training.ranking import Weights, load_set
from training.train_embedder import embed_all, evaluate, split_owner

OWN = (2.4, 3.0, 3.6, 4.4, 5.2)
NEIGHBOURS = (1.0, 1.5, 2.0)
"""Factors of the meaning of the messages around a message."""
USUAL = Weights()


def make_weights(own: float, neighbours: float) -> Weights:
    """Return the weights with another weight of the meaning of a message, and of its neighbours."""
    nearby = USUAL.nearby_meaning * neighbours
    return replace(
        USUAL,
        own_meaning=own,
        nearby_meaning=nearby,
        previous_meaning=USUAL.previous_meaning * neighbours,
        next_meaning=USUAL.next_meaning * neighbours,
        # What an entity without neighbours gets in all stays the same.
        alone_meaning=USUAL.alone_meaning + USUAL.own_meaning + USUAL.nearby_meaning - own - nearby,
    )


def main() -> None:
    """Measure each set with each combination, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("base", type=Path)
    parser.add_argument("layers", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--dev", nargs="*", default=[])
    parser.add_argument("--eval", nargs="*", default=[])
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    base = load_base(options.base)
    model = Encoder(base if str(options.layers) == "-" else base | load_base(options.layers)).to(device)
    combinations = list(product(OWN, NEIGHBOURS))
    figures: dict[str, dict[str, dict[str, float]]] = {f"{o} {n}": {} for o, n in combinations}
    for name in (*options.dev, *options.eval):
        data = load_set(options.data / f"{name}.npz", device)
        owners = data.owners
        if name in options.dev:
            parts = [split_owner(data, number, owner)[1] for number, owner in enumerate(owners)]
            owners = [part for part in parts if part is not None]
        vectors = embed_all(model, data)
        for own, neighbours in combinations:
            weights = make_weights(own, neighbours)
            figures[f"{own} {neighbours}"][name] = evaluate(data, owners, vectors, weights)
    options.out.write_text(json.dumps(figures, indent=1))
    for key, sets in figures.items():
        print(options.layers.stem, key, " ".join(f"{n}={f['r10']:.3f}/{f['ndcg']:.3f}" for n, f in sets.items()))


if __name__ == "__main__":
    main()

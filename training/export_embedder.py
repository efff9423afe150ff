"""Write the trained embedder as an int8 ONNX graph into the package, and compare it with the exact model.

    python -m training.export_embedder model.safetensors src/rem/search/models --layers LAYERS.npz

LAYERS.npz is what training/train_embedder.py saves (several files are joined). Export the tagger first: its word
embeddings and its tokenizer are those of the embedder, too.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from rem.search.models.files import EMBEDDER, MODEL, load_session, load_tokenizer, open_graph
from training.bundle import write_files
from training.graph import EXACT_STEPS, HEADS, OUTLIER_CHANNELS, build_encoder
from training.load_weights import load_trained_weights

SAMPLES = [
    "What do I drive?",
    "Maria: The red bicycle in the shed needs a new chain before Sunday.",
    "The meeting was moved to Thursday, because half of the team is in Porto until Wednesday evening.",
    "def add(a, b):\n    return a + b",
    "Ein Satz auf Deutsch über das Wetter in den Bergen.",
]


def main() -> None:
    """Export and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", type=Path)
    parser.add_argument("--layers", type=Path, nargs="+", required=True)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    weights = load_trained_weights(options.base, options.layers)
    common = {"heads": HEADS, "outliers": OUTLIER_CHANNELS}
    small = build_encoder(weights, weight_steps=EXACT_STEPS, has_words=False, **common).SerializeToString()
    exact = build_encoder(weights, weight_steps=None, **common).SerializeToString()
    write_files(options.out, {EMBEDDER: small}, embedder=MODEL)
    tokenizer = load_tokenizer()
    sessions = [open_graph(EMBEDDER), load_session(exact)]
    for text in SAMPLES:
        ids = np.array([tokenizer.encode(text).ids], dtype=np.int32)
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        a, b = (session.run(["embedding"], feed)[0][0] for session in sessions)
        print(f"{a @ b:.4f}  {text[:60]!r}")
    print(f"{len(small) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()

"""Write the tagger as an int8 ONNX graph with its tokenizer and word embeddings, and compare it with the exact model.

    python -m training.export_tagger model.safetensors tokenizer.json LAYERS.npz OUT_FOLDER

LAYERS.npz is what training/train_tagger.py saves. OUT_FOLDER is src/rem/search/models for a release.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from rem.search.models.files import MAX_TOKENS, PROBE, load_session
from training.bundle import array_file, write_files
from training.graph import EXACT_STEPS, HEADS, OUTLIER_CHANNELS, WORD_STEPS, build_probe, build_tagger
from training.labelled_names import read_labelled
from training.load_weights import load_weights
from training.tagger_data import letter_case


def main() -> None:
    """Export, compare and write the manifest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("base", "tokenizer", "layers", "out"):
        parser.add_argument(name, type=Path)
    options = parser.parse_args()
    base = load_weights(options.base)
    weights = {name: value for name, value in base.items() if name.startswith("embeddings.")}
    weights |= {name: value.astype(np.float32) for name, value in np.load(options.layers).items()}
    weights["embeddings.position_embeddings.weight"] = base["embeddings.position_embeddings.weight"][:MAX_TOKENS]
    words = weights.pop("embeddings.word_embeddings.weight")
    scales = np.maximum(np.abs(words).max(axis=1), 1e-9).astype(np.float32) / WORD_STEPS
    steps = np.round(words / scales[:, None]).astype(np.int8)
    common = {"heads": HEADS, "outliers": OUTLIER_CHANNELS}
    graph = build_tagger(weights, weight_steps=EXACT_STEPS, **common).SerializeToString()
    exact = build_tagger(weights, weight_steps=None, **common).SerializeToString()
    contents = {
        "tokenizer.json": options.tokenizer.read_bytes(),
        "words.npy": array_file(steps),
        "scales.npy": array_file(scales),
        "tagger.onnx": graph,
        PROBE: build_probe().SerializeToString(),
    }
    write_files(options.out, contents, tagger="rem-tag-1")
    tokenizer = Tokenizer.from_file(str(options.tokenizer))
    tokenizer.no_padding()
    compare(load_session(graph), load_session(exact), tokenizer, steps * scales[:, None], words)
    print(f"{sum(map(len, contents.values())) / 1e6:.1f} MB")


def compare(small: object, exact: object, tokenizer: Tokenizer, words: np.ndarray, exact_words: np.ndarray) -> None:
    """Print how often the int8 graph gives the label of the exact one, on the open labelled texts."""
    same = total = 0
    for sentence in read_labelled("open"):
        encoding = tokenizer.encode([word for word, _ in sentence], is_pretokenized=True)
        cases = [0 if i is None else letter_case(sentence[i][0]) for i in encoding.word_ids]
        feed = {"cases": np.array([cases], dtype=np.int32), "attention_mask": np.ones((1, len(cases)), dtype=np.int32)}
        a, b = (
            session.run(None, feed | {"words": table[encoding.ids][None].astype(np.float32)})[0][0].argmax(-1)
            for session, table in ((small, words), (exact, exact_words))
        )
        same, total = same + int((a == b).sum()), total + len(cases)
    print(f"{same} of {total} labels are those of the exact model")


if __name__ == "__main__":
    main()

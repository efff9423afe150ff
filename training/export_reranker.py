"""Write the reranker as an int8 ONNX graph into the package, and compare it with the exact model.

    python -m training.export_reranker model.safetensors src/rem/embeddings/bundled --layers LAYERS.npz [--replacement]

LAYERS.npz is what training/train_reranker.py saves (several files are joined), or with `--replacement`
training/train_replacement.py. Export the tagger first: its word embeddings and its tokenizer are those of the reranker,
too.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from pathlib import Path

import numpy as np

from rem.embeddings.bundled.files import REPLACEMENT, RERANKER, SessionWithWords, load_words
from rem.embeddings.minilm.graph import build_reranker
from rem.embeddings.minilm.graph_cache import EXACT_STEPS, load_session
from rem.embeddings.minilm.weights import HEADS, OUTLIER_CHANNELS
from rem.evals.week.data import read_week
from rem.query.superseded import SEPARATOR
from rem.retrieval.cross_encoder import CrossEncoder
from rem.retrieval.cross_encoder_loader import OWN_MODEL, REPLACEMENT_MODEL, load_own_model, make_own_model
from training.bundle import write_files
from training.load_weights import load_trained_weights

COMPARED_WEEK = Path(__file__).parent / "weeks" / "nuala.yaml"
COMPARED_TEXTS = 20


def main() -> None:
    """Export and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", type=Path)
    parser.add_argument("--layers", type=Path, nargs="+", required=True)
    parser.add_argument("out", type=Path)
    parser.add_argument("--replacement", action="store_true", help="export the model that finds replaced texts")
    options = parser.parse_args()
    weights = load_trained_weights(options.base, options.layers)
    common = {"heads": HEADS, "outliers": OUTLIER_CHANNELS}
    small = build_reranker(weights, weight_steps=EXACT_STEPS, **common).SerializeToString()
    exact = build_reranker(weights, weight_steps=None, **common).SerializeToString()
    if options.replacement:
        write_files(options.out, {REPLACEMENT: small}, replacement=REPLACEMENT_MODEL)
    else:
        write_files(options.out, {RERANKER: small}, reranker=OWN_MODEL)
    asyncio.run(compare(SessionWithWords(load_session(exact), load_words()), options.replacement))
    print(f"{len(small) / 1e6:.1f} MB")


async def compare(exact: SessionWithWords, is_replacement: bool) -> None:
    """Print how much the logits differ from the exact ones, and how often the same text of twenty is the best."""
    week = read_week(COMPARED_WEEK)
    said = [message.text for session in week.sessions for message in session.messages]
    generator = random.Random(1)
    graph = REPLACEMENT if is_replacement else RERANKER
    small = CrossEncoder(graph, lambda: load_own_model(graph=graph), threads=1)
    precise = CrossEncoder("exact", lambda: make_own_model(exact), threads=1)
    differences, same = [], []
    for question in week.questions:
        answers = [text for text in said if question.is_answered_by(text)][:1]
        texts = [*answers, *generator.sample(said, COMPARED_TEXTS)][:COMPARED_TEXTS]
        if is_replacement:
            texts = [f"{generator.choice(said)}{SEPARATOR}{text}" for text in texts]
        a, b = [np.array(await model.scores(question.ask, texts)) for model in (small, precise)]
        differences.append(np.abs(a - b).mean())
        same.append(a.argmax() == b.argmax())
    print(f"logits differ by {np.mean(differences):.3f} on average; the same text is best for {np.mean(same):.3f}")


if __name__ == "__main__":
    main()

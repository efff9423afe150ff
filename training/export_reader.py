"""Write the reader as an int8 ONNX graph into the package, and compare it with the exact model.

    python -m training.export_reader TRAINED.npz src/rem/search/models

TRAINED.npz is what training/train_reader.py saves. Export the tagger first: its word embeddings and its tokenizer are
those of the reader, too.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from bench.quality.week.data import read_week

from rem.search.models.files import READER, SessionWithWords, load_session, load_words
from rem.search.reader import MODEL, LoadedReader
from training.bundle import write_files
from training.graph import EXACT_STEPS, HEADS, OUTLIER_CHANNELS, build_reader

COMPARED_WEEK = Path(__file__).parent / "weeks" / "nuala.yaml"
COMPARED_TEXTS = 20


def main() -> None:
    """Export and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trained", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    weights = {name: np.asarray(value, dtype=np.float32) for name, value in np.load(options.trained).items()}
    small, exact = (
        build_reader(weights, heads=HEADS, outliers=OUTLIER_CHANNELS, weight_steps=steps).SerializeToString()
        for steps in (EXACT_STEPS, None)
    )
    write_files(options.out, {READER: small}, reader=MODEL)
    compare(*(LoadedReader(SessionWithWords(load_session(graph), load_words())) for graph in (small, exact)))
    print(f"{len(small) / 1e6:.1f} MB")


def compare(small: LoadedReader, exact: LoadedReader) -> None:
    """Print how much the logits differ from the exact ones, and how often the same text of twenty is the best."""
    week = read_week(COMPARED_WEEK)
    said = [message.text for session in week.sessions for message in session.messages]
    differences, same = [], []
    for place, question in enumerate(week.questions):
        texts = [said[(place + number) % len(said)] for number in range(COMPARED_TEXTS)]
        pairs = [small.encode(question.ask, text) for text in texts]
        a, b = (np.array([output.pair for output in model.run(pairs)]) for model in (small, exact))
        differences.append(np.abs(a - b).mean())
        same.append(a[:, 0].argmax() == b[:, 0].argmax())
    print(f"logits differ by {np.mean(differences):.3f} on average; the same text is best for {np.mean(same):.3f}")


if __name__ == "__main__":
    main()

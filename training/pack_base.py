"""Write the base weights as float16, with the word embeddings of the tokens that the exported sets use.

    python -m training.pack_base model.safetensors OUT.npz [SET.npz …]

Without sets, it has the embeddings of all tokens. The result is small enough to travel to a machine with a GPU.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from training.load_weights import load_weights


def main() -> None:
    """Pack the weights."""
    source, target, *sets = map(Path, sys.argv[1:])
    weights = load_weights(source)
    table = weights["embeddings.word_embeddings.weight"]
    used = np.zeros(len(table), dtype=bool)
    used[[0, 100, 101, 102] if sets else slice(None)] = True
    for path in sets:
        used[np.load(path)["tokens"].astype(np.int64)] = True
    packed = {name: value.astype(np.float16) for name, value in weights.items() if value.dtype.kind == "f"}
    packed["embeddings.word_embeddings.weight"] = table[used].astype(np.float16)
    packed["embeddings.position_embeddings.weight"] = packed["embeddings.position_embeddings.weight"][:256]
    packed["word_ids"] = np.flatnonzero(used).astype(np.int32)
    packed["vocabulary"] = np.array(len(table), dtype=np.int32)
    np.savez_compressed(target, **packed)
    print(f"{used.sum()} of {len(table)} tokens, {target.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()

"""Split saved models into files of at most three layers, so that each stays below 16 MiB.

python -m training.pack_layers FOLDER MODEL.npz …
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

LAYERS_PER_FILE = 3


def main() -> None:
    """Write the parts and the report of each model."""
    folder, *models = map(Path, sys.argv[1:])
    for path in models:
        if not path.exists():
            print(f"{path} is missing")
            continue
        parts: dict[int, dict[str, np.ndarray]] = {}
        for name, value in np.load(path).items():
            layer = int(name.split(".")[2]) if name.startswith("encoder.layer.") else 0
            parts.setdefault(layer // LAYERS_PER_FILE, {})[name] = value
        for number, arrays in parts.items():
            np.savez_compressed(folder / f"{path.stem}-{number}.npz", **arrays)


if __name__ == "__main__":
    main()

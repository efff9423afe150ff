"""Write the mean of the weights of models that were trained from the same layers with other seeds.

python -m training.average_models OUT.npz MODEL.npz MODEL.npz …
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np


def main() -> None:
    """Read, average and write."""
    out, *paths = map(Path, sys.argv[1:])
    models = [np.load(path) for path in paths]
    means = {name: np.mean([model[name].astype(np.float32) for model in models], axis=0) for name in models[0]}
    np.savez(out, **{name: mean.astype(np.float16) for name, mean in means.items()})


if __name__ == "__main__":
    main()

"""Data included with Mistify."""

import numpy as np

from executors.data.errors import invalid
from executors.readers.formats import Arrays
from mistify.errors import Problem

BUILTIN = "builtin:"


def read_builtin(source: str) -> Arrays:
    """Return scikit-learn's handwritten digits, 8 x 8 pixels scaled to 0..1, split 4 to 1."""
    from sklearn.datasets import load_digits  # noqa: PLC0415 (half a second to import, only for the demo)

    digits = load_digits()
    x = (digits.images[..., None] / 16.0).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(x))
    held_out = len(x) // 5
    parts = {"digits-train": order[held_out:], "digits-test": order[:held_out]}
    name = source.removeprefix(BUILTIN)
    if name not in parts:
        raise invalid(Problem(source, name, f"one of {', '.join(parts)}", "correct the name"))
    return {"x": x[parts[name]], "y": digits.target[parts[name]].astype(np.int64)}

"""Data that come with Mistify."""

from importlib.metadata import distribution

import numpy as np

from executors.data.errors import invalid
from executors.data.storage import Array
from executors.readers.formats import Arrays, Request
from mistify.errors import Problem

BUILTIN = "builtin:"


def read_builtin(source: str, request: Request) -> Arrays:
    """Return scikit-learn's handwritten digits, 8 x 8 pixels scaled to 0..1, split 4 to 1."""
    images, classes = _digits()
    x = (images[..., None] / 16.0).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(x))
    held_out = len(x) // 5
    parts = {"digits-train": order[held_out:], "digits-test": order[:held_out]}
    name = source.removeprefix(BUILTIN)
    if name not in parts:
        raise invalid(Problem(source, name, f"one of {', '.join(parts)}", "correct the name"))
    return {"x": x[parts[name]], "y": classes[parts[name]].astype(np.int64)}


def _digits() -> tuple[Array, Array]:
    """Return the images [examples, 8, 8] of 0 to 16, and their classes [examples].

    The file is read as `sklearn.datasets.load_digits` does, without a second of imports.
    """
    file = distribution("scikit-learn").locate_file("sklearn/datasets/data/digits.csv.gz")
    table = np.loadtxt(str(file), delimiter=",")
    return table[:, :-1].reshape(-1, 8, 8), table[:, -1]

"""Models as executors take them: flat, finite, of fixed sizes."""

from pathlib import Path

import keras
import numpy as np

from executors.inspection.errors import invalid
from executors.inspection.limits import GIB
from executors.structure import Structure, UnsupportedLayerError, analyse, narrow

#: The most memory that one inference may take, in bytes.
_INFERENCE = 4 * GIB


def flatten(path: Path | str, model: keras.Model) -> keras.Model:
    """A copy with nested models inlined, once it is known that it can be adapted.

    All of it is adapted and trained, also layers that were frozen, as they often are to train a new head.

    Raises:
        MistifyError: INVALID_MODEL: a layer that is not supported, a free input size, or activations of more
            than 4 GiB.
    """
    model.trainable = True
    try:
        structure = analyse(model)
        _check_memory(path, structure)
        flat = narrow(structure, {})
    except (UnsupportedLayerError, TypeError) as error:
        raise invalid(
            path, str(error), "a functional model of supported layers", "see CONTRIBUTING.md"
        ) from error
    return flat


def check_finite(path: Path | str, model: keras.Model) -> None:
    """Refuse weights that are no numbers.

    Raises:
        MistifyError: INVALID_MODEL, naming the layer.
    """
    for weight in model.weights:
        if not np.isfinite(np.asarray(weight, dtype=np.float32)).all():
            raise invalid(
                path,
                f"NaN or infinity in {weight.path}",
                "finite weights",
                "go back to a checkpoint from before training diverged",
            )


def _check_memory(path: Path | str, structure: Structure) -> None:
    needed = structure.network().memory_bytes()
    if needed > _INFERENCE:
        raise invalid(
            path,
            f"a model that needs {needed / GIB:,.1f} GiB for one inference",
            f"{_INFERENCE / GIB:.0f} GiB at the most",
            "give it smaller inputs",
        )

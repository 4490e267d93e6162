"""The architectures of `keras.applications`, with random weights or weights from a file."""

from pathlib import Path

import keras

from executors.inspection.errors import invalid
from executors.inspection.limits import LIMITS
from executors.inspection.weights import stored_weights

#: Number of classes in the training data of the published weights.
_CLASSES = 1000
_SEED = 0


def application(
    name: str, classes: int | None = None, size: int | None = None, weights: Path | None = None
) -> keras.Model:
    """Return an architecture of `keras.applications` with its classifier.

    Args:
        name: A function of `keras.applications`, such as `MobileNetV2`.
        classes: Number of classes; None for a thousand.
        size: Height and width of the images in pixels; None for the architecture's default.
        weights: A file written by `save_weights`; None for random weights, always the same.

    Raises:
        MistifyError: INVALID_MODEL if the size is too small, or the weights belong to another model.
    """
    keras.utils.set_random_seed(_SEED)
    try:
        model = getattr(keras.applications, name)(
            weights=None, classes=classes or _CLASSES, input_shape=None if size is None else (size, size, 3)
        )
    except ValueError as error:
        raise invalid(f"keras.applications/{name}", str(error), "an allowed size", "leave it out") from error
    if weights is not None:
        stored_weights(weights, weights, LIMITS)
        try:
            model.load_weights(weights)
        except Exception as error:
            cause = str(error).partition(". ")[0][:200]
            raise invalid(
                weights, f"weights that do not fit ({cause})", f"weights of {name} with as many classes",
                "give the classes that the weights were trained for",
            ) from error  # fmt: skip
    return model

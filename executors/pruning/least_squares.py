"""Ridge regression of the outputs of a kernel on its inputs."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

#: Share of the mean variance of the inputs added to each, so that weights that the inputs do not determine
#: stay unchanged.
_RIDGE: Final = 1e-3


def ridge_regression(
    inputs: Array, targets: Array, start: Array | None = None, *, centred: bool = True
) -> tuple[Array, Array]:
    """Return the weights [..., columns, outputs] that fit the targets best, and the constant to add.

    Leading axes are independent regressions, solved together.

    Args:
        inputs: [..., places, columns].
        targets: [..., places, outputs].
        start: Weights to keep where the inputs determine nothing; None for zeros.
        centred: Whether a constant can be added [..., outputs]; otherwise it is zero.
    """
    share = 1.0 if centred else 0.0
    read, wanted = share * inputs.mean(-2, keepdims=True), share * targets.mean(-2, keepdims=True)
    inputs, targets = inputs - read, targets - wanted
    transposed, places = np.swapaxes(inputs, -1, -2), inputs.shape[-2]
    products = (transposed @ inputs).astype(np.float64) / places
    crossed = (transposed @ targets).astype(np.float64) / places
    variance = np.diagonal(products, axis1=-2, axis2=-1).mean(-1)[..., None, None]
    ridge = _RIDGE * np.maximum(variance, float(np.finfo(np.float32).tiny))
    kept = 0.0 if start is None else ridge * start
    weights = np.linalg.solve(products + ridge * np.eye(products.shape[-1]), crossed + kept)
    return weights, (wanted - read @ weights)[..., 0, :]

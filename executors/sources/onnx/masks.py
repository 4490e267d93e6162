"""Masks of attention: which keys each query may read.

Exporters write a mask as a choice between a score and a very low number, or add zeros and very low numbers.
Here it is always a choice, so that a layer can take it over, and so that low numbers do not widen the range
of the integers that scores become.
"""

from typing import Any, Final

import keras
import numpy as np

from executors.sources.onnx.batch import Array
from executors.structure import keras_internals

#: The score of a key that a query must not read.
EXCLUDED: Final = -1e9

#: Scores up to this one exclude a key: its share is 0 beside any other.
LOW: Final = -1e4

_WHERE: Final = keras_internals.numpy.Where
_ADD: Final = keras_internals.numpy.Add


def masked(scores: Any, mask: Any) -> Any:
    """Return scores with the lowest one where a mask of truth values is false."""
    return keras.ops.where(mask, scores, EXCLUDED)


def with_choice(scores: Any) -> Any:
    """Return the scores that a softmax reads, with a choice in place of added low numbers."""
    call = keras_internals.making_call(scores)
    if isinstance(call.operation, _ADD):
        operands = call.arguments.args
    elif isinstance(call.operation, keras.layers.Add):
        (operands,) = call.arguments.args
    else:
        return scores
    for kept, addend in (operands, operands[::-1]) if len(operands) == 2 else ():
        mask = _mask_of(addend) if keras.backend.is_keras_tensor(kept) else None
        if mask is not None:
            return masked(kept, mask)
    return scores


def without_masks(scores: Any) -> tuple[Any, list[Any]]:
    """Return scores before their masks, and these masks: arrays or Keras tensors of truth values."""
    masks = []
    while isinstance((call := keras_internals.making_call(with_choice(scores))).operation, _WHERE):
        condition, *choices = call.arguments.args
        kept = [choice for choice in choices if keras.backend.is_keras_tensor(choice)]
        lows = [_is_low(choice) for choice in choices]
        if len(kept) != 1 or not any(lows):
            break
        masks.append(condition if lows[1] else _opposite(condition))
        (scores,) = kept
    return scores, masks


def is_causal(mask: Array) -> bool:
    """Check whether each query may read the keys at its own and all earlier positions."""
    return np.array_equal(mask, np.broadcast_to(np.tri(*mask.shape[-2:], dtype=np.bool_), mask.shape))


def excludes_all(mask: Array) -> bool:
    """Check whether a query may read no key."""
    return not mask.any(-1).all()


def _mask_of(addend: Any) -> Any:
    """Return the mask that an addend stands for; None if it is another number somewhere."""
    if not keras.backend.is_keras_tensor(addend):
        array = np.asarray(addend)
        allowed = array > LOW
        is_mask = array.ndim > 1 and not (array[allowed].any() or allowed.all() or excludes_all(allowed))
        return allowed if is_mask else None
    call = keras_internals.making_call(addend)
    if not isinstance(call.operation, _WHERE):
        return None
    condition, *choices = call.arguments.args
    if any(map(keras.backend.is_keras_tensor, choices)) or not keras.backend.is_keras_tensor(condition):
        return None
    lows, zeros = [_is_low(choice) for choice in choices], [not np.any(choice) for choice in choices]
    if lows == [False, True] and zeros[0]:
        return condition
    return _opposite(condition) if lows == [True, False] and zeros[1] else None


def _is_low(choice: Any) -> bool:
    return not keras.backend.is_keras_tensor(choice) and bool(np.all(np.asarray(choice) <= LOW))


def _opposite(condition: Any) -> Any:
    return keras.ops.logical_not(condition) if keras.backend.is_keras_tensor(condition) else ~condition

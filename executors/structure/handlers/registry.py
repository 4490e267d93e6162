"""The handlers of layers, by layer class."""

from collections.abc import Mapping

import keras

from executors.structure.errors import UnsupportedLayerError
from executors.structure.handlers.base import HANDLERS, LayerHandler
from executors.structure.keras_internals import is_keras_own

_FRAMES = "a TimeDistributed convolution of each frame, followed by a GRU or an LSTM of its means"

#: Layers without a handler -> what does the same or nearly the same.
_REPLACEMENTS: Mapping[type, str] = {
    **dict.fromkeys((keras.layers.ConvLSTM1D, keras.layers.ConvLSTM2D, keras.layers.ConvLSTM3D), _FRAMES),
    keras.layers.RNN: "a GRU, an LSTM or a SimpleRNN for each of its cells",
}


def handler_of(name: str, layer: keras.layers.Layer) -> LayerHandler:
    """Return the handler of a layer.

    Raises:
        UnsupportedLayerError: No handler is registered for the layer's class.
    """
    handler = _known_handler(layer)
    if handler is None:
        kind = f"{type(layer).__module__}.{type(layer).__qualname__}"
        if type(layer) in _REPLACEMENTS:
            raise UnsupportedLayerError(
                f"layer {name!r} is a {kind}, which is not supported; expected {_REPLACEMENTS[type(layer)]}"
            )
        raise UnsupportedLayerError(
            f"layer {name!r} is a {kind}, which has no handler; register one with "
            f"@executors.structure.handlers.register({type(layer).__qualname__}) on a LayerHandler"
        )
    return handler


def is_leaf(layer: keras.layers.Layer) -> bool:
    """Check whether a layer is not expanded: it has a handler, or is Keras's own and needs one.

    Any other layer must consist of such layers to be supported.
    """
    return _known_handler(layer) is not None or is_keras_own(layer)


def _known_handler(layer: keras.layers.Layer) -> LayerHandler | None:
    """Return a layer's handler, or None; import KerasHub's handlers if KerasHub is in use (takes seconds)."""
    if type(layer) not in HANDLERS and type(layer).__module__.startswith("keras_hub."):
        from executors.structure.handlers import hub  # noqa: F401, PLC0415 (registers its handlers)
    return HANDLERS.get(type(layer))


def registered() -> tuple[type, ...]:
    """Return the supported layer classes."""
    return tuple(HANDLERS)

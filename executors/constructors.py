"""The arguments of layer constructors in Keras 2 and 3."""

import inspect

import keras


def settings_of(layer: type) -> frozenset[str]:
    """Return the names of the settings that a layer class's constructor accepts."""
    names = {"batch_input_shape"} if layer is keras.layers.InputLayer else set()
    for kind in layer.__mro__:
        if "__init__" in vars(kind):
            parameters = inspect.signature(vars(kind)["__init__"]).parameters
            names |= parameters.keys()
            if all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters.values()):
                break
    return frozenset(names)

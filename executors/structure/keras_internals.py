"""The private parts of Keras 3 and tf_keras that Mistify depends on; no other module may use any.

Keras has no public API for the calls that make up a model, the masks of tensors, or an optimizer's moments.
`missing` names the parts that an installed version no longer has.
"""

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, Final

import keras

#: The major and minor version for which this module was written. Other versions are checked on import.
WRITTEN_FOR: Final = (3, 15)

#: Suffix of the path of a seed generator's variable.
_SEED_STATE: Final = "seed_generator_state"

_LAYER_MODULES: Final = "keras.src.layers."
_OPERATION_MODULES: Final = "keras.src.ops."

#: Private counterparts of public modules of functions: their operation classes are not public.
_MODULES: Final = {
    "keras.src.ops.core": ("Slice", "Unstack"),
    "keras.src.ops.math": ("Logsumexp",),
    "keras.src.ops.nn": ("Sigmoid", "Softmax"),
    "keras.src.ops.numpy": ("Add", "Argmax", "Argmin", "Concatenate", "Multiply", "Split"),
    "keras.src.applications.convnext": ("LayerScale", "StochasticDepth"),
    "keras.src.backend": ("get_keras_mask", "set_keras_mask"),
}


def missing() -> list[str]:
    """Return the full names of the private parts that the installed Keras lacks."""
    return [*_missing_modules(), *_missing_attributes()]


def _missing_modules() -> Iterator[str]:
    for name, attributes in _MODULES.items():
        try:
            module = import_module(name)
        except ImportError:
            yield name
            continue
        yield from (f"{name}.{attribute}" for attribute in attributes if not hasattr(module, attribute))


def _missing_attributes() -> Iterator[str]:
    """Yield the attributes that are missing from the parts of a small network."""
    inputs = keras.Input((4, 2))
    layer = keras.layers.MultiHeadAttention(1, 1)
    model = keras.Model(inputs, layer(inputs, inputs))
    yield from _absent("KerasTensor", inputs, "_keras_history")
    yield from _absent("MultiHeadAttention", layer, "_inbound_nodes", "_outbound_nodes", "_use_gate")
    yield from _absent("Functional", model, "_nodes_by_depth", "_run_through_graph")
    yield from _absent("Layer", model, "_layers", "_trainable_variables", "_non_trainable_variables")
    yield from _absent("Layer", model, "_build_shapes_dict", "_flatten_layers")
    adam, sgd = keras.optimizers.Adam(), keras.optimizers.SGD(momentum=0.9)
    for optimizer in (adam, sgd):
        optimizer.build(model.trainable_variables)
    yield from _absent("Adam", adam, "_momentums", "_velocities")
    yield from _absent("SGD", sgd, "momentums")


def _absent(kind: str, instance: Any, *attributes: str) -> list[str]:
    return [f"{kind}.{attribute}" for attribute in attributes if not hasattr(instance, attribute)]


def missing_of_keras2(model: Any) -> list[str]:
    """Return the private attributes that a functional tf_keras model lacks."""
    return _absent("tf_keras.Model", model, "_input_layers", "_nodes_by_depth")


def check_version(version: str) -> None:
    """Check that another Keras version than `WRITTEN_FOR` has all private parts.

    Args:
        version: The installed version, such as "3.15.1".

    Raises:
        ImportError: It lacks some; the message names them.
    """
    if tuple(map(int, version.split(".")[:2])) == WRITTEN_FOR:
        return
    absent = missing()
    if absent:
        expected = ".".join(map(str, WRITTEN_FOR))
        raise ImportError(
            f"Keras {version} is installed, which has no {', '.join(absent)}; install Keras {expected}"
        )


check_version(keras.__version__)

from keras.src.applications.convnext import LayerScale, StochasticDepth  # noqa: E402
from keras.src.ops import core, math, nn, numpy  # noqa: E402

__all__ = [
    "LayerScale",
    "StochasticDepth",
    "core",
    "math",
    "nn",
    "numpy",
]


def is_operation(instance: Any) -> bool:
    """Check whether a callable in a model is an operation such as `x + y`, not a layer."""
    return type(instance).__module__.startswith(_OPERATION_MODULES)


def is_keras_own(instance: Any) -> bool:
    """Check whether a layer or an operation is one of Keras's own."""
    return type(instance).__module__.startswith((_LAYER_MODULES, _OPERATION_MODULES))


def calls(model: keras.Model) -> Iterator[Any]:
    """Yield the calls of a functional model, starting from its inputs.

    A call has an `operation`, `arguments` (with `args`, `kwargs`, `keras_tensors`), `output_tensors` and
    `is_input`.
    """
    for _, at_one_depth in sorted(model._nodes_by_depth.items(), reverse=True):
        yield from at_one_depth


def maker(tensor: keras.KerasTensor) -> Any:
    """Return the layer or operation that makes a tensor."""
    return tensor._keras_history.operation


def making_call(tensor: keras.KerasTensor) -> Any:
    """Return the call that makes a tensor."""
    operation, index, _ = tensor._keras_history
    return operation._inbound_nodes[index]


def readers(tensor: keras.KerasTensor) -> list[Any]:
    """Return the layers and operations that read the outputs of a tensor's maker."""
    return [call.operation for call in maker(tensor)._outbound_nodes]


def mask_of(tensor: Any) -> keras.KerasTensor | None:
    """Return the mask that Keras stores with a tensor; None for values without one."""
    return keras.src.backend.get_keras_mask(tensor)


def set_mask(tensor: keras.KerasTensor, mask: keras.KerasTensor | None) -> None:
    """Store a mask with a tensor."""
    keras.src.backend.set_keras_mask(tensor, mask)


def called_again(model: keras.Model, inputs: Sequence[keras.KerasTensor]) -> list[keras.KerasTensor]:
    """Call a functional model's layers on other tensors with their masks; return the outputs."""
    return list(keras.tree.flatten(model._run_through_graph(inputs)))


def own_variables(layer: keras.layers.Layer) -> list[keras.Variable]:
    """Return the variables of a layer itself, without those of nested layers."""
    return [*layer._trainable_variables, *layer._non_trainable_variables]


def has_sublayers(layer: keras.layers.Layer) -> bool:
    """Check whether a layer contains other layers."""
    return bool(layer._layers)


def built_shapes(model: keras.Model) -> list[Any]:
    """Return the arguments with which a subclassed model was built: shapes, and any others of its `build`."""
    return list((getattr(model, "_build_shapes_dict", None) or {}).values())


def is_gated(attention: keras.layers.MultiHeadAttention) -> bool:
    """Check whether an attention layer multiplies its output by a gate."""
    return bool(attention._use_gate)


def all_layers(layer: keras.layers.Layer) -> Iterator[keras.layers.Layer]:
    """Yield the layers within a model or another layer, including nested ones."""
    yield from layer._flatten_layers(include_self=False)  # type: ignore[no-untyped-call, unused-ignore]


def moments(optimizer: keras.optimizers.Optimizer) -> dict[str, list[keras.Variable]]:
    """Return an optimizer's moments: kind -> one variable for each weight, in the order of the weights.

    Args:
        optimizer: Adam or SGD with momentum, built.
    """
    if isinstance(optimizer, keras.optimizers.Adam):
        return {"_momentums": optimizer._momentums, "_velocities": optimizer._velocities}
    return {"momentums": optimizer.momentums}


def seed_states(model: keras.Model) -> list[keras.Variable]:
    """Return the seeds of layers with random behaviour, such as dropout: [seed, count] each."""
    return [variable for variable in model.variables if variable.path.endswith(_SEED_STATE)]


def is_keras2_model(layer: Any) -> bool:
    """Check whether a layer of tf_keras is a functional or sequential model."""
    return hasattr(layer, "_nodes_by_depth")


def keras2_calls(model: Any) -> Iterator[Any]:
    """Yield the calls of a functional model of tf_keras in order, without the inputs themselves."""
    for depth in sorted(model._nodes_by_depth, reverse=True):
        yield from (call for call in model._nodes_by_depth[depth] if not call.is_input)


def keras2_input_layers(model: Any) -> list[Any]:
    """Return the input layers of a functional model of tf_keras, in the order of its inputs."""
    return list(model._input_layers)

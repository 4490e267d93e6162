"""Layers that are applied to each step of a sequence, with the steps as further examples of the batch."""

import inspect
from collections.abc import Callable
from typing import Any, Final

import keras
from keras import ops
from typing_extensions import override

from executors.structure.graph import Shape

#: The package under which Keras finds the layer in the config of a model.
_PACKAGE: Final = "mistify"

#: The number of axes of a mask of whole steps [n, steps].
_AXES_OF_STEPS: Final = 2


@keras.saving.register_keras_serializable(_PACKAGE)
class EachStep(keras.layers.Layer):  # type: ignore[misc]  # Keras has no types
    """Applies a layer to each step of its inputs [n, steps, ...]; the result is [n, steps, ...].

    Keras's `TimeDistributed` calls the layer once per step, so that a network has as many copies of it as
    steps. Here, it is called once on [n * steps, ...], as an operator of LiteRT that is fast and quantized.

    Args:
        layer: A layer or an operation of one result, which treats examples separately.
    """

    def __init__(self, layer: Any, **options: Any) -> None:
        super().__init__(**options)
        self.layer = layer
        self.supports_masking = True

    @override
    def build(self, input_shape: Any) -> None:
        """Build the layer for one step.

        Args:
            input_shape: The shape of the inputs, or a list of the shapes of several.
        """
        several = isinstance(input_shape[0], list | tuple)
        shape = list(map(step_shape, input_shape)) if several else step_shape(input_shape)
        if not getattr(self.layer, "built", True):
            self.layer.build(shape)
        self.built = True

    @override
    def call(self, inputs: Any, mask: Any = None) -> Any:
        steps = keras.tree.flatten(inputs)[0].shape[1]
        named = {"mask": _joined(mask)} if masks_steps(self.layer, mask) else {}
        made = self.layer(keras.tree.map_structure(_joined, inputs), **named)
        return ops.reshape(made, (-1, steps, *made.shape[1:]))

    @override
    def compute_output_spec(self, inputs: Any, mask: Any = None) -> keras.KerasTensor:
        batch, steps = keras.tree.flatten(inputs)[0].shape[:2]
        named = {"mask": _one_step(mask)} if masks_steps(self.layer, mask) else {}
        spec = self.layer.compute_output_spec(keras.tree.map_structure(_one_step, inputs), **named)
        return keras.KerasTensor((batch, steps, *spec.shape[1:]), spec.dtype)

    @override
    def compute_mask(self, inputs: Any, previous_mask: Any) -> Any:
        """Return the mask of the steps [n, steps]; masks within a step end with it."""
        masks = [mask for mask in keras.tree.flatten(previous_mask) if mask is not None]
        return masks[0] if masks and len(masks[0].shape) == _AXES_OF_STEPS else None

    @override
    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "layer": without_shapes(self.layer, self.layer.get_config())}

    @classmethod
    @override
    def from_config(cls, config: dict[str, Any]) -> "EachStep":
        return cls(**{**config, "layer": keras.saving.deserialize_keras_object(config["layer"])})


def applied(layer: Any) -> Any:
    """Return the layer that is applied to each step; any other layer itself."""
    return layer.layer if isinstance(layer, EachStep) else layer


def remade(name: str, layer: Any, make: Callable[[str, Any], Any]) -> Any:
    """Return `make(name, layer)`; for a layer at each step, the layer that it applies is made instead."""
    if isinstance(layer, EachStep):
        return EachStep(remade(layer.layer.name, layer.layer, make), name=name)
    return make(name, layer)


def without_shapes(layer: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Return a layer within another one as stored in a config, without the shapes that it was built for."""
    stored: dict[str, Any] = keras.saving.serialize_keras_object(layer)
    return {key: stored[key] for key in ("module", "class_name", "registered_name")} | {"config": config}


def step_shape(shape: Shape) -> Shape:
    """Return the shape of a step of a sequence, batch dimension first."""
    return (shape[0], *shape[2:])


def masks_steps(layer: Any, mask: Any) -> bool:
    """Check whether a layer takes a mask of the positions of each step [n, steps, positions]."""
    takes_mask = "mask" in inspect.signature(layer.call).parameters
    return takes_mask and getattr(mask, "ndim", 0) > _AXES_OF_STEPS


def _joined(tensor: Any) -> Any:
    """Return the steps of all examples as examples."""
    return ops.reshape(tensor, (-1, *tensor.shape[2:]))


def _one_step(tensor: keras.KerasTensor) -> keras.KerasTensor:
    return keras.KerasTensor(step_shape(tensor.shape), tensor.dtype)

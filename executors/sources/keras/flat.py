"""Conversion of models to the form that executors need: flat, finite, with fixed sizes."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import keras
import numpy as np

from executors.inspection.errors import invalid
from executors.inspection.limits import GIB
from executors.sources.keras.lora import without_lora
from executors.structure import Structure, UnsupportedLayerError, analyse, keras_internals, narrow
from executors.structure.graph import Graph
from executors.structure.reading.reader import read_graph
from executors.structure.signature import usable_input_name
from mistify.wording import numbered

_HALVES: Final = ("float16", "bfloat16")

#: The maximum memory for one inference, in bytes.
_INFERENCE = 4 * GIB

_UNCHANGED: Final = (
    "replace it, register a handler (CONTRIBUTING.md), or have the model packaged without adaptation: "
    'write it with model.export("DIRECTORY"), and name that directory'
)


def flatten(path: Path | str, model: keras.Model) -> keras.Model:
    """Return a float32 copy with nested models inlined, after checking that it can be adapted.

    LoRA updates are merged into the kernels. The whole network is adapted and trained, including frozen
    layers, which are common after training a new head.

    Raises:
        MistifyError: INVALID_MODEL if it has an unsupported layer, a variable input size, no trainable
            weights, weights other than plain floats, or activations of more than 4 GiB.
    """
    _check_plain(path, model)
    model = without_lora(model)
    model.trainable = True
    if not model.trainable_weights:
        expected, fix = "layers with weights, such as Dense", "save the trained model"
        raise invalid(path, "a model without weights, which leaves nothing to adapt", expected, fix)
    try:
        structure = analyse(model)
        _check_memory(path, structure)
        structure = replace(structure, graph=_with_usable_inputs(structure.graph))
        flat = _in_float32(narrow(structure, {}))
    except (UnsupportedLayerError, TypeError) as error:
        raise invalid(path, str(error), "a functional model of supported layers", _UNCHANGED) from error
    return flat


def _with_usable_inputs(graph: Graph) -> Graph:
    """Return a graph with names of inputs that LiteRT accepts, and that no layer has."""
    taken, inputs = set(graph.layers), {}
    for tensor, name in graph.inputs.items():
        usable = usable_input_name(name)
        inputs[tensor] = name if usable == name else numbered(usable, taken)
        taken.add(inputs[tensor])
    return replace(graph, inputs=inputs)


def _in_float32(model: keras.Model) -> keras.Model:
    """Return a flat model in float32, which is needed for least squares and training without loss scaling."""
    graph = read_graph(model)
    if not any(dtype in _HALVES for dtype in graph.dtypes):
        return model
    graph = replace(graph, dtypes=tuple("float32" if dtype in _HALVES else dtype for dtype in graph.dtypes))
    return graph.build(
        lambda name, layer: type(layer).from_config({**_without_halves(layer.get_config()), "name": name}),
        graph.weights,
    )


def _without_halves(config: Any) -> Any:
    """Return a layer's configuration, including nested layers, with float32 for every half precision."""
    if isinstance(config, dict):
        policy = config.get("config") if config.get("class_name") == "DTypePolicy" else None
        if policy and str(policy.get("name")).removeprefix("mixed_") in _HALVES:
            return "float32"
        return {key: _without_halves(value) for key, value in config.items()}
    if isinstance(config, list | tuple):
        return type(config)(map(_without_halves, config))
    return "float32" if config in _HALVES else config


def _check_plain(path: Path | str, model: keras.Model) -> None:
    """Refuse layers with integer weights."""
    for layer in keras_internals.all_layers(model):
        if layer.quantization_mode:
            raise invalid(
                path,
                f"layer {layer.name!r}, which is quantized",
                "float weights",
                "save the model before quantize()",
            )


def check_finite(path: Path | str, model: keras.Model) -> None:
    """Refuse weights that are NaN or infinite.

    Raises:
        MistifyError: INVALID_MODEL, naming the layer.
    """
    for weight in model.weights:
        if not np.isfinite(np.asarray(weight, dtype=np.float32)).all():
            raise invalid(
                path,
                f"NaN or infinity in {weight.path}",
                "finite weights",
                "use a checkpoint from before training diverged",
            )


def _check_memory(path: Path | str, structure: Structure) -> None:
    needed = structure.network().memory_bytes()
    if needed > _INFERENCE:
        raise invalid(
            path,
            f"a model that needs {needed / GIB:,.1f} GiB for one inference",
            f"at most {_INFERENCE / GIB:.0f} GiB",
            "give it smaller inputs",
        )

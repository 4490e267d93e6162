"""Loading of Keras models from files, directories or architecture names: checked, flat, ready to adapt.

A file or directory is inspected before any part of it is loaded (`executors.inspection`), and then loaded
under limits on memory and CPU time (`executors.sources.resource_limits`).
"""

from functools import partial
from pathlib import Path

import keras

from executors.custom_layers import import_layers
from executors.inspection import Inspected, SourceKind, inspect_source
from executors.inspection.directories import NOT_ADAPTABLE
from executors.inspection.errors import invalid
from executors.inspection.limits import GIB
from executors.sources.keras.applications import application
from executors.sources.keras.builtin import builtin_source
from executors.sources.keras.flat import check_finite, flatten
from executors.sources.keras.hub_files import with_preset
from executors.sources.keras.keras3 import load_file
from executors.sources.keras.presets import load_preset
from executors.sources.keras.saved_model import load_saved_model
from executors.sources.resource_limits import limited_resources
from mistify.errors import MistifyError

__all__ = ["builtin_source", "flatten", "load_application", "load_keras"]

#: Memory limit for loading a model, as a multiple of its file size: the file, the model, its flat copy and a
#: translation.
_COPIES = 8
_LEAST_MEMORY = 2 * GIB

#: Memory limit for an architecture of `keras.applications`: the largest has 1.4 GiB of weights.
_APPLICATION_MEMORY = 16 * GIB


def load_keras(path: Path, sequence: int | None = None, classes: int | None = None) -> keras.Model:
    """Load a model from a file or directory as a flat functional model of Keras 3.

    Args:
        path: `.keras`, `.h5` or `.hdf5`, a SavedModel of tf_keras, or a keras_hub preset.
        sequence: Number of tokens of a text, for presets.
        classes: Number of classes of the classifier added to a preset.

    Raises:
        MistifyError: INVALID_MODEL, naming the file, the problem and an acceptable alternative.
    """
    with limited_resources(path, _LEAST_MEMORY):
        inspected = inspect_source(path, partial(_registered, path))
    with limited_resources(path, _LEAST_MEMORY + _COPIES * inspected.size):
        try:
            model = _load(path, inspected, sequence, classes)
            check_finite(path, model)
            return flatten(path, model)
        except MistifyError as error:
            explained = with_preset(path, error)
            if explained is error:  # raised again, it keeps its cause, which may be a lack of memory
                raise
            raise explained from error


def _registered(path: Path, name: str) -> bool:
    package, broken = name.partition(">")[0], import_layers()
    if package in broken:
        expected = f"an importable plug-in with the layers of {package}"
        raise invalid(path, f"a layer {name}, but {broken[package]}", expected, "fix the plug-in")
    return name in keras.saving.get_custom_objects()


def load_application(
    name: str, classes: int | None = None, size: int | None = None, weights: Path | None = None
) -> keras.Model:
    """Return an architecture of `keras.applications` as a flat functional model; see `application`.

    Args:
        name: A function of `keras.applications`.
        classes: Number of classes; None for a thousand.
        size: Height and width of the images in pixels; None for the architecture's default.
        weights: A file written by `save_weights`; None for random weights.

    Raises:
        MistifyError: INVALID_MODEL, naming the architecture, the problem and an acceptable alternative.
    """
    place = f"keras.applications/{name}"
    with limited_resources(place, _APPLICATION_MEMORY):
        model = application(name, classes, size, weights)
        check_finite(place, model)
        return flatten(place, model)


def _load(path: Path, inspected: Inspected, sequence: int | None, classes: int | None) -> keras.Model:
    match inspected.kind:
        case SourceKind.SAVED_MODEL:
            return load_saved_model(path, inspected)
        case SourceKind.PRESET:
            return load_preset(path, sequence, classes)
        case SourceKind.GRAPH:
            raise invalid(
                path, f"a SavedModel without Keras structure, which {NOT_ADAPTABLE}", "a model of Keras"
            )
    return load_file(path)

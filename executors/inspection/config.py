"""The configuration of a model: its depth, the classes it names, and the number of weights it declares."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

from executors.inspection.errors import EXPECTED, invalid, too_large
from executors.inspection.limits import Limits

#: A function that returns whether a class name registered in Keras may be loaded.
Registered: TypeAlias = Callable[[str], bool]

#: Packages with allowed classes, in addition to registered ones.
_PACKAGES = frozenset({"keras", "tf_keras", "keras_hub", "keras_nlp", "builtins"})

_MOST = 10**12
_MOST_AXES = 8

#: Classes that run arbitrary code.
_CODE = frozenset({"Lambda", "__lambda__", "TFSMLayer", "TorchModuleWrapper", "FlaxLayer", "JaxLayer"})
_REWRITE = "rewrite it with Keras's own layers, and save the model again"
_PLUG_IN = "install a plug-in that registers it (docs/models-and-data.md), or " + _REWRITE

#: Settings with a product that is a lower bound on the number of a layer's weights.
_WIDTHS: Mapping[str, tuple[str, ...]] = {
    "Dense": ("units",),
    "EinsumDense": ("output_shape",),
    "Embedding": ("input_dim", "output_dim"),
    "SimpleRNN": ("units", "units"),
    "GRU": ("units", "units"),
    "LSTM": ("units", "units"),
    **{f"Conv{rank}D": ("filters", "kernel_size") for rank in (1, 2, 3)},
    **{f"Conv{rank}DTranspose": ("filters", "kernel_size") for rank in (1, 2, 3)},
    **{f"SeparableConv{rank}D": ("filters",) for rank in (1, 2)},
    **{f"DepthwiseConv{rank}D": ("depth_multiplier", "kernel_size") for rank in (1, 2)},
    "MultiHeadAttention": ("num_heads", "key_dim"),
    "GroupedQueryAttention": ("num_query_heads", "head_dim"),
}


@dataclass(frozen=True)
class ClassPolicy:
    """Limits on the contents of a configuration.

    Attributes:
        limits: Limits on size and depth.
        registered: Whether a foreign class registered in Keras under a name, such as `package>Name`, may be
            loaded.
    """

    limits: Limits
    registered: Registered = lambda name: False


def parse_config(path: Path, text: bytes | str, limits: Limits) -> dict[str, Any]:
    """Parse a configuration.

    Args:
        path: The file named in errors.
        text: JSON.
        limits: Limits on bytes and levels.

    Raises:
        MistifyError: INVALID_MODEL if it is not a JSON object, too long or too deep.
    """
    if len(text) > limits.config_bytes:
        raise too_large(path, f"a configuration of {len(text):,} bytes", limits.config_bytes)
    deep = too_large(
        path, f"a configuration more than {limits.config_depth} levels deep", limits.config_depth
    )
    try:
        config = json.loads(text)
    except RecursionError as error:
        raise deep from error
    except ValueError as error:
        raise invalid(path, "a configuration that is not valid JSON") from error
    if not isinstance(config, dict):
        raise invalid(path, "a configuration that is not a JSON object")
    if any(depth > limits.config_depth for depth, _ in _values(config)):
        raise deep
    return config


def check_config(
    path: Path,
    config: Mapping[str, Any],
    stored: int,
    policy: ClassPolicy,
    unread: Collection[str] = ("compile_config",),
) -> None:
    """Refuse a configuration with code, foreign classes, or more weights than the file holds.

    Args:
        path: The model named in errors.
        config: The model's configuration, as written by Keras.
        stored: An upper bound on the number of weights stored with it.
        unread: Parts of the configuration that are never read: the compile settings, unless it is a preset.

    Raises:
        MistifyError: INVALID_MODEL.
    """
    parts = {key: value for key, value in config.items() if key not in unread}
    declared = 0
    for _, value in _values(parts):
        if isinstance(value, dict) and "class_name" in value:
            _check_class(path, value, policy.registered)
            _check_vocabulary(path, value)
            least = _least_weights(path, value)
            if least > stored:
                raise invalid(
                    path,
                    f"{_called(value)} with at least {least:,} weights, in a file with {stored:,}",
                    "a file with the weights of all layers",
                )
            declared += least
    if declared > policy.limits.weights:
        raise too_large(path, f"layers with at least {declared:,} weights", policy.limits.weights)


def _values(value: object) -> Iterator[tuple[int, Any]]:
    """Yield every value in a JSON value, including the value itself, with its depth."""
    left: list[tuple[int, object]] = [(1, value)]
    while left:
        depth, value = left.pop()
        yield depth, value
        if isinstance(value, dict | list):
            inner = value.values() if isinstance(value, dict) else value
            left.extend((depth + 1, item) for item in inner)


def _check_class(path: Path, value: Mapping[str, Any], registered: Registered) -> None:
    name, module = value["class_name"], value.get("module")
    if str(name) in _CODE:
        raise invalid(path, f"{_called(value)}: Python code", EXPECTED, _REWRITE)
    key = value.get("registered_name")
    if isinstance(key, str) and registered(key):
        return
    package = str(module or "keras").partition(".")[0]
    foreign = isinstance(key, str) and ">" in key and key.partition(">")[0] not in _PACKAGES
    if package not in _PACKAGES or foreign or not isinstance(name, str):
        raise invalid(path, f"{_called(value)} of {package}", EXPECTED, _PLUG_IN)


def _check_vocabulary(path: Path, value: Mapping[str, Any]) -> None:
    settings = value.get("config")
    if isinstance(settings, dict) and isinstance(settings.get("vocabulary"), str):
        raise invalid(path, f"{_called(value)} that reads a vocabulary file", "the vocabulary itself")


def _called(value: Mapping[str, Any]) -> str:
    """Return the description of an object of a configuration for errors."""
    settings = value.get("config")
    name = settings.get("name") if isinstance(settings, dict) else None
    kind = str(value["class_name"])[:100]
    return f"layer {str(name)[:100]!r} is a {kind}" if name else f"an object of the class {kind}"


def _least_weights(path: Path, value: Mapping[str, Any]) -> int:
    """Return a lower bound on the number of a layer's weights, for any input."""
    settings = value.get("config")
    keys = _WIDTHS.get(str(value["class_name"]))
    if keys is None or not isinstance(settings, dict):
        return 0
    return prod(_size(path, value, settings.get(key, 1)) for key in keys)


def _size(path: Path, value: Mapping[str, Any], size: object) -> int:
    if isinstance(size, list) and len(size) <= _MOST_AXES:
        return prod(_size(path, value, item) for item in size)
    if size is None:
        return 1
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= _MOST:
        raise invalid(
            path, f"{_called(value)} of the size {str(size)[:50]}", "whole numbers of a reasonable size"
        )
    return size

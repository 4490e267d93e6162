"""Reading of an ONNX file in this process: its error, time and memory."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import process_time
from typing import Any, Final, NamedTuple

import keras
import numpy as np
import numpy.typing as npt
import onnxruntime

from executors.sources.onnx.loading import OnnxNetwork, read_onnx
from executors.structure import analyse
from executors.structure.signature import Activation, Output, input_names, signature_of
from mistify.package.source import SourceTensor

Array = npt.NDArray[Any]

_EXAMPLES: Final = 3

#: Random integers are below this number.
_WORDS: Final = 100

_STATUS: Final = Path("/proc/self/status")
_TWIN_SHAPE: Final = (64, 64, 3)


class Reading(NamedTuple):
    """The results for one file.

    Attributes:
        size: Bytes of the file.
        difference: Largest difference from ONNX Runtime, relative to the scale of the output.
        seconds: Processor time of reading.
        memory: Bytes by which the resident memory rises.
        permutes: Number of transpositions in the network.
        groups: Number of channel groups.
        least: Share of the parameters with one unit in each group.
        twin_groups: Number of channel groups in `keras.applications`; None without such a network.
    """

    size: int
    difference: float
    seconds: float
    memory: float
    permutes: int
    groups: int
    least: float
    twin_groups: int | None


def read(path: Path, sizes: Mapping[str, Sequence[int]], twin: str) -> Reading:
    """Read a file.

    Args:
        sizes: Input -> its sizes without the batch, or the value of a number.
        twin: The architecture in `keras.applications`; empty if there is none.
    """
    keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])(np.zeros((1, 1)))  # loads TensorFlow
    before = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
    start = process_time()
    network = read_onnx(path, sizes)
    seconds, memory = process_time() - start, _resident("VmHWM") - before
    structure = analyse(network.model)
    whole, least = (
        structure.network(widths).params for widths in (structure.widths, dict.fromkeys(structure.groups, 1))
    )
    return Reading(
        path.stat().st_size,
        _difference(path, network, sizes),
        seconds,
        memory,
        sum(isinstance(layer, keras.layers.Permute) for layer in network.model.layers),
        len(structure.groups),
        least / whole,
        _twin_groups(twin) if twin else None,
    )


def _resident(field: str) -> float:
    match = re.search(rf"{field}:\s+(\d+) kB", _STATUS.read_text())
    if match is None:
        raise OSError(f"{_STATUS} has no {field}; it is only available on Linux")
    return int(match[1]) * 1024.0


def _twin_groups(name: str) -> int:
    model: Callable[..., keras.Model] = getattr(keras.applications, name)
    return len(analyse(model(weights=None, input_shape=_TWIN_SHAPE, classes=10)).groups)


def _difference(path: Path, network: OnnxNetwork, sizes: Mapping[str, Sequence[int]]) -> float:
    """Return the largest difference of the outputs for random inputs, relative to their scale."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feed = _inputs(session, network, sizes)
    expected = session.run(None, feed)
    own = {each.name: each for each in network.interface.inputs}
    inputs = [_as_in_package(feed[own[name].source], own[name]) for name in input_names(network.model)]
    made = keras.tree.flatten(network.model(inputs if len(inputs) > 1 else inputs[0], training=False))
    outputs = zip(
        signature_of(network.model).outputs,
        network.interface.outputs,
        expected,
        map(np.asarray, made),
        strict=True,
    )
    return max(
        float(np.abs(values - result.transpose(each.axes)).max()) / _scale(output, values)
        for output, each, values, result in outputs
    )


def _as_in_package(array: Array, tensor: SourceTensor) -> Array:
    """Return an array with its axes in the order of the package."""
    return array.transpose(np.argsort(tensor.axes))


def _scale(output: Output, values: Array) -> float:
    """Return the largest value of an output, or 1 for probabilities, all of which may be small."""
    return float(np.abs(values).max()) if output.activation is Activation.NONE else 1.0


def _inputs(session: Any, network: OnnxNetwork, sizes: Mapping[str, Sequence[int]]) -> dict[str, Array]:
    """Return random inputs in ONNX's order of axes."""
    rng, feed = np.random.default_rng(0), dict[str, Array]()
    tensors = {each.source: each for each in network.interface.inputs}
    shapes = {tensor.name: tensor.shape for tensor in network.model.inputs}
    for each in session.get_inputs():
        dtype = each.type.removeprefix("tensor(").removesuffix(")").replace("float", "float32")
        if each.name not in tensors:  # a number
            feed[each.name] = np.array(sizes[each.name][0], dtype)
            continue
        tensor = tensors[each.name]
        batch = each.shape[tensor.axes.index(0)]
        count = batch if isinstance(batch, int) else _EXAMPLES
        shape = [shapes[tensor.name][axis] or count for axis in tensor.axes]
        whole = "int" in dtype
        values = rng.integers(0, _WORDS, shape) if whole else rng.normal(size=shape)
        feed[each.name] = values.astype(dtype)
    return feed

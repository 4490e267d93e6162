"""Comparison of an exported network with the package's, in the runtimes of both."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mistify.litert import open_interpreter
from mistify_client.exporting.interface import Interface, Port

Array = npt.NDArray[Any]

_EXAMPLES: Final = 2


def difference(network: bytes, signature: str, exported: bytes, interface: Interface) -> float | None:
    """Return the largest difference of the outputs for random inputs, as a share of the largest output.

    Args:
        network: The package's network.
        exported: The ONNX file.
        interface: The names and layouts of its inputs and outputs.

    Returns:
        None if ONNX Runtime is not installed.
    """
    if find_spec("onnxruntime") is None:
        return None
    run = open_interpreter(network, None).get_signature_runner(signature)
    inputs = {
        name: _random(number, (_EXAMPLES, *one["shape"][1:]), np.dtype(one["dtype"]))
        for number, (name, one) in enumerate(run.get_input_details().items())
    }
    expected: Mapping[str, Array] = run(**inputs)
    feeds = {}
    for name, array in inputs.items():
        port = interface.get(name, Port(name))
        feeds[port.name] = _placed(port, array).astype(port.dtype or array.dtype)
    outputs = _run(exported, feeds)
    differences = []
    for name, array in expected.items():
        port = interface.get(name, Port(name))
        wanted, got = (one.astype(np.float64) for one in (_placed(port, array), outputs[port.name]))
        equal = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
        largest = np.max(np.abs(wanted), where=np.isfinite(wanted), initial=0)
        differences.append(np.max(np.abs(got - wanted), where=~equal, initial=0) / (largest or 1))
    return float(np.max(differences, initial=0))


def _run(exported: bytes, inputs: Mapping[str, Array]) -> dict[str, Array]:
    import onnxruntime  # noqa: PLC0415 (optional)

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(exported, options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def _placed(port: Port, array: Array) -> Array:
    """Return a tensor of the package in the exported layout."""
    return array if port.axes is None else array.transpose(port.axes)


def _random(seed: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    rng = np.random.default_rng(seed)
    if np.issubdtype(dtype, np.floating):
        return rng.normal(size=shape).astype(dtype)
    return rng.integers(2, size=shape).astype(dtype)  # valid indices of any table

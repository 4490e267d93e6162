"""Networks in LiteRT, and their export in ONNX Runtime."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime

from mistify.litert import open_interpreter
from mistify.package.manifest import SIGNATURE
from mistify_client.exporting.conversion import checked, converted
from mistify_client.exporting.interface import Interface, Port

Array = npt.NDArray[Any]


def in_litert(network: bytes, inputs: Mapping[str, Array]) -> dict[str, Array]:
    run = open_interpreter(network, 1).get_signature_runner(SIGNATURE)
    return {name: np.asarray(output) for name, output in run(**inputs).items()}


def in_onnx_runtime(content: bytes, inputs: Mapping[str, Array]) -> dict[str, Array]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def random_inputs(network: bytes, batch: int, *, largest_index: int = 4) -> dict[str, Array]:
    rng = np.random.default_rng(batch)
    details = open_interpreter(network, 1).get_signature_runner(SIGNATURE).get_input_details()
    made: dict[str, Array] = {}
    for name, one in details.items():
        shape = (batch, *one["shape"][1:])
        floats = rng.normal(size=shape).astype(np.float32)
        indices = rng.integers(largest_index + 1, size=shape).astype(np.int32)
        made[name] = floats if one["dtype"] is np.float32 else indices
    return made


def difference(network: bytes, interface: Interface | None = None) -> float:
    """Return the largest difference of the exported outputs, as a share of the largest output."""
    interface = interface or {}
    content = checked(converted(network, SIGNATURE, interface, {}))
    worst = 0.0
    for batch in (1, 3):
        inputs = random_inputs(network, batch)
        ports = {name: interface.get(name, Port(name)) for name in inputs}
        given = {ports[name].name: _placed(ports[name], array) for name, array in inputs.items()}
        made = in_onnx_runtime(content, given)
        for name, expected in in_litert(network, inputs).items():
            port = interface.get(name, Port(name))
            wanted = _placed(port, expected)
            assert made[port.name].shape == wanted.shape
            assert np.abs(wanted).max() > 0.01
            worst = max(worst, float(np.abs(made[port.name] - wanted).max() / np.abs(wanted).max()))
    return worst


def channels_first(network: bytes) -> dict[str, Port]:
    """Return the interface with channels first for all images and signals, under other names."""
    run = open_interpreter(network, 1).get_signature_runner(SIGNATURE)
    ports = {}
    for name, one in {**run.get_input_details(), **run.get_output_details()}.items():
        rank = len(one["shape"])
        axes = (0, rank - 1, *range(1, rank - 1)) if rank > 2 else None
        ports[name] = Port(f"{name}.first", axes)
    return ports


def nodes(network: bytes, interface: Interface | None = None) -> Counter[str]:
    """Return how often each operator occurs in the exported network."""
    model: onnx.ModelProto = converted(network, SIGNATURE, interface or {}, {})
    return Counter(node.op_type for node in model.graph.node)


def _placed(port: Port, array: Array) -> Array:
    return array if port.axes is None else array.transpose(port.axes)

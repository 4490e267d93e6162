"""Compare networks in LiteRT's `CompiledModel`, the API for GPUs and NPUs, with its `Interpreter`."""

from functools import cache

import numpy as np
from ai_edge_litert.compiled_model import CompiledModel
from ai_edge_litert.environment import Environment
from ai_edge_litert.interpreter import Interpreter
from ai_edge_litert.tools import flatbuffer_utils

from mistify.package.manifest import FIXED_BATCH


@cache
def environment() -> Environment:
    """Return the only environment of this process: each new one searches for accelerators."""
    return Environment.create()


def assert_runs_compiled(network: bytes) -> list[str]:
    """Assert that every signature of a network gives the same outputs in both APIs; return the signatures."""
    compiled = CompiledModel.from_buffer(network, environment=environment())
    signatures = list(compiled.get_signature_list())
    # If a network computes shapes at run time, LiteRT 2.3 allocates a buffer for one example whatever the
    # batch size, and writes past its end.
    batches = (1,) if _computes_shapes(network) else (1, 3)
    for signature in signatures:
        for batch in (1,) if signature.endswith(FIXED_BATCH) else batches:
            _assert_same(network, compiled, signature, batch)
    return signatures


def _assert_same(network: bytes, compiled: CompiledModel, signature: str, batch: int) -> None:
    run = Interpreter(model_content=network, num_threads=1).get_signature_runner(signature)
    rng = np.random.default_rng(0)
    inputs = {name: _values(entry, batch, rng) for name, entry in run.get_input_details().items()}
    expected = run(**inputs)
    for name, values in inputs.items():
        if batch > 1 and values.ndim:
            compiled.resize_input_tensor_by_name(signature, name, values.shape)
    inputs_on_device = {name: compiled.create_input_buffer_by_name(signature, name) for name in inputs}
    outputs_on_device = {name: compiled.create_output_buffer_by_name(signature, name) for name in expected}
    for name, buffer in inputs_on_device.items():
        buffer.write(inputs[name].reshape(-1))
    compiled.run_by_name(signature, inputs_on_device, outputs_on_device)
    for name, output in expected.items():
        actual = outputs_on_device[name].read(output.size, output.dtype).reshape(output.shape)
        np.testing.assert_allclose(actual, output, atol=1e-6, err_msg=f"{signature}, batch {batch}: {name}")


def _values(entry: dict, batch: int, rng: np.random.Generator) -> np.ndarray:
    """Return random values for an input; integers are small because they may index a table."""
    shape = (batch, *entry["shape"][1:]) if len(entry["shape"]) else ()
    if np.issubdtype(entry["dtype"], np.floating):
        return rng.normal(size=shape).astype(entry["dtype"])
    return np.asarray(rng.integers(0, 3, shape), entry["dtype"])


def _computes_shapes(network: bytes) -> bool:
    model = flatbuffer_utils.read_model_from_bytearray(bytearray(network))
    names = (flatbuffer_utils.opcode_to_name(model, number) for number in range(len(model.operatorCodes)))
    return "SHAPE" in names

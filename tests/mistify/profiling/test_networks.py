"""Generated small networks contain the requested operators and run in LiteRT."""

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from mistify.costs.operators import Operation, OperatorKind, elementwise
from mistify.profiling.measuring import load_network, random_input
from mistify.profiling.networks import network_of
from mistify.profiling.samples import Sampler, samples
from mistify_server.worker.packaging.tflite.costs import network_cost
from mistify_server.worker.packaging.tflite.flatbuffer import operators
from mistify_server.worker.packaging.tflite.runner import tensor_shapes

CHAINS = {integer: list(samples(integer=integer)) for integer in (False, True)}


@pytest.mark.parametrize("integer", [False, True])
def test_every_network_has_the_requested_operators_and_sizes(integer: bool) -> None:
    """Read them with the cost model from the file, and from LiteRT's shapes after a run."""
    for chain in CHAINS[integer]:
        actual = list(network_cost(network_of(chain, integer=integer)).operations)
        assert [operation.kind for operation in actual] == [operation.kind for operation in chain]
        for made, asked in zip(actual, chain, strict=True):
            assert made.c_out * made.positions == pytest.approx(_written(asked), rel=0)
            if asked.kind in (OperatorKind.CONVOLUTION, OperatorKind.DENSE, OperatorKind.PRODUCT):
                assert (made.c_in, made.kernel, made.times) == (asked.c_in, asked.kernel, asked.times)
            if asked.kind in (OperatorKind.CONVOLUTION, OperatorKind.DEPTHWISE) and made.positions > 4:
                assert made.stride == asked.stride


def _written(operation: Operation) -> int:
    """Return the number of elements written; padding adds a column."""
    if operation.kind is not OperatorKind.COPY:
        return operation.written
    side = round(operation.positions**0.5)
    return side * (side + 1) * operation.c_out


def test_a_network_has_the_requested_precision() -> None:
    chain = [Operation(OperatorKind.CONVOLUTION, 16, 3, 5, 9), elementwise(OperatorKind.ADD, 16, 5)]
    for integer, kind in ((False, "FLOAT32"), (True, "INT8")):
        network = network_of(chain, integer=integer)
        assert {o.outputs[0].type for o in operators(network)} == {kind}
        assert tensor_shapes(network)


@pytest.mark.parametrize("integer", [False, True])
def test_networks_compute_with_numbers_of_normal_magnitude(integer: bool) -> None:
    """Some operators are faster with zeros, and slower with denormals."""
    for chain in CHAINS[integer][::7]:
        interpreter = Interpreter(model_content=network_of(chain, integer=integer))
        interpreter.allocate_tensors()
        for entry in interpreter.get_input_details():
            interpreter.set_tensor(entry["index"], random_input(entry["shape"], entry["dtype"]))
        interpreter.invoke()
        (output,) = interpreter.get_output_details()
        size = np.abs(interpreter.get_tensor(output["index"]).astype(float)).mean()
        assert (1.0 < size < 128.0) if output["dtype"] == np.int8 else (0.01 < size < 100.0), chain


@pytest.mark.parametrize("integer", [False, True])
@pytest.mark.parametrize(
    "operation",
    [
        Operation(OperatorKind.CONVOLUTION, 64, 16, 64, 9),
        Operation(OperatorKind.DEPTHWISE, 64, 64, 64, 9),
        Operation(OperatorKind.DENSE, 1, 64, 256),
        Operation(OperatorKind.DENSE, 12, 64, 64),
    ],
)
def test_half_of_the_outputs_of_an_operator_with_weights_are_not_positive(
    operation: Operation, integer: bool
) -> None:
    """In trained networks, a ReLU then makes them zero."""
    network = load_network(network_of([operation], integer=integer), threads=1)
    network()
    interpreter = network.__self__
    (output,) = interpreter.get_output_details()
    assert 0.25 < np.mean(interpreter.get_tensor(output["index"]) > 0) < 0.75


def test_operators_with_mismatched_shapes_are_refused() -> None:
    chain = [Operation(OperatorKind.CONVOLUTION, 16, 3, 5), Operation(OperatorKind.CONVOLUTION, 16, 6, 5)]
    with pytest.raises(ValueError, match=r"expected \(1, 4, 4, 5\), as written before"):
        network_of(chain, integer=False)


def test_samples_depend_only_on_the_seed() -> None:
    assert CHAINS[False] == list(samples(integer=False))
    assert CHAINS[False] != list(samples(integer=False, seed=1))
    assert {operation.kind for chain in CHAINS[True] for operation in chain} == set(OperatorKind)


def test_most_sizes_are_not_round_numbers() -> None:
    sampler = Sampler(0)
    drawn = [sampler.channels() for _ in range(200)]
    assert sum(size % 8 == 0 for size in drawn) < 60

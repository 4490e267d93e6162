"""Expected latencies of blocks that were not measured."""

import numpy as np
import pytest
from scipy.optimize import nnls

from mistify.package.blocks import BlockEstimate
from mistify.package.manifest import TensorInfo
from mistify_client.assembly.executions import Execution
from mistify_client.subnets.block_latencies import LatencyTable
from mistify_client.subnets.expected_latencies import _non_negative, expected_latencies_ms
from mistify_client.subnets.space import SubnetSpace
from tests.mistify_client.subnets.spaces import store

#: Milliseconds for a multiply-add, and for a byte of activations and of weights.
CONSTANTS = (2e-8, 2e-7, 1e-7)


def blocks_of_various_costs(count):
    """Return a store whose positions and blocks have different sizes, and the costs of each block."""
    rng = np.random.default_rng(count)
    made = store(count, shrunk=2, merged=(2,))
    positions = tuple(
        TensorInfo(name=f"t{at}", dtype="float32", shape=(-1, int(rng.integers(1_000, 50_000))))
        for at in range(1, count)
    )
    variants = tuple(
        one.model_copy(
            update={
                "estimate": BlockEstimate(flops=int(rng.integers(1e5, 1e7)), loss=0.0),
                "content": one.content.model_copy(update={"size": int(rng.integers(1e4, 1e6))}),
            }
        )
        for one in made.variants
    )
    made = made.model_copy(update={"positions": positions, "variants": variants})
    sizes = [10, *(info.shape[1] for info in positions), 10]
    costs = {
        one: (one.estimate.flops, 4 * (sizes[one.start] + sizes[one.end]), one.content.size)
        for one in variants
    }
    return made, costs


def table_of(latencies_ms):
    return LatencyTable(
        machine="m",
        runtime="r",
        execution=Execution.INTERPRETER,
        threads=1,
        latencies_ms={one.content.sha256: ms for one, ms in latencies_ms.items()},
    )


def test_constants_of_the_device_are_found():
    made, costs = blocks_of_various_costs(9)
    exact_ms = {one: float(np.dot(CONSTANTS, each)) for one, each in costs.items()}
    measured = SubnetSpace(made).original
    expected_ms = expected_latencies_ms(made, table_of({one: exact_ms[one] for one in measured}), measured)
    assert expected_ms.keys() == exact_ms.keys()
    assert [*expected_ms.values()] == pytest.approx([*exact_ms.values()], rel=1e-6)


def test_a_few_blocks_give_latencies_proportional_to_multiply_adds():
    made, costs = blocks_of_various_costs(4)
    measured = SubnetSpace(made).original
    expected_ms = expected_latencies_ms(made, table_of(dict.fromkeys(measured, 1.0)), measured)
    ratio = 4 / sum(costs[one][0] for one in measured)
    assert [*expected_ms.values()] == pytest.approx([ratio * each[0] for each in costs.values()])


@pytest.mark.parametrize("seed", range(20))
def test_constants_are_those_of_scipy(seed):
    rng = np.random.default_rng(seed)
    costs = rng.uniform(size=(8, 3)) * rng.uniform(0.01, 1, 3)
    expected, _ = nnls(costs, np.ones(8))
    np.testing.assert_allclose(_non_negative(costs), expected, atol=1e-8)


def test_some_of_those_constants_are_zero():
    zeros = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        zeros += np.sum(_non_negative(rng.uniform(size=(8, 3)) * rng.uniform(0.01, 1, 3)) == 0)
    assert zeros > 0

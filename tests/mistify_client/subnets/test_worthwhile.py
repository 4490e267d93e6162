"""Variants that do not pay on a device."""

import pytest

from mistify.package.blocks import BlockEstimate
from mistify.package.manifest import NETWORK
from mistify_client.assembly.executions import Execution
from mistify_client.subnets.block_latencies import LatencyTable
from mistify_client.subnets.space import SubnetSpace
from mistify_client.subnets.worthwhile import worthwhile
from tests.mistify_client.subnets.spaces import store_of, variant


def left(others, latencies_ms):
    """Return the files left of three blocks of 1, 2 and 3 ms and further variants, without the blocks."""
    blocks = [variant(f"block-{at}", at, 1) for at in range(3)]
    every_ms = dict(zip([*blocks, *others], [1.0, 2.0, 3.0, *latencies_ms], strict=True))
    table = LatencyTable(
        machine="m",
        runtime="r",
        execution=Execution.INTERPRETER,
        threads=1,
        latencies_ms={one.content.sha256: ms for one, ms in every_ms.items()},
    )
    found = worthwhile(SubnetSpace(store_of([*every_ms])), table).variants
    assert found[:3] == tuple(blocks)
    return [one.file for one in found[3:]]


@pytest.mark.parametrize(("ms", "pays"), [(1.9, True), (2.0, False), (2.1, False)])
def test_a_variant_has_to_be_faster_than_the_block_that_it_replaces(ms, pays):
    other = variant("other", 1, 1)
    assert left([other], [ms]) == [other.file] * pays


@pytest.mark.parametrize(("ms", "pays"), [(4.9, True), (5.0, False)])
def test_a_variant_of_several_blocks_is_compared_with_their_sum(ms, pays):
    other = variant("other", 1, 2)
    assert left([other], [ms]) == [other.file] * pays


@pytest.mark.parametrize(("loss", "pays"), [(-0.1, True), (0.0, False), (0.1, False)])
def test_a_slower_variant_has_to_be_better(loss, pays):
    estimate = BlockEstimate(flops=1, loss=loss)
    other = variant("other", 1, 1).model_copy(update={"estimate": estimate})
    assert left([other], [2.0]) == [other.file] * pays


def test_the_shipped_network_remains():
    shipped = variant(NETWORK.removesuffix(".tflite"), 0, 3)
    assert shipped.file == NETWORK
    assert left([shipped], [7.0]) == [NETWORK]

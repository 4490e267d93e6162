"""An invented device whose latencies are known exactly."""

from itertools import pairwise

import numpy as np

from mistify.costs.devices import DeviceTable, OperatorTiming
from mistify.costs.latency import Tile, is_product, is_tiled, routine_of
from mistify.costs.operators import Operation
from mistify.profiling.samples import Chain, samples

#: Latencies of the device: 2 us per inference, 1 us per operator, 0.1 ns per multiply-add of a tile, and
#: 1 ns per element written. An operator that reads the previous one's output adds 0.3 us and 0.2 ns per
#: element read, unless both only copy.
START, OPERATOR, MULTIPLY_ADD, ELEMENT = 2.0, 1.0, 1e-4, 1e-3
FOLLOWING, PASSED = 0.3, 2e-4
COPIES = ("copy", "reshape", "flatten")
TILES = {False: Tile(6, 32, 1, narrow=16), True: Tile(8, 32, 4)}


def microseconds(operation: Operation, tile: Tile) -> float:
    """Compute an operator's latency on the device by hand."""
    routine = routine_of(operation)
    if is_product(routine):
        width = tile.narrow if operation.c_out <= tile.narrow else tile.columns
        rows, columns = -(-operation.positions // tile.rows), -(-operation.c_out // width)
        depth = -(-operation.c_in // tile.depth) * tile.depth
        products = rows * tile.rows * columns * width * operation.kernel * depth
    elif is_tiled(routine):
        columns = -(-operation.c_out // tile.columns) * tile.columns
        products = operation.positions * columns * operation.kernel
    else:
        products = 0
    return operation.times * (OPERATOR + MULTIPLY_ADD * products + ELEMENT * operation.written)


def taken(chain: Chain, integer: bool) -> float:
    alone = sum(microseconds(operation, TILES[integer]) for operation in chain)
    pairs = [pair for pair in pairwise(chain) if not {pair[0].kind.value, pair[1].kind.value} <= set(COPIES)]
    return START + alone + sum(FOLLOWING + PASSED * after.times * after.read for _, after in pairs)


def table(noise: float = 0.0) -> DeviceTable:
    random = np.random.default_rng(0)
    readings = [
        OperatorTiming(chain, integer, 1, taken(chain, integer) * np.exp(noise * random.normal()) / 1e3)
        for integer in (False, True)
        for chain in samples(integer=integer)
    ]
    return DeviceTable("my-board", "made up", "none", tuple(readings))

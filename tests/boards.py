"""A device that is made up: what anything takes there is known."""

import numpy as np

from mistify.devices import DeviceTable, Reading
from mistify.latency import Tile, is_product, is_tiled, routine_of
from mistify.operations import Operation
from mistify_client.profiling.samples import Chain, samples

#: A device: every inference takes 2 us, every operator 1 us, every multiply-add of a tile 0.1 ns, and every
#: element that is written 1 ns.
START, OPERATOR, MULTIPLY_ADD, ELEMENT = 2.0, 1.0, 1e-4, 1e-3
TILES = {False: Tile(6, 16, 1), True: Tile(8, 32, 4)}


def microseconds(operation: Operation, tile: Tile) -> float:
    """By hand: what the device takes for an operator."""
    routine = routine_of(operation)
    if is_product(routine):
        rows, columns = -(-operation.positions // tile.rows), -(-operation.c_out // tile.columns)
        depth = -(-operation.c_in // tile.depth) * tile.depth
        products = rows * tile.rows * columns * tile.columns * operation.kernel * depth
    elif is_tiled(routine):
        columns = -(-operation.c_out // tile.columns) * tile.columns
        products = operation.positions * columns * operation.kernel
    else:
        products = 0
    return operation.times * (OPERATOR + MULTIPLY_ADD * products + ELEMENT * operation.written)


def taken(chain: Chain, integer: bool) -> float:
    return START + sum(microseconds(operation, TILES[integer]) for operation in chain)


def table(noise: float = 0.0) -> DeviceTable:
    random = np.random.default_rng(0)
    readings = [
        Reading(chain, integer, 1, taken(chain, integer) * np.exp(noise * random.normal()) / 1e3)
        for integer in (False, True)
        for chain in samples(integer=integer)
    ]
    return DeviceTable("my-board", "made up", "none", tuple(readings))

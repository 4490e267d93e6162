"""Block stores of any size without files, with random latencies and losses."""

from hashlib import sha256
from typing import NamedTuple

import numpy as np

from mistify.package.blocks import BlockEstimate, BlockStore, BlockVariant
from mistify.package.manifest import TensorInfo
from mistify.package.records import PackagedFile
from mistify_client.assembly.executions import Execution
from mistify_client.subnets.block_latencies import LatencyTable
from mistify_client.subnets.space import Subnet, SubnetSpace


def variant(name: str, start: int, span: int) -> BlockVariant:
    content = PackagedFile(size=1000, sha256=sha256(name.encode()).hexdigest())
    return BlockVariant(file=f"{name}.tflite", content=content, start=start, span=span)


def store_of(variants: list[BlockVariant]) -> BlockStore:
    last = max(one.end for one in variants)
    infos = [TensorInfo(name=f"t{at}", dtype="float32", shape=(-1, 10)) for at in range(last + 1)]
    first, *between, outputs = infos
    return BlockStore(inputs=(first,), positions=tuple(between), outputs=(outputs,), variants=tuple(variants))


def store(blocks: int, shrunk: int, merged: tuple[int, ...]) -> BlockStore:
    """Return a store with shrunk variants of each block, and variants that replace several blocks."""
    original = [variant(f"block-{at}", at, 1) for at in range(blocks)]
    smaller = [
        variant(f"block-{at}-shrunk{number}", at, 1) for at in range(blocks) for number in range(shrunk)
    ]
    larger = [
        variant(f"block-{at}-merge{span}", at, span) for span in merged for at in range(blocks - span + 1)
    ]
    return store_of([*original, *smaller, *larger])


class Known(NamedTuple):
    """A space in which variants with a larger loss are faster."""

    space: SubnetSpace
    table: LatencyTable
    lost: dict[BlockVariant, float]

    @property
    def as_the_server_knows_it(self) -> SubnetSpace:
        """Return the same space with a store that has exact losses, and multiply-adds equal to latencies."""
        variants = [
            one.model_copy(
                update={"estimate": BlockEstimate(flops=round(1e6 * self.table.of(one)), loss=self.lost[one])}
            )
            for one in self.space.store.variants
        ]
        return SubnetSpace(store_of(variants))

    @property
    def original_ms(self) -> float:
        return self.table.latency_ms(self.space.original)

    def lost_by(self, subnet: Subnet) -> float:
        return sum(self.lost[one] for one in subnet)


def known(blocks: int, shrunk: int = 2, merged: tuple[int, ...] = (2, 3), seed: int = 0) -> Known:
    space = SubnetSpace(store(blocks, shrunk, merged))
    rng = np.random.default_rng(seed)
    latencies_ms, lost = {}, {}
    for one in space.variants:
        original = one in space.original
        latencies_ms[one.content.sha256] = float(rng.uniform(1.0, 2.0) if original else rng.uniform(0.2, 1.2))
        lost[one] = 0.0 if original else float(rng.exponential(0.02 * one.span))
    table = LatencyTable(
        machine="m", runtime="r", execution=Execution.INTERPRETER, threads=1, latencies_ms=latencies_ms
    )
    return Known(space, table, lost)

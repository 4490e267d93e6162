"""Evaluation of many subnets on the same data, batch by batch; shared parts run once (AdaptiveNet 5.2)."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from mistify.package.block_files import BlockFiles
from mistify.package.blocks import BlockStore, BlockVariant
from mistify_client.assembly.chaining import LoadedBlock
from mistify_client.assembly.executions import Tensors
from mistify_client.assembly.memory import return_memory
from mistify_client.runtime.inputs import Array, bind
from mistify_client.subnets.block_latencies import LatencyTable
from mistify_client.subnets.scoring.block_cache import BlockCache
from mistify_client.subnets.scoring.prefixes import PrefixNode, tree_of
from mistify_client.subnets.space import Subnet

#: Examples per batch. Larger batches are not faster, because their features do not fit into caches.
BATCH: Final = 10

#: Memory limit for the features of shared prefixes.
FEATURE_BYTES: Final = 16 << 20

#: Memory limit for loaded blocks, unless the largest subnet needs more. Loading a small block takes longer
#: than running it: if all fit, each is loaded only once rather than for each batch.
BLOCK_BYTES: Final = 8 << 20


class Outputs(NamedTuple):
    """The outputs of a subnet for a batch of the data.

    Attributes:
        subnet: Index of the subnet.
        rows: The rows of the data in this batch.
        outputs: Output name -> [batch, ...], in the network's dtype.
    """

    subnet: int
    rows: slice
    outputs: dict[str, Array]


class GroupEvaluation:
    """Runs groups of subnets on the same data.

    Attributes:
        runs: Number of runs of a block on a batch.
        saved: Number of such runs saved because subnets share their first blocks.
        loads: Number of blocks loaded.
    """

    def __init__(
        self,
        files: BlockFiles,
        store: BlockStore,
        table: LatencyTable,
        inputs: Mapping[str, Array],
        *,
        batch: int = BATCH,
        feature_bytes: int = FEATURE_BYTES,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        """Keep the data and the limits.

        Args:
            files: The files of the block store.
            store: The manifest of the block store.
            table: The latencies of the blocks; they run with the execution of the measurement.
            inputs: Input name -> [examples, ...].
            batch: Number of examples in a batch.
            feature_bytes: Limit on stored features; 0 to run each subnet separately.
            block_bytes: Limit on the blocks in memory, unless the largest subnet of a group needs more.
        """
        self.runs = self.saved = self.loads = 0
        self._files = files
        self._store = store
        self._table = table
        self._inputs = inputs
        self._batch = batch
        self._feature_bytes = feature_bytes
        self._block_bytes = block_bytes
        self._bytes_at = {at: batch * store.bytes_at(at) for at in range(store.last + 1)}

    def __call__(self, subnets: Sequence[Subnet]) -> Iterator[Outputs]:
        """Yield the outputs of each subnet for each batch: all subnets of one batch, then all of the next.

        Args:
            subnets: Subnets without duplicates.

        Raises:
            MistifyError: CORRUPT_PACKAGE, naming the file of a block that is missing or damaged, or that
                LiteRT cannot run; INVALID_DATASET, the data do not fit the network.
        """
        return_memory()  # of the previous group's blocks
        tree = tree_of(subnets, self._table, self._bytes_at, self._feature_bytes)
        order = list(tree.runs())
        batches = math.ceil(len(next(iter(self._inputs.values()))) / self._batch)
        limit = max(self._block_bytes, *(sum(map(self._size, subnet)) for subnet in subnets))
        blocks = BlockCache(self._loaded, self._size, limit, order)
        for number in range(batches):
            rows = slice(number * self._batch, (number + 1) * self._batch)
            values = {name: array[rows] for name, array in self._inputs.items()}
            for subnet, outputs in _run(tree, bind(self._store.inputs, (), values), blocks):
                yield Outputs(subnet, rows, outputs)
            self.runs += len(order)
            self.saved += sum(map(len, subnets)) - len(order)
        self.loads += blocks.loads

    def _loaded(self, variant: BlockVariant) -> LoadedBlock:
        return LoadedBlock(self._files, variant, self._table.threads, self._table.execution)

    def _size(self, variant: BlockVariant) -> int:
        """Return the bytes of a block in memory: its weights, and its input and output tensors."""
        return variant.content.size + self._bytes_at[variant.start] + self._bytes_at[variant.end]


def _run(node: PrefixNode, tensors: Tensors, blocks: BlockCache) -> Iterator[tuple[int, dict[str, Array]]]:
    """Yield the outputs of each subnet below a node, depth first; features are dropped after use.

    Args:
        node: A node of a tree.
        tensors: The inputs of the node's blocks.
        blocks: The blocks in memory.
    """
    for variant in node.blocks:
        tensors = blocks.next(variant)(tensors)
    if node.subnet is not None:
        yield node.subnet, dict(tensors)
    for each in node.children:
        yield from _run(each, tensors, blocks)

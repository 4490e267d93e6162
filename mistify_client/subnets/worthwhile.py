"""The variants that are worth their latency on this device (CrowdHMTware III-A1)."""

from mistify.package.blocks import BlockStore, BlockVariant
from mistify.package.manifest import NETWORK
from mistify_client.subnets.block_latencies import LatencyTable
from mistify_client.subnets.space import SubnetSpace


def worthwhile(space: SubnetSpace, table: LatencyTable) -> BlockStore:
    """Return the store without variants that are neither faster nor better than the blocks they replace.

    Fewer multiply-adds do not mean less time on every device. Such variants are in no best subnet, but a
    search would score them. Blocks of the original and of the shipped network always remain.

    Args:
        table: The latencies of all blocks of the space.
    """
    kept = {*space.original, *(space.served or ())}
    return space.store.only({one.file for one in space.variants if one in kept or _pays(one, space, table)})


def _pays(variant: BlockVariant, space: SubnetSpace, table: LatencyTable) -> bool:
    """Check whether a variant is faster, or has a lower loss according to the server."""
    if variant.file == NETWORK or (variant.estimate is not None and variant.estimate.loss < 0):
        return True
    replaced = [one for one in space.original if variant.start <= one.start < variant.end]
    return table.of(variant) < table.latency_ms(replaced)

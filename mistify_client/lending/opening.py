"""The networks of a package whose blocks helpers may run."""

from collections.abc import Sequence
from math import inf

from mistify.errors import ErrorCode, MistifyError
from mistify.package.cuts import worthwhile_starts
from mistify.package.manifest import NETWORK
from mistify.package.opened import Package
from mistify_client.assembly.shipped import blocks_of
from mistify_client.lending.cuts import cuts_of
from mistify_client.lending.packages import BlockNetwork
from mistify_client.lending.prediction import NetworkCuts, shares_before
from mistify_client.lending.tensors import bytes_of


def block_network(package: Package, files: Sequence[str] = (), *, rounding_loss: float = 0.0) -> BlockNetwork:
    """Return a network of blocks of a package, with the segments that are worth having.

    Args:
        files: Files of its blocks, from inputs to outputs; without any, or with the file of the network of
            the package, the blocks of that network.
        rounding_loss: The accuracy that the rounding of a cut's tensors may lose; 0 to round none.

    Raises:
        MistifyError: NOT_FOUND, the package has no blocks, or its network does not consist of them;
            STORE_VERSION, a newer version of Mistify wrote them; CORRUPT_PACKAGE, with every problem in
            `blocks.json`.
    """
    store, manifest = blocks_of(package), package.manifest
    if not files or tuple(files) == (NETWORK,):
        files = store.served
    if not files or manifest.branches or manifest.tuned_from:
        why = (
            "has branches"
            if manifest.branches
            else "was tuned"
            if manifest.tuned_from
            else "has another network"
        )
        message = f"the package {package.directory} {why}, so that its blocks are not its network; "
        raise MistifyError(ErrorCode.NOT_FOUND, message + "helpers run only blocks: load it without lending")
    blocks = store.network_of(files)
    starts = worthwhile_starts(store, blocks)
    losses = store.rounding_losses if rounding_loss else {}
    positions = [blocks[start].start for start in starts]
    rounded = {cut for cut, position in enumerate(positions) if losses.get(position, inf) <= rounding_loss}
    return BlockNetwork(package.directory, store, blocks, starts, frozenset(rounded))


def predicted_cuts(network: BlockNetwork, idle_ms: float) -> NetworkCuts:
    """Return the cuts of a network that was not measured in segments.

    Args:
        idle_ms: Milliseconds of the network on this device when it is idle.
    """
    shares = shares_before(network.blocks, network.starts)
    cuts = tuple((shares[cut.segment], cut.size) for cut in cuts_of(network))
    return NetworkCuts(idle_ms, cuts, bytes_of(network.outputs))

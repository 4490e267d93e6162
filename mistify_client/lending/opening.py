"""Opening the network of a package so that helpers may run its last blocks."""

from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import NETWORK
from mistify.package.opened import Package
from mistify_client.assembly.executions import Execution, open_network, part_that_runs
from mistify_client.assembly.shipped import blocks_of
from mistify_client.lending.config import LendingConfig
from mistify_client.lending.cuts import worthwhile_starts
from mistify_client.lending.offloading import LocalNetwork, OffloadingNetwork
from mistify_client.lending.packages import BlockNetwork
from mistify_client.lending.segments import fastest_run, load_segments, segment_times
from mistify_client.lending.speed import LocalSpeed
from mistify_client.lending.tensors import zeros_of


def offloading_network(package: Package, config: LendingConfig, threads: int) -> OffloadingNetwork:
    """Open the network of a package, so that helpers may run its last blocks.

    Args:
        package: A package with blocks.
        threads: Number of threads of LiteRT.

    Raises:
        MistifyError: NOT_FOUND, the package has no blocks, or its network does not consist of them;
            CORRUPT_PACKAGE, a block cannot be used.
    """
    store, manifest = blocks_of(package), package.manifest
    if not store.served or manifest.branches or manifest.tuned_from:
        why = (
            "has branches"
            if manifest.branches
            else "was tuned"
            if manifest.tuned_from
            else "has another network"
        )
        message = f"the package {package.directory} {why}, so that its blocks are not its network; "
        raise MistifyError(ErrorCode.NOT_FOUND, message + "helpers run only blocks: load it without lending")
    blocks = store.network_of(store.served)
    network = BlockNetwork(package.directory, store, blocks, worthwhile_starts(store, blocks))
    segments = load_segments(network, threads)
    try:
        content = part_that_runs(package.read(NETWORK), Execution.INTERPRETER)
        whole = open_network(content, Execution.INTERPRETER, threads)
        inputs = zeros_of(network.inputs_of(0))
        _, whole_ms = fastest_run(whole, inputs, threads)
        speed = LocalSpeed(whole_ms, segment_times(segments, inputs, threads))
        local = LocalNetwork(whole, segments, speed)
        return OffloadingNetwork(network, local, manifest.quantization, config)
    except (ValueError, RuntimeError) as error:
        message = f"{package.directory / NETWORK} cannot be used: {error}"
        raise MistifyError(ErrorCode.CORRUPT_PACKAGE, message) from error

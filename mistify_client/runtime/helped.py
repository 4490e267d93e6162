"""The network of a package whose last blocks may run on a helper."""

from collections.abc import Mapping
from pathlib import Path

from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import Manifest
from mistify.package.opened import Package
from mistify_client.lending.config import LendingConfig
from mistify_client.lending.offloading import OffloadingNetwork
from mistify_client.lending.opening import offloading_network
from mistify_client.lending.reports import LendingReporter
from mistify_client.lending.status import LendingStatus
from mistify_client.runtime.inputs import Array
from mistify_client.runtime.interpreter import Ran, Run, Shapes, zeros
from mistify_client.runtime.options import PackageOptions


class HelpedNetwork:
    """The only option of a package, for one thread at a time.

    Attributes:
        threads: Number of threads of LiteRT.
    """

    def __init__(
        self, manifest: Manifest, network: OffloadingNetwork, threads: int, reporter: LendingReporter
    ) -> None:
        self.manifest = manifest
        self.threads = threads
        self._network = network
        self._reporter = reporter
        self._shapes: Shapes | None = None

    @property
    def lending(self) -> LendingStatus:
        """The state of the lending."""
        return self._network.status

    @property
    def shapes(self) -> Shapes | None:
        """The shapes of the last inputs, for which memory is allocated; None before the first inference."""
        return self._shapes

    def running(self, wanted: int) -> int:
        """Return the option that runs: the only one."""
        return wanted

    def prepared(self, inputs: Mapping[str, Array]) -> Run:
        """Return a function that runs inferences on inputs of these shapes."""
        self._shapes = tuple(array.shape for array in inputs.values())
        return self._run

    def warm_up(self, shapes: Shapes | None = None) -> None:
        """Run all blocks once on this device, so that the first inference is not slower than others.

        Args:
            shapes: Shapes of the inputs; single examples by default.
        """
        self._network.run_here(zeros(self.manifest.inputs, shapes))

    def _run(self, inputs: Mapping[str, Array], option: int) -> Ran:
        outputs = self._network(inputs)
        self._reporter.offer(self._network.status)
        return Ran(outputs, option)


def with_helpers(
    package: Package, options: PackageOptions, config: LendingConfig, threads: int, state: Path
) -> HelpedNetwork:
    """Open the network of a package, so that helpers may run its last blocks.

    Args:
        options: The options of the package.
        threads: Number of threads of LiteRT.
        state: The state directory of the package, for reports to its monitor.

    Raises:
        MistifyError: NOT_FOUND, helpers cannot help with this package; CORRUPT_PACKAGE, a block cannot be
            used.
    """
    if len(options.options) > 1 or options.paged:
        message = f"helpers help with a single network, but {package.directory} has several options"
        raise MistifyError(ErrorCode.NOT_FOUND, message)
    offloading = offloading_network(package, config, threads)
    network = HelpedNetwork(package.manifest, offloading, threads, LendingReporter(state))
    network.warm_up()
    return network

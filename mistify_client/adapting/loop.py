"""The loop of adaptation: read inputs, update statistics, install a version or restore the shipped one."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mistify.adaptation.adapter import BATCH, Adapter
from mistify.adaptation.observing import folded_norms, graph_observers, observed_networks
from mistify.adaptation.statistics import FoldedNorms, Statistics
from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import NETWORK
from mistify_client.adapting.fitting import check_fits
from mistify_client.adapting.guard import Action, Shifts, chosen_action, has_collapsed, may_install
from mistify_client.adapting.installing import AdaptableVersion, adaptable_version, install_adapted, restore
from mistify_client.adapting.storage import AdaptationState, AdaptationStorage, now
from mistify_client.assembly.pool import SubnetPool
from mistify_client.runtime.samples import SampleReader, are_fixed
from mistify_client.runtime.versions import current, state_directory

__all__ = ["AdaptationLoop"]

#: Called with an event, its reason, and figures.
OnEvent = Callable[[str, str, dict[str, Any]], object]

_NEVER: Final = float("-inf")


@dataclass
class _Running:
    """The version that is being adapted.

    Attributes:
        version: The current version, and the one that it was made of.
        norms: The norms of the network.
        adapter: Their statistics.
        installed: The statistics of the current version; None if it is not adapted.
        samples: The inputs of apps.
        examples: Examples seen so far.
        updates: Updates so far.
        installable_since: The time since which another version may be installed; None if it may not.
    """

    version: AdaptableVersion
    norms: FoldedNorms
    adapter: Adapter
    samples: SampleReader
    installed: Statistics | None = None
    examples: int = 0
    updates: int = 0
    installable_since: float | None = None

    @property
    def shifts(self) -> Shifts:
        """The shifts of the statistics."""
        adapter, installed = self.adapter, self.installed
        since = None if installed is None else self.norms.shift(adapter.statistics, installed)
        return Shifts(adapter.shift, adapter.recent_shift, since)

    @property
    def network(self) -> str:
        """SHA-256 of the network whose statistics are adapted."""
        return self.version.base.manifest.files[NETWORK].sha256

    def is_current(self, package: Path) -> bool:
        """Check that no other process has installed another version."""
        return current(package) == self.version.directory


class AdaptationLoop:
    """Adaptation of one package, for one thread.

    Args:
        package: The directory of the shipped package.
        on_event: Called after a version was installed, or the shipped one came back.
        clock: Returns seconds.
    """

    def __init__(
        self,
        package: Path,
        on_event: OnEvent = lambda event, reason, figures: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._package, self._on_event, self._clock = package, on_event, clock
        self._storage = AdaptationStorage(package)
        self._running: _Running | None = None
        self._installed_at = _NEVER
        self._state: AdaptationState | None = None

    @property
    def state(self) -> AdaptationState | None:
        """The state after the last step; None before the first one, or if the package cannot be adapted."""
        return self._state

    def step(self) -> None:
        """Update the statistics with new examples; install or restore a version if the guard says so.

        Raises:
            MistifyError: NOT_FOUND, the current version cannot be adapted, with the reason; CONFLICT, another
                process installed a version in the meantime; CORRUPT_PACKAGE, a file is damaged.
            OSError: A file cannot be written.
        """
        running = self._current()
        for example in running.samples.new():
            running.examples += running.adapter.see(example)
        running.updates += running.adapter.update()
        if not running.adapter.statistics.finite:
            self._give_up(running, "the statistics are not finite")
        else:
            self._act(running)
        if not self._storage.is_reset:
            self._save(running)

    def close(self) -> None:
        """Stop asking apps for inputs, and remove those on disk; statistics and versions stay."""
        if self._running is not None:
            self._running.samples.stop()
            self._running = self._state = None

    def _current(self) -> _Running:
        """Return the version to adapt; open it again if another process has installed or reset one."""
        running = self._running
        if running is None or self._storage.is_reset or not running.is_current(self._package):
            self.close()
            running = self._running = self._opened(adaptable_version(self._package))
            self._save(running)
        return running

    def _opened(self, version: AdaptableVersion) -> _Running:
        base, store = version.base, version.store
        state = state_directory(self._package)
        _check(version, SubnetPool.load(state, base))
        check_fits(base, store)
        norms = folded_norms(store.norms, store.read_statistics(base))
        networks = list(observed_networks(base.read(NETWORK), store.norms, len(base.manifest.branches)))
        before = self._storage.state()
        kept = None
        if before is not None and before.network == base.manifest.files[NETWORK].sha256:
            kept = self._storage.statistics(sum(norms.sizes))
        adapter = Adapter(
            norms, graph_observers(networks, store.output, store.kind), store.classes, statistics=kept
        )
        samples = SampleReader(state, base.manifest.inputs)
        samples.start()
        installed = adapter.statistics if version.adapted else None
        return _Running(version, norms, adapter, samples, installed)

    def _act(self, running: _Running) -> None:
        now, shifts = self._clock(), running.shifts
        seconds = now - self._installed_at
        if not may_install(shifts, seconds):
            running.installable_since = None
        elif running.installable_since is None:
            running.installable_since = now
        waited = 0.0 if running.installable_since is None else now - running.installable_since
        match chosen_action(shifts, seconds, waited):
            case Action.RESTORE:
                self._restore(running, "the data are as they were when the package was made")
            case Action.INSTALL if _has_collapsed(running):
                self._give_up(running, "the adapted network told fewer classes apart")
            case Action.INSTALL:
                self._install(running)
            case Action.KEEP:
                pass

    def _install(self, running: _Running) -> None:
        statistics = running.adapter.statistics
        self._installed_at = self._clock()  # also if it fails, as on a full disk: copies wear flash memory
        running.version = install_adapted(self._package, running.version, statistics)
        running.installed = statistics
        self._note(running, "installed", "the data have shifted")

    def _restore(self, running: _Running, reason: str) -> None:
        running.version, running.installed = restore(self._package, running.version), None
        self._note(running, "restored", reason)

    def _give_up(self, running: _Running, reason: str) -> None:
        """Start again from the shipped statistics, with the shipped network."""
        if running.version.adapted:
            running.version, running.installed = restore(self._package, running.version), None
        running.adapter.statistics = running.norms.shipped
        running.adapter.forget()
        self._installed_at = self._clock()
        self._note(running, "rolled back", reason)

    def _note(self, running: _Running, event: str, reason: str) -> None:
        figures = {"shift": round(running.adapter.shift, 3), "examples": running.examples}
        self._storage.note(event, reason, **figures)
        self._on_event(event, reason, figures)

    def _save(self, running: _Running) -> None:
        """Save the state unless nothing has changed, to limit wear of flash memory."""
        adapter, before = running.adapter, self._state
        state = AdaptationState(
            network=running.network,
            adapted=running.version.adapted,
            shift=round(adapter.shift, 4),
            spread=round(adapter.spread, 4),
            examples=running.examples,
            updates=running.updates,
            time=now(),
        )
        if before is None or state.model_copy(update={"time": before.time}) != before:
            self._storage.save(state, adapter.statistics)
            self._state = state


def _has_collapsed(running: _Running) -> bool:
    adapted, shipped = (
        running.adapter.predictions(statistics, BATCH)
        for statistics in (running.adapter.statistics, running.norms.shipped)
    )
    return has_collapsed(adapted, shipped)


def _check(version: AdaptableVersion, pool: SubnetPool | None) -> None:
    """Check that a version can be adapted on this device.

    Raises:
        MistifyError: NOT_FOUND, its options are subnets, or its inputs differ in size.
    """
    directory = version.base.directory
    if pool is not None and pool.entries:
        reason = "its options are subnets, which share blocks but not the statistics of what they read"
    elif not are_fixed(version.base.manifest.inputs):
        reason = "its inputs differ in size"
    else:
        return
    raise MistifyError(ErrorCode.NOT_FOUND, f"{directory} cannot be adapted to data without labels: {reason}")

"""Slices as options of the monitor: offered for the task of a package, cut when a policy chooses one."""

import math
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from mistify.errors import ErrorCode, MistifyError
from mistify.files.locking import locked
from mistify.machine import machine, runtime
from mistify.package.manifest import NETWORK, Manifest
from mistify.package.opened import Package
from mistify.package.option_kinds import OptionKind
from mistify.parsing.quantities import format_time
from mistify.wording import listed
from mistify_client.assembly.ladder import Rung, SliceLadder
from mistify_client.monitor.state.journal import Journal
from mistify_client.runtime.options import Option
from mistify_client.runtime.paged import RETRY_SECONDS
from mistify_client.runtime.versions import open_current, state_directory
from mistify_client.slicing.cutting import cut_networks, cut_slice
from mistify_client.slicing.latencies import SECONDS, relative_latency
from mistify_client.slicing.offering import offer_slices

_ABOUT: Final = "slices"

_DIGITS: Final = 3


class BackgroundSlices:
    """Offers slices for the task of a package, and cuts chosen ones, in a thread with one job at a time.

    A job that fails is repeated after `RETRY_SECONDS`, or once another version of the package is current.

    Args:
        package: The directory of the shipped package.
        journal: The log for offers, slices and problems.
        clock: Returns seconds.
        seconds: Time of measuring each slice.
    """

    def __init__(
        self,
        package: Path,
        journal: Journal,
        clock: Callable[[], float] = time.monotonic,
        seconds: float = SECONDS,
    ) -> None:
        self._package, self._state = package, state_directory(package)
        self._journal, self._clock, self._seconds = journal, clock, seconds
        self._cut, self._conditions = cut_networks(package), (machine(), runtime())
        self._manifest: Manifest | None = None
        self._ladder: SliceLadder | None = None
        self._offer_at = -math.inf
        self._cut_at: dict[str, float] = {}
        self._measured_ms: dict[str, tuple[int, float]] = {}
        self._thread: threading.Thread | None = None
        self._chosen: str | None = None

    @property
    def cutting(self) -> str | None:
        """The id of the slice that is being cut; None if there is none."""
        return self._chosen if self._is_busy else None

    def observe(self, manifest: Manifest, ladder: SliceLadder | None) -> None:
        """Offer slices for a version that serves a task, unless they are offered already.

        Args:
            manifest: The manifest of the current version; the same object until another one is current.
            ladder: Its ladder; None without one.
        """
        if manifest is not self._manifest:
            self._manifest, self._offer_at = manifest, -math.inf
            self._cut_at.clear()
        self._ladder = ladder
        missing = ladder is None or (ladder.machine, ladder.runtime) != self._conditions
        serves = manifest.task is not None and not manifest.tuned_from
        if serves and missing and not self._is_busy and self._clock() >= self._offer_at:
            self._start(None, partial(self._offer, manifest))

    def is_ready(self, option: Option) -> bool:
        """Check whether an option can run; start to cut a slice that has not been cut, or is damaged."""
        rung = self._ladder.rung(option.id) if self._ladder is not None else None
        if option.kind is not OptionKind.SLICE or (rung is not None and self._cut.has(rung.key)):
            return True
        if not self._is_busy and self.is_available(option):
            self._start(option.id, partial(self._make, option.id))
        return False

    def is_available(self, option: Option) -> bool:
        """Return False for a slice that could not be cut a short while ago."""
        return self._clock() >= self._cut_at.get(option.id, -math.inf)

    def measured_ms(self) -> dict[str, float]:
        """Return the latencies of slices that were measured since the last call, by id."""
        measured, self._measured_ms = self._measured_ms, {}
        generation = None if self._ladder is None else self._ladder.generation
        return {option: ms for option, (of, ms) in measured.items() if of == generation}

    def stop(self) -> None:
        """Wait for the end of a job, which takes a few seconds at most."""
        if self._thread is not None:
            self._thread.join()

    @property
    def _is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _start(self, chosen: str | None, job: Callable[[], None]) -> None:
        self._chosen = chosen
        self._thread = threading.Thread(target=job, name="mistify-slices", daemon=True)
        self._thread.start()

    def _offer(self, manifest: Manifest) -> None:
        self._offer_at = math.inf
        try:
            ladder = offer_slices(self._package, self._seconds)
        except Exception as error:  # no failure of a package may end the daemon
            if self._manifest is manifest:  # another version is tried at once
                self._note_no_offer(error)
            return
        ids = [rung.id for rung in ladder.rungs]
        offered = (
            f"offers {listed(ids)} for {ladder.task}" if ids else f"no slice for {ladder.task} is better"
        )
        self._journal.problem(_ABOUT, None)
        self._journal.note("slices", offered, options=ids)

    def _note_no_offer(self, error: Exception) -> None:
        code = error.code if isinstance(error, MistifyError) else None
        if code is ErrorCode.NOT_FOUND:  # most packages have no factory
            return
        self._offer_at = self._clock() + RETRY_SECONDS
        if code is not ErrorCode.CONFLICT:  # the next version has other slices
            self._journal.problem(_ABOUT, f"no slices are offered: {error}")

    def _make(self, chosen: str) -> None:
        try:
            version = open_current(self._package)
            ladder = SliceLadder.of(version, self._state)
            if ladder is None or (rung := ladder.rung(chosen)) is None:
                raise MistifyError(ErrorCode.NOT_FOUND, f"{version.directory} offers no {chosen}")
            self._cut.make(rung.key, partial(self._measured, version, ladder, rung))
        except Exception as error:  # no failure of a package may end the daemon
            self._cut_at[chosen] = self._clock() + RETRY_SECONDS
            self._journal.problem(_ABOUT, f"{chosen} cannot be cut: {error}")
        else:
            self._journal.problem(_ABOUT, None)

    def _measured(self, version: Package, ladder: SliceLadder, rung: Rung) -> bytes:
        """Cut and measure a slice, and record its latency in the units of the ladder."""
        network = cut_slice(self._package, rung)
        relative = relative_latency(network, version.read(NETWORK), ladder.threads, self._seconds)
        latency_ms = relative * ladder.own_ms
        if not rung.measured:
            self._record(version, ladder.with_latency(rung.id, latency_ms))
            self._measured_ms[rung.id] = ladder.generation, latency_ms
        takes, expected = format_time(latency_ms, _DIGITS), format_time(rung.latency_ms, _DIGITS)
        self._journal.note("slices", f"{rung.id} was cut: {takes} measured, {expected} expected")
        return network

    def _record(self, version: Package, ladder: SliceLadder) -> None:
        """Replace the ladder, unless another one has been installed."""
        with locked(self._state):
            now = SliceLadder.of(version, self._state)
            if now is not None and now.generation == ladder.generation:
                ladder.save(self._state)

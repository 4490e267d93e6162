"""A network of which helpers run blocks while that is faster (CrowdHMTware III-B1)."""

import logging
import random
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

import numpy as np

from mistify.costs.quantization import Quantization
from mistify.package.rounding import rounded
from mistify_client.assembly.executions import Array, Run, Tensors
from mistify_client.finalizing import close_with
from mistify_client.lending.answers import wrong_output
from mistify_client.lending.chains import Part
from mistify_client.lending.config import LendingConfig
from mistify_client.lending.cuts import cuts_of
from mistify_client.lending.packages import BlockNetwork
from mistify_client.lending.placement import PlacedPart, Placement, PlacementChooser, Reachable
from mistify_client.lending.prediction import HelperFigures
from mistify_client.lending.remote_helper import WRONG_SECONDS, RemoteHelper
from mistify_client.lending.segments import LoadedSegments, Segments
from mistify_client.lending.speed import LocalSpeed
from mistify_client.lending.status import LendingStatus
from mistify_client.lending.streams import HelperError
from mistify_client.lending.tensors import bytes_of, sent_bytes

#: A network that is faster than this is never offloaded: a helper cannot answer sooner.
FASTEST_MS: Final = 1.0

#: The least time for an answer, in milliseconds.
_LEAST_DEADLINE_MS: Final = 20.0

#: The share of inferences that are computed here as well, and the most seconds between two of them.
_CHECKED: Final = 0.01
_CHECKED_SECONDS: Final = 5.0

#: The most seconds after a check that shows a faster device.
_REPEATED_SECONDS: Final = 0.3

#: Number of inferences after which it is seen again whether the inputs can be sent as bytes.
_INPUTS_CHECKED: Final = 50

_NO_SEGMENTS: Final = LoadedSegments((), ())

logger = logging.getLogger(__name__)


class Chooser(Protocol):
    """Chooses where inferences run."""

    def choose(self, helpers: Mapping[str, Reachable], input_bytes: int) -> Placement:
        """Return the placement of the next inference, as `PlacementChooser.choose`."""

    def observe(self, placement: Placement, milliseconds: float) -> None:
        """Learn from an inference with a helper."""

    def correction(self, address: str) -> float:
        """Return the milliseconds by which inferences with a helper took longer than predicted."""


class LocalNetwork(NamedTuple):
    """A network on this device.

    Attributes:
        whole: Runs the whole network.
        segments: Its segments, which are loaded when a helper may be asked.
        speed: The speed of this device for them.
    """

    whole: Run
    segments: Segments
    speed: LocalSpeed


class OffloadingNetwork:
    """The network of a package, for one thread at a time.

    The segments of a single example may run on a chain of helpers; larger batches run on this device. All
    tensors between two helpers pass through this device. A helper that gives no right answer in time costs
    one slow inference, which this device completes with the tensors that it has sent.

    Args:
        local: The network on this device.
        precision: Precision of the package, on which the tolerance for answers depends.
        counts: Number of inferences by kind, as in `LendingStatus`; they go on from there.

    Attributes:
        network: The network and its cuts.
        chooser: Chooses where inferences run.
        helpers: Address -> helper.
        speed: The speed of this device.
    """

    def __init__(
        self,
        network: BlockNetwork,
        local: LocalNetwork,
        precision: Quantization,
        config: LendingConfig,
        counts: Counter[str] | None = None,
    ) -> None:
        """Connect to the helpers in the background."""
        self.network = network
        self._precision = precision
        self._patience = config.patience
        self._whole, self._segments, self.speed = local
        self.chooser: Chooser = PlacementChooser(cuts_of(network), bytes_of(network.outputs), self.speed)
        self._counts = Counter() if counts is None else counts
        self._runs = _NO_SEGMENTS
        self._input_bytes = bytes_of(network.inputs_of(0))
        self._last = self.chooser.choose({}, 0), self.speed.predicted_ms
        self._random = random.Random()  # noqa: S311 (a helper cannot see it)
        self.helpers: dict[str, RemoteHelper] = {}
        if self.speed.whole_ms < FASTEST_MS:
            logger.warning(
                "%s runs in %.2f ms on this device, so that no helper is asked",
                network.directory,
                self.speed.whole_ms,
            )
            return
        self.helpers = {address: RemoteHelper(address, network, config) for address in config.helpers}
        for helper in self.helpers.values():
            close_with(self, helper.close)

    @property
    def status(self) -> LendingStatus:
        """The state of the lending."""
        placement, milliseconds = self._last
        problems = {helper.address: helper.problem for helper in self.helpers.values()}
        return LendingStatus(placement, milliseconds, problems, dict(self._counts))

    @property
    def figures(self) -> dict[str, HelperFigures]:
        """Address of each helper that can be asked now -> what it takes for any network of the package."""
        idle_ms = sum(self.speed.idle_ms)
        return {
            address: HelperFigures(
                helper.link.round_trip_ms + helper.speed.overhead_ms + self.chooser.correction(address),
                helper.link.byte_ms,
                sum(helper.speed.segment_ms) / idle_ms,
            )
            for address, helper in self._reachable().items()
        }

    @property
    def helped(self) -> bool:
        """True if a helper has run a part of the last inference."""
        return not self._last[0].is_local

    def __call__(self, inputs: Tensors, *, alone: bool = False) -> dict[str, Array]:
        """Return the outputs of the network by name, in its own dtypes.

        Args:
            inputs: Input name -> [batch, ...].
            alone: Ask no helper, and keep no segments in memory.
        """
        is_single = len(next(iter(inputs.values()))) == 1
        reachable = {} if alone or not is_single else self._reachable()
        if alone:
            self._drop_segments()
        elif reachable and not self._has_segments():
            reachable = {}
        if self._counts.total() % _INPUTS_CHECKED == 0:
            self._input_bytes = sent_bytes(inputs)
        placement = replace(self.chooser.choose(reachable, self._input_bytes), is_decided_by_monitor=alone)
        if not all(self.helpers[each].spend() for each in placement.helpers):
            placement = replace(placement, parts=(), is_beyond_rate=True)
        started = time.perf_counter()
        if placement.is_local:
            outputs = self._whole(inputs)
            milliseconds = self._finished("local", placement, started)
            if is_single and not placement.is_beyond_rate:  # those between others with helpers are faster
                self.speed.observe(milliseconds)
            return outputs
        if self._is_due() or not all(self.helpers[each].is_trusted for each in placement.helpers):
            return self._checked(placement, inputs, started)
        return self._offloaded(placement, inputs, started)

    def run_here(self, inputs: Tensors) -> dict[str, Array]:
        """Return the outputs of the network by name, computed on this device alone."""
        return self._whole(inputs)

    def close(self) -> None:
        """End the sessions with the helpers."""
        self._drop_segments()
        for helper in self.helpers.values():
            helper.close()

    def _reachable(self) -> dict[str, Reachable]:
        return {
            helper.address: Reachable(helper.link, helper.speed)
            for helper in self.helpers.values()
            if helper.is_available and helper.speed is not None
        }

    def _drop_segments(self) -> None:
        self._segments.drop()
        self._runs = _NO_SEGMENTS

    def _has_segments(self) -> bool:
        """Return True if the segments are in memory; otherwise begin to load them."""
        loaded = self._segments.loaded
        if loaded is None:
            self._segments.want()
            return False
        if loaded is not self._runs:
            self._runs, self.speed.idle_ms = loaded, tuple(loaded.idle_ms)
        return True

    def _offloaded(self, placement: Placement, inputs: Tensors, started: float) -> dict[str, Array]:
        """Return the outputs; this device computes the rest itself as soon as a helper does not."""
        tensors = inputs
        for placed in placement.parts:
            if placed.part.helper is None:
                tensors = self._through(tensors, placed.part)
                continue
            helper = self.helpers[placed.part.helper]
            try:
                self._start(helper, placed.part, tensors)
                tensors = helper.finish(self._deadline(placed))
            except HelperError:
                rest = placed.part._replace(helper=None, end=len(self._runs.runs))
                outputs = self._through(tensors, rest)
                self._finished("failed", placement, started)
                return outputs
        self.chooser.observe(placement, self._finished("offloaded", placement, started))
        # An app may change the arrays that it gets; those of a helper are part of its message.
        return {name: np.require(tensor, requirements="W") for name, tensor in tensors.items()}

    def _checked(self, placement: Placement, inputs: Tensors, started: float) -> dict[str, Array]:
        """Return the outputs of this device, which computes all parts while helpers do as well.

        Every helper gets the tensors of this device, so that a difference is its own. Where tensors are
        rounded to be sent, this device goes on with the rounded ones as well.
        """
        tensors, own_ms, asks = inputs, 0.0, True
        for placed in placement.parts:
            helper = None if placed.part.helper is None else self.helpers[placed.part.helper]
            if helper is not None:
                tensors = self._as_sent(tensors, placed.part.start)
            asks = asks and (helper is None or self._is_asked(helper, placed.part, tensors))
            began = time.perf_counter()
            try:
                tensors = self._through(tensors, placed.part)
                if helper is not None:
                    tensors = self._as_sent(tensors, placed.part.end)
            except BaseException:
                if asks and helper is not None:
                    helper.abandon()
                raise
            own_ms += 1e3 * (time.perf_counter() - began)
            if asks and helper is not None:
                asks = self._is_right(helper, placed, tensors)
        self.speed.observe_check(own_ms)
        self._finished("checked", placement, started)
        return dict(tensors)

    def _start(self, helper: RemoteHelper, part: Part, tensors: Tensors) -> None:
        """Send a part of an inference."""
        sent = helper.start(part.start, part.end, tensors)
        if part.start == 0:
            self._input_bytes = sent

    def _is_asked(self, helper: RemoteHelper, part: Part, tensors: Tensors) -> bool:
        """Send a part of an inference; return False if the helper cannot be asked."""
        try:
            self._start(helper, part, tensors)
        except HelperError:
            return False
        return True

    def _is_right(self, helper: RemoteHelper, placed: PlacedPart, own: Tensors) -> bool:
        """Compare a helper's outputs with those of this device; return False unless they are right."""
        try:
            answer = helper.finish(self._deadline(placed))
        except HelperError:
            return False
        end = placed.part.end
        outputs, is_rounded = self.network.tensors_at(end), end in self.network.rounded
        wrong = wrong_output(answer, own, outputs, self._precision, is_rounded=is_rounded)
        helper.is_trusted = wrong is None
        if wrong is not None:
            why = f"{helper.address} gave a wrong answer: {wrong} differs from this device's"
            helper.drop(why, WRONG_SECONDS)
        return helper.is_trusted

    def _as_sent(self, tensors: Tensors, cut: int) -> Tensors:
        """Return the tensors before a segment as its helper gets them."""
        if cut not in self.network.rounded:
            return tensors
        return {name: rounded(tensor) for name, tensor in tensors.items()}

    def _deadline(self, placed: PlacedPart) -> float:
        """Return the seconds for the answer to a part."""
        return max(_LEAST_DEADLINE_MS, self._patience * placed.expected_ms) / 1e3

    def _is_due(self) -> bool:
        """Check whether an inference has to run here as well, for a check and to know this device's speed."""
        seconds = _REPEATED_SECONDS if self.speed.has_changed else _CHECKED_SECONDS
        return self.speed.age >= seconds or self._random.random() < _CHECKED

    def _finished(self, kind: str, placement: Placement, started: float) -> float:
        """Count an inference, and return its milliseconds.

        Args:
            kind: A key of `LendingStatus.counts`.
        """
        milliseconds = 1e3 * (time.perf_counter() - started)
        self._last = placement, milliseconds
        self._counts[kind] += 1
        return milliseconds

    def _through(self, tensors: Tensors, part: Part) -> dict[str, Array]:
        """Return the outputs of the segments of a part, which run here one after the other."""
        for segment in self._runs.runs[part.start : part.end]:
            tensors = segment(tensors)
        return dict(tensors)

"""The exchange of models with peers through the coordinator (paper 5.1, step (ii))."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import TracebackType

from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import MANIFEST, NETWORK
from mistify.package.signature import SIGNATURE_FILE
from mistify.package.weights import Weights, write_weights
from mistify.peers.correlation import correlation
from mistify.peers.hints import Hints
from mistify.peers.membership import MemberKey, Membership, PackageReference
from mistify_client.rpc.connection import Traffic
from mistify_client.rpc.peer_files import PeerFile
from mistify_client.rpc.porting import PortingClient
from mistify_client.rpc.retry import Backoff
from mistify_client.rpc.tuning import TuningClient, describe
from mistify_client.tuning.storage import stored_in
from mistify_client.tuning.training_loop import Score

#: Time between renewals, well within the lease of an hour.
_RENEWAL_SECONDS = 900.0

#: Consecutive failures, about 20 seconds, after which a tuner continues without the server.
_ATTEMPTS = 8


@dataclass(frozen=True)
class Peering:
    """The group that a device tunes with.

    Attributes:
        server: `host:port` of the coordinator.
        group: The group's name on the server.
        hints: Facts about the data that are sent to the coordinator.
        count: Maximum number of peers to learn from.
        token: The server's access token.
        backoff: The delays between attempts to reach the server.
    """

    server: str
    group: str
    hints: Hints = field(default_factory=Hints)
    count: int = 4
    token: str | None = None
    backoff: Backoff = field(default_factory=lambda: Backoff(attempts=_ATTEMPTS))


class Exchange:
    """A member of a group. A context manager that connects on the first call.

    Every method raises `MistifyError`: the coordinator's errors, and UNAVAILABLE if it is unreachable or
    there is no disk space for the weights of peers.

    Args:
        peering: The server and the group.
        secret: The member's secret, 32 bytes.
        package: The tuned package.
        directory: The directory for the weights of peers.
        clock: Returns seconds.
    """

    def __init__(
        self,
        peering: Peering,
        secret: bytes,
        package: PackageReference,
        directory: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._peering = peering
        self._clock = clock
        self._renewed_at = clock()
        self._key = MemberKey(peering.group, secret)
        self._package = package
        self._directory = directory

    def __enter__(self) -> "Exchange":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tuning.close()
        self._porting.close()

    @cached_property
    def _tuning(self) -> TuningClient:
        return TuningClient(self._peering.server, self._peering.token, backoff=self._peering.backoff)

    @cached_property
    def _porting(self) -> PortingClient:
        return PortingClient(self._peering.server, self._peering.token, backoff=self._peering.backoff)

    @property
    def traffic(self) -> Traffic:
        """The number of bytes sent and received so far."""
        parts = self._tuning.traffic, self._porting.traffic
        return Traffic(sum(part.sent for part in parts), sum(part.received for part in parts))

    def join(self) -> Membership:
        """Become a member, or renew the membership, and check the hints.

        Raises:
            MistifyError: INVALID_PUBLICATION, the group requires other hints; NOT_FOUND, no such group.
        """
        membership = self._tuning.join(self._key)
        if _is_known(membership.correlation, membership.settings):
            correlation(membership.correlation, membership.settings).point(self._peering.hints)
        return membership

    def renew_lease(self) -> None:
        """Renew the membership during a long training if it is due; to be called often.

        An unreachable server is ignored: publishing joins again.
        """
        if self._clock() - self._renewed_at >= _RENEWAL_SECONDS:
            with suppress(MistifyError):
                self.join()
            self._renewed_at = self._clock()

    def publish(self, weights: Weights, score: Score) -> None:
        """Publish weights in place of the previous ones, with the next version number."""
        content = write_weights(weights)
        model = describe(
            self._package,
            content,
            version=self.join().version + 1,
            loss=score.loss,
            accuracy=score.accuracy,
            hints=self._peering.hints,
        )
        self._tuning.publish(self._key, model, content)

    def peers(self) -> list[PeerFile]:
        """Return the most correlated peers, with downloaded weights."""
        with stored_in(self._directory):
            return list(self._tuning.peers(self._key, self._peering.count, self._directory))

    def leave(self) -> None:
        """Leave the group; the coordinator deletes the published model."""
        self._tuning.leave(self._key)

    def fetch(self, package: PackageReference, directory: Path) -> None:
        """Download the network and the manifest of a package, without its training network."""
        self._porting.fetch(
            package.job_id, package.goal_id, directory, only=(NETWORK, MANIFEST, SIGNATURE_FILE)
        )


def _is_known(measure: str, settings: Mapping[str, object]) -> bool:
    """Check whether a correlation measure is installed on this device, too."""
    try:
        correlation(measure, settings)
    except MistifyError as error:
        if error.code is not ErrorCode.INVALID_CONFIG:
            raise
        return False
    return True

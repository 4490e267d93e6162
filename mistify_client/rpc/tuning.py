"""The client of the coordinator: join a group, publish a model, download the models of peers (paper 5.1)."""

from collections.abc import Iterator
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from mistify.peers.hints import Hints
from mistify.peers.membership import MemberKey, Membership, PackageReference, Publication
from mistify.v1 import tuning_pb2 as pb
from mistify.v1.tuning_pb2_grpc import TuningStub
from mistify.wire import tuning as wire
from mistify_client.rpc.base import ServiceClient
from mistify_client.rpc.connection import Traffic
from mistify_client.rpc.peer_files import PeerFile, PeerFiles
from mistify_client.rpc.retry import resumed, retried

#: Deadlines of the calls, in seconds.
JOIN_SECONDS = 30.0
PUBLISH_SECONDS = 1800.0
LEAVE_SECONDS = 30.0

#: The size of the chunks in which weights are uploaded, in bytes.
CHUNK = 256 * 1024


def describe(
    package: PackageReference, weights: bytes, *, version: int, loss: float, accuracy: float, hints: Hints
) -> Publication:
    """Return the description of weights for publication.

    Args:
        package: The package whose weights were tuned.
        weights: The bytes returned by `mistify.package.weights.write_weights`.
        version: Higher than in every earlier publication of the device.
        loss: The cross entropy on the data of the device, or on the data it trains on instead.
        accuracy: The share of these examples that is classified correctly.
        hints: The device's summary of its data.
    """
    return Publication(package, version, loss, accuracy, hints, len(weights), sha256(weights).hexdigest())


class TuningClient(ServiceClient):
    """A client of the coordinator. All methods wait for an unreachable coordinator, and may be repeated."""

    @cached_property
    def _stub(self) -> TuningStub:
        return TuningStub(self._connection.channel)  # type: ignore[no-untyped-call]  # generated code

    @property
    def traffic(self) -> Traffic:
        """The number of bytes sent and received."""
        return self._connection.traffic

    def join(self, key: MemberKey) -> Membership:
        """Become a member of a group, or renew the membership.

        Raises:
            MistifyError: NOT_FOUND if there is no such group.
        """
        request = pb.JoinRequest(key=wire.key_to_proto(key))
        call = self._connection.call
        return wire.membership_from_proto(
            retried(lambda: call(self._stub.Join, request, JOIN_SECONDS), self._backoff)
        )

    def publish(self, key: MemberKey, publication: Publication, weights: bytes) -> None:
        """Publish a tuned model; it replaces the member's earlier one.

        Args:
            key: Identifies the member.
            publication: The description of the model, from `describe`.
            weights: The bytes returned by `mistify.package.weights.write_weights`.

        Raises:
            MistifyError: INVALID_PUBLICATION with all problems; CONFLICT if the version is stale;
                NOT_FOUND if the lease has ended: join again.
        """

        def send() -> None:
            chunks = (weights[start : start + CHUNK] for start in range(0, len(weights), CHUNK))
            requests = wire.publishing(key, publication, chunks)
            self._connection.call(self._stub.Publish, requests, PUBLISH_SECONDS)

        retried(send, self._backoff)

    def peers(self, key: MemberKey, count: int, directory: Path) -> Iterator[PeerFile]:
        """Yield the models of the most correlated members, most correlated first, as their weights arrive.

        They come from other members, so `mistify.package.weights.read_weights` has to check them.

        Args:
            key: Identifies a member that has published.
            count: The maximum number of peers.
            directory: The directory for weights. Bytes that already exist there are not requested again.

        Raises:
            MistifyError: NOT_FOUND if the caller is not a member or has not published; CORRUPT_PACKAGE if
                weights do not match their digest, twice.
        """
        files = PeerFiles(directory)

        def rest(_: None) -> Iterator[PeerFile]:
            request = pb.PeersRequest(key=wire.key_to_proto(key), count=count, held=files.held())
            messages = self._connection.stream(self._stub.Peers, request)
            yield from files.receive(map(wire.peer_from_proto, messages))

        seen: dict[str, str] = {}
        for file in resumed(rest, None, lambda *_: None, self._backoff):
            if file.peer.member not in seen:
                seen[file.peer.member] = file.peer.sha256
                yield file
        files.keep(seen.values())

    def leave(self, key: MemberKey) -> None:
        """Leave a group; the coordinator deletes the publication of the member."""
        request = pb.LeaveRequest(key=wire.key_to_proto(key))
        retried(lambda: self._connection.call(self._stub.Leave, request, LEAVE_SECONDS), self._backoff)

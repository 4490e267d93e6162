"""Tuning with peers as protobuf and back; the counterpart of `serde` for `tuning.proto`."""

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

from mistify.errors import Problem
from mistify.peers.hints import Hints, invalid_hints
from mistify.peers.membership import MemberKey, Membership, PackageReference, Peer, Publication
from mistify.v1 import tuning_pb2 as pb

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def key_to_proto(key: MemberKey) -> pb.MemberKey:
    """Who calls, as a message."""
    return pb.MemberKey(group=key.group, secret=key.secret)


def key_from_proto(message: pb.MemberKey) -> MemberKey:
    """Who calls, from a message."""
    return MemberKey(message.group, message.secret)


def membership_to_proto(membership: Membership) -> pb.Membership:
    """A membership as a message."""
    return pb.Membership(
        member=membership.member,
        lease_seconds=membership.lease_seconds,
        correlation=membership.correlation,
        settings_json=json.dumps(membership.settings),
        version=membership.version,
    )


def membership_from_proto(message: pb.Membership) -> Membership:
    """A membership from a message."""
    return Membership(
        member=message.member,
        lease_seconds=message.lease_seconds,
        correlation=message.correlation,
        settings=json.loads(message.settings_json),
        version=message.version,
    )


def hints_to_proto(hints: Hints) -> pb.Hints:
    """Hints as a message; times are told to the millisecond."""
    location, time = hints.location, hints.time
    return pb.Hints(
        location=None if location is None else pb.Location(**location.model_dump()),
        unix_ms=None if time is None else (time - _EPOCH) // timedelta(milliseconds=1),
        view_degrees=hints.view_degrees,
        features=hints.features or (),
        labels=hints.labels or (),
    )


def hints_from_proto(message: pb.Hints) -> Hints:
    """Hints from a message.

    Raises:
        MistifyError: INVALID_PUBLICATION, with every problem.
    """
    given: dict[str, object] = {}
    if message.HasField("location"):
        location = message.location
        given["location"] = {"latitude": location.latitude, "longitude": location.longitude}
    if message.HasField("unix_ms"):
        given["time"] = _time(message.unix_ms)
    if message.HasField("view_degrees"):
        given["view_degrees"] = message.view_degrees
    given |= {name: list(numbers) for name in ("features", "labels") if (numbers := getattr(message, name))}
    return Hints.of(given)


def publication_to_proto(publication: Publication) -> pb.Publication:
    """What is published, without its weights, as a message."""
    return pb.Publication(
        package=_package_to_proto(publication.package),
        version=publication.version,
        loss=publication.loss,
        accuracy=publication.accuracy,
        hints=hints_to_proto(publication.hints),
        size=publication.size,
        sha256=publication.sha256,
    )


def publication_from_proto(message: pb.Publication) -> Publication:
    """What is published, without its weights, from a message.

    Raises:
        MistifyError: INVALID_PUBLICATION, the hints cannot be used.
    """
    return Publication(
        package=_package_from_proto(message.package),
        version=message.version,
        loss=message.loss,
        accuracy=message.accuracy,
        hints=hints_from_proto(message.hints),
        size=message.size,
        sha256=message.sha256,
    )


def publishing(
    key: MemberKey, publication: Publication, weights: Iterable[bytes]
) -> Iterator[pb.PublishRequest]:
    """What a device sends to publish: a header, then its weights."""
    header = pb.PublishHeader(key=key_to_proto(key), publication=publication_to_proto(publication))
    yield pb.PublishRequest(header=header)
    for data in weights:
        yield pb.PublishRequest(data=data)


def peer_to_proto(part: Peer | bytes) -> pb.PeersResponse:
    """A peer, or a piece of the weights of the peer before, as a message."""
    if isinstance(part, bytes):
        return pb.PeersResponse(data=part)
    peer = pb.Peer(
        member=part.member,
        package=_package_to_proto(part.package),
        version=part.version,
        loss=part.loss,
        accuracy=part.accuracy,
        distance=part.distance,
        size=part.size,
        sha256=part.sha256,
    )
    return pb.PeersResponse(peer=peer)


def peer_from_proto(message: pb.PeersResponse) -> Peer | bytes:
    """A peer, or a piece of the weights of the peer before, from a message."""
    if not message.HasField("peer"):
        return message.data
    peer = message.peer
    return Peer(
        member=peer.member,
        package=_package_from_proto(peer.package),
        version=peer.version,
        loss=peer.loss,
        accuracy=peer.accuracy,
        distance=peer.distance,
        size=peer.size,
        sha256=peer.sha256,
    )


def _package_to_proto(package: PackageReference) -> pb.PackageReference:
    return pb.PackageReference(job_id=package.job_id, goal_id=package.goal_id, sha256=package.sha256)


def _package_from_proto(message: pb.PackageReference) -> PackageReference:
    return PackageReference(message.job_id, message.goal_id, message.sha256)


def _time(unix_ms: int) -> datetime:
    try:
        return _EPOCH + timedelta(milliseconds=unix_ms)
    except OverflowError as error:
        problem = Problem("hints.time", f"{unix_ms} ms", "milliseconds since 1970", "correct the clock")
        raise invalid_hints([problem]) from error

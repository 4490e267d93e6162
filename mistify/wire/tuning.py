"""Conversion of tuning with peers to protobuf and back; the counterpart of `porting` for `tuning.proto`."""

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

from mistify.errors import Problem
from mistify.peers.hints import Hints, invalid_hints
from mistify.peers.membership import MemberKey, Membership, Peer, Publication
from mistify.v1 import tuning_pb2 as pb
from mistify.wire.messages import Codec, Converter, unknown

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def key_to_proto(key: MemberKey) -> pb.MemberKey:
    """Return the key of a caller as a message."""
    return _CONVERTER.to_message(key, pb.MemberKey)


def key_from_proto(message: pb.MemberKey) -> MemberKey:
    """Return the key of a caller from a message."""
    return _CONVERTER.from_message(message, MemberKey)


def membership_to_proto(membership: Membership) -> pb.Membership:
    """Return a membership as a message."""
    return pb.Membership(
        member=membership.member,
        lease_seconds=membership.lease_seconds,
        correlation=membership.correlation,
        settings_json=json.dumps(membership.settings),
        version=membership.version,
    )


def membership_from_proto(message: pb.Membership) -> Membership:
    """Return the membership in a message.

    Raises:
        MistifyError: INVALID_MESSAGE, its settings are no JSON object.
    """
    return Membership(
        member=message.member,
        lease_seconds=message.lease_seconds,
        correlation=message.correlation,
        settings=_settings(message.settings_json),
        version=message.version,
    )


def _settings(text: str) -> dict[str, object]:
    try:
        settings = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise unknown(Membership, text) from error
    if not isinstance(settings, dict):
        raise unknown(Membership, text)
    return settings


def publication_to_proto(publication: Publication) -> pb.Publication:
    """Return a publication, without its weights, as a message; its time is rounded to milliseconds."""
    return _CONVERTER.to_message(publication, pb.Publication)


def publication_from_proto(message: pb.Publication) -> Publication:
    """Return the publication in a message, without its weights.

    Raises:
        MistifyError: INVALID_PUBLICATION, with every problem of the hints.
    """
    return _CONVERTER.from_message(message, Publication)


def publishing(
    key: MemberKey, publication: Publication, weights: Iterable[bytes]
) -> Iterator[pb.PublishRequest]:
    """Yield the messages of a publication: a header, then the weights."""
    header = pb.PublishHeader(key=key_to_proto(key), publication=publication_to_proto(publication))
    yield pb.PublishRequest(header=header)
    for data in weights:
        yield pb.PublishRequest(data=data)


def peer_to_proto(part: Peer | bytes) -> pb.PeersResponse:
    """Return a peer, or a chunk of the preceding peer's weights, as a message."""
    if isinstance(part, bytes):
        return pb.PeersResponse(data=part)
    return pb.PeersResponse(peer=_CONVERTER.to_message(part, pb.Peer))


def peer_from_proto(message: pb.PeersResponse) -> Peer | bytes:
    """Return the peer in a message, or the chunk of the preceding peer's weights."""
    return _CONVERTER.from_message(message.peer, Peer) if message.HasField("peer") else message.data


def _encoded_hints(hints: Hints) -> dict[str, object]:
    message = hints.model_dump(exclude={"time"}, exclude_none=True)
    if hints.time is not None:
        message["unix_ms"] = (hints.time - _EPOCH) // timedelta(milliseconds=1)
    return message


def _decoded_hints(message: pb.Hints) -> Hints:
    hints: dict[str, object] = {}
    if message.HasField("location"):
        location = message.location
        hints["location"] = {"latitude": location.latitude, "longitude": location.longitude}
    if message.HasField("unix_ms"):
        hints["time"] = _time(message.unix_ms)
    if message.HasField("view_degrees"):
        hints["view_degrees"] = message.view_degrees
    hints |= {name: list(numbers) for name in ("features", "labels") if (numbers := getattr(message, name))}
    return Hints.of(hints)


def _time(unix_ms: int) -> datetime:
    try:
        return _EPOCH + timedelta(milliseconds=unix_ms)
    except OverflowError as error:
        problem = Problem("hints.time", f"{unix_ms} ms", "milliseconds since 1970", "correct the clock")
        raise invalid_hints([problem]) from error


_CONVERTER = Converter({Hints: Codec(_encoded_hints, _decoded_hints)})

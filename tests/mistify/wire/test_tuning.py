from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistify.errors import ErrorCode, MistifyError
from mistify.peers.hints import Hints, Location
from mistify.peers.membership import MemberKey, Membership, PackageReference, Peer, Publication
from mistify.v1 import tuning_pb2 as pb
from mistify.wire import tuning

finite = st.floats(-1e6, 1e6)
texts = st.text(max_size=20)
int64 = st.integers(0, 2**63 - 1)
locations = st.builds(Location, latitude=st.floats(-90, 90), longitude=st.floats(-180, 180))
times = st.integers(0, 4 * 10**12).map(
    lambda ms: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
)
shares = st.lists(st.integers(1, 9), min_size=1, max_size=5).map(
    lambda counts: tuple(count / sum(counts) for count in counts)
)
hints = st.builds(
    Hints,
    location=st.none() | locations,
    time=st.none() | times,
    view_degrees=st.none() | st.floats(0, 359),
    features=st.none() | st.lists(finite, min_size=1, max_size=4).map(tuple),
    labels=st.none() | shares,
)
packages = st.builds(PackageReference, texts, texts, texts)
publications = st.builds(Publication, packages, int64, finite, finite, hints, int64, texts)
peers = st.builds(Peer, texts, packages, int64, finite, finite, finite, int64, texts)
memberships = st.builds(Membership, texts, finite, texts, st.dictionaries(texts, finite, max_size=3), int64)


@given(publications, memberships, peers, st.builds(MemberKey, texts, st.binary(max_size=40)), st.binary())
def test_tuning_messages_survive_the_wire(publication, membership, peer, key, data):
    assert tuning.publication_from_proto(tuning.publication_to_proto(publication)) == publication
    assert tuning.membership_from_proto(tuning.membership_to_proto(membership)) == membership
    assert tuning.peer_from_proto(tuning.peer_to_proto(peer)) == peer
    assert tuning.peer_from_proto(tuning.peer_to_proto(data)) == data
    assert tuning.key_from_proto(tuning.key_to_proto(key)) == key
    header, *parts = tuning.publishing(key, publication, [data])
    assert tuning.publication_from_proto(header.header.publication) == publication
    assert [part.data for part in parts] == [data]


@pytest.mark.parametrize(
    ("message", "place"),
    [
        (pb.Hints(location=pb.Location(latitude=91)), "hints.location.latitude"),
        (pb.Hints(location=pb.Location(longitude=float("nan"))), "hints.location.longitude"),
        (pb.Hints(unix_ms=2**62), "hints.time"),
        (pb.Hints(view_degrees=360), "hints.view_degrees"),
        (pb.Hints(view_degrees=float("inf")), "hints.view_degrees"),
        (pb.Hints(features=[1, float("nan")]), "hints.features"),
        (pb.Hints(features=[0] * 2000), "hints.features"),
        (pb.Hints(labels=[0.5, 0.6]), "hints.labels"),
        (pb.Hints(labels=[-0.5, 1.5]), "hints.labels"),
    ],
)
def test_impossible_hints_are_refused_with_their_place(message, place):
    with pytest.raises(MistifyError) as caught:
        tuning.publication_from_proto(pb.Publication(hints=message))
    assert caught.value.code is ErrorCode.INVALID_PUBLICATION
    (problem,) = caught.value.problems
    assert problem.place == place
    assert problem.expected != "another value"

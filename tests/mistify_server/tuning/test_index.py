"""Contract tests for the index in memory and in Redis."""

import socket
import traceback
from uuid import uuid4

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mistify.errors import ErrorCode, MistifyError
from mistify_server.tuning import index as index_module
from mistify_server.tuning import storage as storage_module
from mistify_server.tuning.hashing import Parameters
from mistify_server.tuning.index import PeerIndex
from mistify_server.tuning.storage import IndexStorage

DIMENSION = 3
NARROW = Parameters(tables=3, hashes=2, width=2.0)


def name(number: int) -> str:
    return f"{number:032x}"


def by_hand(points, query, count):
    """Return the nearest points by brute force."""
    distances = {member: float(np.sqrt(((point - query) ** 2).sum())) for member, point in points.items()}
    return sorted(distances.items(), key=lambda item: (item[1], item[0]))[:count]


def clustered(count: int, rng: np.random.Generator, dimension: int = 6) -> np.ndarray:
    places = rng.uniform(0, 100, (max(1, count // 50), dimension))
    return places[rng.integers(0, len(places), count)] + rng.normal(size=(count, dimension))


@pytest.fixture
def make(storage, index_name):
    return lambda parameters=None, dimension=DIMENSION: PeerIndex(storage, index_name, dimension, parameters)


coordinates = st.integers(-4, 4).map(float)
vectors = st.tuples(*[coordinates] * DIMENSION).map(np.array)
steps = st.lists(
    st.tuples(st.sampled_from(["insert", "remove", "query"]), st.integers(0, 9), vectors), max_size=30
)


@pytest.mark.parametrize("parameters", [None, NARROW])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps, count=st.integers(1, 6))
def test_answers_are_ranked_members_after_any_insertions_and_removals(storage, parameters, steps, count):
    index, held = PeerIndex(storage, uuid4().hex, DIMENSION, parameters), {}
    for action, number, vector in steps:
        if action == "insert":
            index.insert(name(number), vector)
            held[name(number)] = vector
        elif action == "remove":
            index.remove(name(number))
            held.pop(name(number), None)
        actual = index.query(vector, count)
        everybody = by_hand(held, vector, len(held))
        assert set(actual) <= set(everybody)
        assert actual == sorted(actual, key=lambda neighbour: (neighbour.distance, neighbour.member))
        assert len(actual) == min(count, len(held))  # so few that the sample contains all of them
        assert len(index) == len(held)
        if parameters is None:
            assert actual == everybody[:count]


def test_narrow_buckets_contain_near_members_and_the_sample_adds_others(make):
    index = make(NARROW)
    near = {name(number): np.full(DIMENSION, number / 100) for number in range(5)}
    far = {name(number): np.full(DIMENSION, 1e3 * number) for number in range(5, 50)}
    index.build(near | far)
    assert index.query(np.zeros(DIMENSION), 5) == by_hand(near, 0, 5)
    assert index.query(np.full(DIMENSION, 1e6), 3) == by_hand(far, 1e6, 3)


def test_all_data_of_removed_members_is_deleted(make, storage, index_name):
    index, rng = make(NARROW), np.random.default_rng(3)
    for number in range(40):
        index.insert(name(number), rng.normal(size=DIMENSION))
    for number in range(40):
        index.remove(name(number))
    assert index.query(np.zeros(DIMENSION), 5) == []
    for purpose, opened in (("entries", storage.lists), ("buckets", storage.sets)):
        if storage.config["type"] == "redis":
            assert list(opened(f"mistify:{index_name}:{purpose}:".encode()).keys()) == []
    assert list(index._entries.keys()) == list(index._buckets.keys()) == []


def test_removing_members_keeps_others_in_shared_values(make):
    """A build packs many rows of a bucket into one value, and here needs several values."""
    index, count = make(Parameters(tables=2, hashes=1, width=1e3)), 3 * index_module._RUN
    held = {name(number): np.full(DIMENSION, float(number)) for number in range(count)}
    index.build(held)
    for number in range(0, count, 3):
        index.remove(name(number))
        del held[name(number)]
    assert index.query(np.zeros(DIMENSION), count) == by_hand(held, 0, count)
    for member in held:
        index.remove(member)
    assert index.query(np.zeros(DIMENSION), count) == []
    assert list(index._buckets.keys()) == []


def test_a_build_replaces_the_previous_content(make):
    index = make(NARROW)
    index.build({name(number): np.zeros(DIMENSION) for number in range(30)})
    index.build({name(7): np.ones(DIMENSION)})
    assert index.query(np.zeros(DIMENSION), 30) == [(name(7), pytest.approx(3**0.5))]


def test_an_empty_index_has_no_answer(make):
    index = make()
    assert index.query(np.zeros(DIMENSION), 3) == []
    index.build({})
    assert index.query(np.zeros(DIMENSION), 3) == []


def test_the_recall_is_sufficient_with_few_comparisons(make):
    rng = np.random.default_rng(5)
    points = clustered(8_000, rng)
    held = {name(number): point for number, point in enumerate(points)}
    index = make(dimension=6)
    index.build(held)
    queries = points[rng.choice(len(points), 60)] + rng.normal(scale=0.1, size=(60, 6))
    shares, looked_at = [], []
    for query in queries:
        squares = ((points - query) ** 2).sum(axis=1)
        nearest = {name(number) for number in np.argsort(squares)[:10]}
        shares.append(len(nearest & {member for member, _ in index.query(query, 10)}) / 10)
        keys = [key.tobytes() for key in index._hashes.probes(query)]
        rows = (np.frombuffer(run, index._row)["member"] for run in index._held(keys))
        looked_at.append(len(np.unique(np.concatenate([*rows]))))
    assert np.mean(shares) >= 0.9
    assert np.mean(looked_at) < 800


def test_an_outgrown_index_is_rebuilt_without_losing_members(make):
    """Afterwards all members are found, and are no longer in one bucket."""
    points = clustered(2_001, np.random.default_rng(6))
    held = {name(number): point for number, point in enumerate(points)}
    index = make(dimension=points.shape[1])
    for member, point in held.items():
        assert not index.outgrown
        index.insert(member, point)
    assert index.outgrown
    index.build(held)
    assert not index.outgrown
    assert len(index) == len(points)
    assert len(list(index._buckets.keys())) > 10
    for member, point in held.items():
        assert index.query(point, 1) == [(member, 0.0)]
    index.clear()
    assert list(index._entries.keys()) == list(index._buckets.keys()) == []


def test_a_missing_redis_database_is_reported(redis_address):
    storage = IndexStorage.of(f"{redis_address}/999")
    with pytest.raises(MistifyError, match="the index cannot be reached") as caught:
        PeerIndex(storage, "name", DIMENSION).insert(name(1), np.zeros(DIMENSION))
    assert caught.value.code is ErrorCode.UNAVAILABLE


def test_an_unresponsive_redis_server_is_reported(monkeypatch):
    pytest.importorskip("redis")
    monkeypatch.setattr(storage_module, "ANSWER_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        storage = IndexStorage.of(f"redis://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(MistifyError, match="the index cannot be reached") as caught:
            PeerIndex(storage, "name", DIMENSION).insert(name(1), np.zeros(DIMENSION))
    assert caught.value.code is ErrorCode.UNAVAILABLE


def test_an_index_is_complete_from_its_build_until_any_server_clears_it(make):
    index = make()
    assert not index.whole()
    index.build({})
    index.insert(name(1), np.zeros(DIMENSION))
    assert index.whole()
    index.clear()
    assert not index.whole()


def test_an_index_built_by_another_server_is_incomplete(redis_address, index_name):
    one, other = (PeerIndex(IndexStorage.of(redis_address), index_name, DIMENSION) for _ in range(2))
    one.build({})
    other.build({})
    assert (one.whole(), other.whole()) == (False, True)


def test_an_index_with_an_interrupted_change_is_incomplete(redis_at, port):
    with redis_at(port) as address:
        index = PeerIndex(IndexStorage.of(address), "name", DIMENSION)
        index.build({})
    with pytest.raises(MistifyError, match="cannot be reached"):
        index.insert(name(1), np.zeros(DIMENSION))
    assert not index.whole()


@pytest.mark.parametrize("address", ["", "disk", "http://here", "redis://", "redis://here/first"])
def test_invalid_addresses_are_refused(address):
    pytest.importorskip("redis")
    with pytest.raises(MistifyError, match="expected memory or redis://HOST:PORT") as caught:
        IndexStorage.of(address)
    assert caught.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    "address",
    [
        "redis://me:secret@here/first",
        "redis://me:secret@here:port",
        "redis://me:secret/@here",
        "redis://me:secret@[here",
        "redis://:sec@secret@here:99999",
        "redis:me:secret@here",
        "rediss://me:secret@here",
    ],
)
def test_the_error_for_an_invalid_address_does_not_contain_the_password(address):
    with pytest.raises(MistifyError, match="here") as caught:
        IndexStorage.of(address)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert "secret" not in "".join(traceback.format_exception(caught.value))


def test_the_parts_of_an_address_are_parsed():
    pytest.importorskip("redis")
    storage = IndexStorage.of("redis://me:p%40ss@there:7000/3")
    assert storage.config["redis"] == {
        "host": "there", "port": 7000, "db": 3, "username": "me", "password": "p@ss",
        "socket_timeout": 2.0, "socket_connect_timeout": 2.0, "retry": None,
    }  # fmt: skip

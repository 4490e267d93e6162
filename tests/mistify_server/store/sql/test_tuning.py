from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.tuning import fleet
from mistify.errors import ErrorCode, MistifyError
from mistify.peers.hints import Hints
from mistify.peers.membership import PackageReference, Publication
from mistify_server.store.directory import open_store
from mistify_server.store.tuning import Member, TuningStore

ME = Member(fleet.GROUP, "ab" * 16)
MODEL = Publication(
    PackageReference(fleet.JOB, fleet.GOAL, "p"),
    1,
    0.5,
    0.75,
    Hints(view_degrees=7, labels=(0.5, 0.5)),
    9,
    "w",
)


@pytest.fixture
def tuning(directory: Path) -> Iterator[TuningStore]:
    fleet.prepare(directory)
    with open_store(directory) as store:
        yield store.tuning


def code_of(call) -> ErrorCode:
    with pytest.raises(MistifyError) as caught:
        call()
    return caught.value.code


def test_publications_survive_storage(tuning, directory):
    tuning.lease(ME, 5)
    tuning.publish(ME, MODEL)
    with open_store(directory) as again:
        assert again.tuning.published(ME) == MODEL
        assert again.tuning.publications(fleet.GROUP) == {ME.name: MODEL}
        assert again.tuning.weights() == {"w"}


def test_only_members_can_publish_and_versions_increase(tuning):
    assert code_of(lambda: tuning.publish(ME, MODEL)) is ErrorCode.NOT_FOUND
    tuning.lease(ME, 5)
    tuning.publish(ME, MODEL)
    assert code_of(lambda: tuning.publish(ME, replace(MODEL, sha256="v"))) is ErrorCode.CONFLICT
    newer = replace(MODEL, version=2, sha256="v")
    assert tuning.publish(ME, newer) == MODEL.sha256
    assert tuning.published(ME) == newer
    assert [tuning.has_weights(digest) for digest in "wv"] == [False, True]


def test_a_group_has_a_limited_number_of_members(tuning, monkeypatch):
    monkeypatch.setattr("mistify_server.store.sql.tuning.MOST_MEMBERS", 2)
    others = [Member(fleet.GROUP, f"{number:032x}") for number in range(2)]
    tuning.lease(ME, 5)
    tuning.lease(others[0], 5)
    assert code_of(lambda: tuning.lease(others[1], 5)) is ErrorCode.NO_ROOM
    tuning.lease(ME, 9)
    assert (tuning.expiry(ME), tuning.expiry(others[1])) == (9, None)
    tuning.leave(others[0])
    tuning.lease(others[1], 5)


def test_leases_expire_and_can_be_renewed(tuning):
    tuning.lease(ME, 1000)
    assert [tuning.expired(now, 9) for now in (999, 1000)] == [[], [ME]]
    tuning.lease(ME, 2000)
    assert (tuning.expired(1000, 9), tuning.expiry(ME)) == ([], 2000)
    assert code_of(lambda: tuning.lease(Member("lions", "x"), 1)) is ErrorCode.NOT_FOUND


def test_only_members_with_expired_leases_are_removed_for_it(tuning):
    """A member that has renewed its lease in the meantime stays, with its publication."""
    tuning.lease(ME, 1000)
    tuning.publish(ME, MODEL)
    assert tuning.leave(ME, expired_by=999) is None
    assert (tuning.expiry(ME), tuning.published(ME)) == (1000, MODEL)
    assert tuning.leave(ME, expired_by=1000) == MODEL.sha256
    assert (tuning.expiry(ME), tuning.published(ME), tuning.leave(ME)) == (None, None, None)


@pytest.mark.parametrize(
    "leave", [lambda store: store.leave(ME), lambda store: store.remove_group(fleet.GROUP)]
)
def test_all_data_of_a_leaving_member_is_removed(tuning, leave):
    tuning.lease(ME, 5)
    tuning.publish(ME, MODEL)
    leave(tuning)
    assert (tuning.expiry(ME), tuning.published(ME), tuning.weights()) == (None, None, set())


def test_a_store_has_a_unique_and_persistent_id(tuning, directory, tmp_path):
    fleet.prepare(tmp_path / "other")
    with open_store(directory) as again, open_store(tmp_path / "other") as other:
        assert tuning.store_id() == again.tuning.store_id() != other.tuning.store_id()

"""Limits of tokens."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.quotas import Quota
from mistify_server.identity.authentication import Credential, create_token
from mistify_server.identity.callers import Scope
from mistify_server.identity.quotas import change_limits, check_unfinished, limits_of, size_limit
from mistify_server.store.directory import Store, open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path) as opened:
        yield opened


def test_limits_are_kept_with_their_token(store: Store, tmp_path: Path) -> None:
    limits = Quota(uploads=5_000_000_000, jobs=3, workers=None)
    create_token(store.tokens, "ci", [Scope.SUBMIT], limits=asdict(limits))
    create_token(store.tokens, "free", [Scope.SUBMIT])
    with open_store(tmp_path) as again:
        assert [token.limits for token in again.tokens.all()] == [limits, Quota()]
        assert [again.tokens.limits(name) for name in ("ci", "free", "nobody")] == [limits, Quota(), Quota()]


def test_limits_that_are_not_given_stay(store: Store) -> None:
    create_token(store.tokens, "ci", [Scope.SUBMIT], limits={"uploads": 1_000, "jobs": 3, "workers": 2})
    for changed, limits in (
        ({"jobs": 5}, Quota(1_000, 5, 2)),
        ({"workers": None, "uploads": 2_000}, Quota(2_000, 5, None)),
        ({}, Quota(2_000, 5, None)),
    ):
        assert change_limits(store.tokens, "ci", changed) == store.tokens.limits("ci") == limits
    with pytest.raises(MistifyError, match="got 0; expected 1 to") as caught:
        change_limits(store.tokens, "ci", {"jobs": 0})
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    with pytest.raises(MistifyError) as caught:
        change_limits(store.tokens, "nobody", {"jobs": 1})
    assert caught.value.code is ErrorCode.NOT_FOUND
    assert store.tokens.limits("ci") == Quota(2_000, 5, None)


def test_limits_that_another_program_changes_count_from_the_next_call(store: Store, tmp_path: Path) -> None:
    create_token(store.tokens, "ci", [Scope.SUBMIT], limits={"jobs": 3})
    assert store.tokens.limits("ci") == Quota(None, 3, None)
    with open_store(tmp_path) as other:
        change_limits(other.tokens, "ci", {"jobs": 1})
        assert store.tokens.limits("ci") == Quota(None, 1, None)


@pytest.mark.parametrize("limit", [-1, 0, 2**53 + 1])
def test_a_token_with_a_limit_that_cannot_be_kept_is_not_made(store: Store, limit: int) -> None:
    with pytest.raises(MistifyError, match="max-workers"):
        create_token(store.tokens, "ci", [Scope.SUBMIT], limits={"workers": limit})
    assert store.tokens.all() == []


def test_limits_stay_when_a_token_is_revoked_and_made_again(store: Store) -> None:
    _, old = create_token(store.tokens, "ci", [Scope.SUBMIT], limits={"uploads": 1_000, "jobs": 3})
    store.tokens.revoke("ci")
    assert (store.tokens.all(), store.tokens.find([Credential.of(old).sha256])) == ([], {})
    assert store.tokens.limits("ci") == Quota(1_000, 3, None)
    for change in (store.tokens.revoke, partial(change_limits, store.tokens, changed={"jobs": 1})):
        with pytest.raises(MistifyError) as caught:
            change("ci")
        assert caught.value.code is ErrorCode.NOT_FOUND
    token, new = create_token(store.tokens, "ci", [Scope.READ], limits={"jobs": None, "workers": 2})
    assert token.limits == store.tokens.limits("ci") == Quota(1_000, None, 2)
    assert store.tokens.all() == [token]
    digest = Credential.of(new).sha256
    assert store.tokens.find([digest, Credential.of(old).sha256]) == {digest: token}


def test_nothing_is_left_of_a_revoked_token_without_limits(store: Store, tmp_path: Path) -> None:
    create_token(store.tokens, "ci", [Scope.SUBMIT])
    store.tokens.revoke("ci")
    with closing(sqlite3.connect(tmp_path / "mistify.db")) as connection:
        assert connection.execute("SELECT * FROM tokens").fetchall() == []


def test_limits_are_read_as_people_write_them() -> None:
    assert limits_of(None, None, None) == {}
    assert limits_of("5GB", "3", "none") == {"uploads": 5 * 10**9, "jobs": 3, "workers": None}
    assert limits_of("none", None, "1") == {"uploads": None, "workers": 1}
    with pytest.raises(MistifyError) as caught:
        limits_of("much", "few", "1.5")
    assert [problem.place for problem in caught.value.problems] == [
        "--max-uploads",
        "--max-jobs",
        "--max-workers",
    ]


@pytest.mark.parametrize("text", ["0.5x", "five", ""])
def test_other_texts_are_no_sizes(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        size_limit(text)


def test_a_limit_on_jobs_says_figure_limit_and_what_to_do() -> None:
    check_unfinished("ci", 2, 3)
    check_unfinished("ci", 10**6, None)
    for unfinished in (3, 4):
        with pytest.raises(MistifyError) as caught:
            check_unfinished("ci", unfinished, 3)
        assert caught.value.code is ErrorCode.QUOTA_EXCEEDED
        assert str(caught.value).startswith(
            f'the token "ci" has {unfinished} unfinished jobs, and may have 3; wait until'
        )

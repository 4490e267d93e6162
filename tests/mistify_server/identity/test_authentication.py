"""Callers are known by their tokens, as long as these are valid."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterator
from pathlib import Path
from threading import Event
from typing import TypeAlias

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify_server.identity.authentication import Authenticator, Credential, create_token, unauthenticated
from mistify_server.identity.callers import ADMINISTRATOR, DEFAULT_TENANT, LOCAL, Caller, Scope
from mistify_server.identity.tokens import AccessToken
from mistify_server.store.directory import Store, open_store
from mistify_server.store.sql.tokens import SqlTokenStore
from tests.support.gates import held

CallerOf: TypeAlias = Callable[[str], Awaitable[Caller | None]]

DAY = 24 * 3600


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path) as opened:
        yield opened


@pytest.fixture
def caller_of(store: Store) -> CallerOf:
    authenticator = Authenticator("the administrator's", store.tokens)
    return lambda header: authenticator.caller(Credential.of_header(header))


async def test_a_server_without_a_token_knows_only_local_callers(store: Store) -> None:
    authenticator = Authenticator(None, store.tokens)
    assert not authenticator.token_required
    for header in ("", "Bearer x"):
        assert await authenticator.caller(Credential.of_header(header)) == LOCAL


async def test_the_token_of_the_file_is_the_administrators(caller_of: CallerOf) -> None:
    assert await caller_of("Bearer the administrator's") == ADMINISTRATOR
    for header in (
        "",
        "Bearer ",
        "Bearer other",
        "the administrator's",
        "Basic the administrator's",
        "Bearer \ud800",
    ):
        assert await caller_of(header) is None, header


async def test_a_token_counts_until_it_is_revoked(store: Store, caller_of: CallerOf) -> None:
    _, secret = create_token(store.tokens, "ci", [Scope.READ, Scope.SUBMIT])
    assert await caller_of(f"Bearer {secret}") == Caller(
        "ci", frozenset({Scope.READ, Scope.SUBMIT}), DEFAULT_TENANT
    )
    assert await caller_of(f"Bearer {secret[:-1]}") is None
    store.tokens.revoke("ci")
    assert await caller_of(f"Bearer {secret}") is None


async def test_a_token_that_another_program_revokes_or_makes_counts_from_the_next_call(
    store: Store, caller_of: CallerOf, tmp_path: Path
) -> None:
    _, secret = create_token(store.tokens, "ci", [Scope.READ])
    assert await caller_of(f"Bearer {secret}") is not None
    with open_store(tmp_path) as other:
        other.tokens.revoke("ci")
        assert await caller_of(f"Bearer {secret}") is None
        _, secret = create_token(other.tokens, "ci", [Scope.SUBMIT])
    assert await caller_of(f"Bearer {secret}") == Caller("ci", frozenset({Scope.SUBMIT}), DEFAULT_TENANT)


async def test_a_token_expires(store: Store) -> None:
    token, secret = create_token(store.tokens, "visitor", [Scope.READ], days=2)
    made = token.created_unix_ms / 1000
    for after, valid in ((0, True), (2 * DAY - 1, True), (2 * DAY, False)):
        authenticator = Authenticator("other", store.tokens, now=lambda at=made + after: at)
        assert (await authenticator.caller(Credential.of_header(f"Bearer {secret}")) is not None) is valid


async def test_tokens_in_another_program_are_looked_up_off_the_event_loop(store: Store) -> None:
    _, secret = create_token(store.tokens, "ci", [Scope.READ])
    authenticator = Authenticator("other", store.tokens, remote=True)
    with held(SqlTokenStore, "find") as gate:
        asking = asyncio.ensure_future(authenticator.caller(Credential.of_header(f"Bearer {secret}")))
        assert await asyncio.to_thread(gate.reached.wait, 60)
        assert await authenticator.caller(Credential.of_header("Bearer other")) == ADMINISTRATOR
        assert not gate.opened.is_set()
    assert await asking == Caller("ci", frozenset({Scope.READ}), DEFAULT_TENANT)


async def test_callers_that_come_during_a_look_share_the_next_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, revoked = create_token(store.tokens, "revoked", [Scope.READ])
    authenticator = Authenticator("other", store.tokens, remote=True)
    find, looks, reached, opened = store.tokens.find, list[set[str]](), Event(), Event()

    def held_at_first(digests: Collection[str]) -> dict[str, AccessToken]:
        found = find(digests)
        looks.append({*digests})
        if len(looks) == 1:
            reached.set()
            assert opened.wait(60)
        return found

    def asking(secret: str) -> "asyncio.Future[Caller | None]":
        return asyncio.ensure_future(authenticator.caller(Credential.of(secret)))

    monkeypatch.setattr(store.tokens, "find", held_at_first)
    first = asking(revoked)
    assert await asyncio.to_thread(reached.wait, 60)
    store.tokens.revoke("revoked")
    _, new = create_token(store.tokens, "new", [Scope.READ])
    others = [asking(secret) for secret in (revoked, new, new)]
    await asyncio.sleep(0)
    opened.set()
    caller = Caller("new", frozenset({Scope.READ}), DEFAULT_TENANT)
    assert await asyncio.gather(*others) == [None, caller, caller]
    assert await first is not None
    assert looks == [{Credential.of(revoked).sha256}, {Credential.of(each).sha256 for each in (revoked, new)}]


def test_secrets_are_not_stored(store: Store, tmp_path: Path) -> None:
    _, secret = create_token(store.tokens, "ci", [Scope.READ])
    assert re.fullmatch(r"mistify_[A-Za-z0-9_-]{43}", secret)
    assert secret != create_token(store.tokens, "other", [Scope.READ])[1]
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    assert b"ci" in content
    assert secret.encode() not in content


@pytest.mark.parametrize(
    ("name", "scopes", "code", "message"),
    [
        ("a b", ["read"], ErrorCode.INVALID_CONFIG, "rename it"),
        ("administrator", ["read"], ErrorCode.CONFLICT, "reserved"),
        ("local", ["read"], ErrorCode.CONFLICT, "reserved"),
        ("ci", [], ErrorCode.INVALID_CONFIG, "one or more of read, submit, tune, report, admin"),
        ("taken", ["read"], ErrorCode.CONFLICT, "revoke it first"),
    ],
)
def test_tokens_that_cannot_be_made(
    store: Store, name: str, scopes: list[str], code: ErrorCode, message: str
) -> None:
    create_token(store.tokens, "taken", [Scope.READ])
    with pytest.raises(MistifyError, match=message) as caught:
        create_token(store.tokens, name, [Scope(scope) for scope in scopes])
    assert caught.value.code is code
    assert [token.name for token in store.tokens.all()] == ["taken"]


@pytest.mark.parametrize("days", [0, 3651, 30_000_000, 10**17])
def test_a_token_lives_for_ten_years_at_most(store: Store, days: int) -> None:
    assert create_token(store.tokens, "long", [Scope.READ], 3650)[0].expires_unix_ms is not None
    with pytest.raises(MistifyError, match="1 to 3650") as caught:
        create_token(store.tokens, "longer", [Scope.READ], days)
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_a_missing_token_cannot_be_revoked(store: Store) -> None:
    with pytest.raises(MistifyError, match='no token "ci"') as caught:
        store.tokens.revoke("ci")
    assert caught.value.code is ErrorCode.NOT_FOUND


def test_callers_without_a_token_learn_how_to_send_it_from_the_command_line_and_over_http() -> None:
    message = str(unauthenticated())
    assert "`--token-file FILE` on the command line" in message
    assert "`Authorization: Bearer TOKEN` over HTTP" in message


def test_a_caller_without_a_scope_is_told_which_one_is_needed() -> None:
    Caller("boss", frozenset({Scope.ADMIN}), DEFAULT_TENANT).check(Scope.TUNE)
    with pytest.raises(MistifyError, match='"ci" has the scopes read, submit; this needs tune') as caught:
        Caller("ci", frozenset({Scope.SUBMIT, Scope.READ}), DEFAULT_TENANT).check(Scope.TUNE)
    assert caught.value.code is ErrorCode.PERMISSION_DENIED

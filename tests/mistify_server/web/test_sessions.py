"""Sessions of browsers, without browsers."""

import pytest
from starlette.datastructures import Headers

from mistify_server.identity.authentication import Authenticator, create_token
from mistify_server.identity.callers import Scope
from mistify_server.store.directory import Store
from mistify_server.web.sessions import COOKIE, Sessions


async def test_a_token_has_a_limited_number_of_sessions(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise, whoever has one could fill the server's memory within the hours for which they last."""
    monkeypatch.setattr("mistify_server.web.sessions.MOST_SESSIONS", 3)
    token, other = "administrator's", create_token(store.tokens, "ci", [Scope.READ])[1]
    sessions = Sessions(Authenticator(token, store.tokens))
    opened = [await sessions.open(secret) for secret in (other, token, token, token, token, token)]
    callers = [
        await sessions.caller(sessions.credential(Headers({"cookie": f"{COOKIE}={secret}"})))
        for secret in opened
    ]
    names = [None if caller is None else caller.name for caller in callers]
    assert names == ["ci", None, None, *["administrator"] * 3]

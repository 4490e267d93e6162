"""The keys that sign packages are served over HTTP and gRPC, and a rotation is noticed at once."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from typer.testing import CliRunner

from mistify.errors import ErrorCode
from mistify.v1 import porting_pb2 as pb
from mistify.v1.porting_pb2_grpc import PortingStub
from mistify.wire.porting import keys_from_proto
from mistify_client.cli.main import app
from mistify_client.runtime.trust import TRUSTED
from mistify_server.identity.authentication import create_token
from mistify_server.identity.callers import Scope
from mistify_server.server import running_server
from mistify_server.store.directory import open_store
from tests.support.tokens import write_token


async def test_a_rotation_is_served_at_once(serve: Any, site: Any) -> None:
    async with serve() as web:
        (before,) = (await keys(web))["keys"]
        with open_store(site.store) as store:
            rotated = await asyncio.to_thread(store.signing_keys.rotate)
        after = await keys(web)
    assert after["keys"] == [before, rotated.current]
    assert after["current"] == rotated.current


async def test_the_keys_are_the_same_over_grpc(site: Any) -> None:
    async with running_server(site.settings()) as (address, _), grpc.aio.insecure_channel(address) as channel:
        with open_store(site.store) as store:
            store.signing_keys.rotate()
            expected = store.signing_keys.public()
        message = await PortingStub(channel).GetSigningKeys(pb.GetSigningKeysRequest())  # type: ignore[no-untyped-call]
    assert keys_from_proto(message) == expected
    assert len(expected.keys) == 2


async def keys(web: Any) -> dict[str, Any]:
    answer = await web.get("/v1/signing-keys")
    assert answer.status_code == 200
    content = answer.json()
    return {**content, "keys": [content["first"], *(rotation["key"] for rotation in content["rotations"])]}


async def test_a_device_trusts_the_keys_with_the_scope_to_read(
    site: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TRUSTED, str(tmp_path / "trusted"))
    with open_store(site.store) as store:
        reader = write_token(tmp_path / "reader", create_token(store.tokens, "device", [Scope.READ])[1])
        other = write_token(tmp_path / "other", create_token(store.tokens, "other", [Scope.REPORT])[1])

    def trust(address: str, token: Path) -> int:
        return CliRunner().invoke(app, ["trust", address, "--token-file", str(token)]).exit_code

    async with running_server(site.settings(token="0123456789abcdef" * 4)) as (address, _):
        assert await asyncio.to_thread(trust, address, other) == ErrorCode.PERMISSION_DENIED.exit_code
        assert not (tmp_path / "trusted").exists()
        assert await asyncio.to_thread(trust, address, reader) == 0
    with open_store(site.store) as store:
        key = store.signing_keys.public().current
    assert (tmp_path / "trusted").read_text() == f"# {address}\n{key}\n"

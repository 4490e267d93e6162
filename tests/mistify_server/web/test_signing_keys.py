"""The keys that sign packages are served over HTTP and gRPC, and a rotation is noticed at once."""

import asyncio
from typing import Any

import grpc

from mistify.v1 import porting_pb2 as pb
from mistify.v1.porting_pb2_grpc import PortingStub
from mistify.wire.porting import keys_from_proto
from mistify_server.server import running_server
from mistify_server.store.directory import open_store


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

"""Servers that join the main server of a store."""

import asyncio
import os
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.rollouts import Instruction
from mistify.v1.tuning_pb2 import JoinRequest, MemberKey
from mistify.v1.tuning_pb2_grpc import TuningStub
from mistify_client.rpc.devices import DevicesClient
from mistify_server.engines.process import _fresh_scratch
from mistify_server.joining import address_for_others, remove_left_logs, worker_prefix
from mistify_server.server import running_server
from mistify_server.store.directory import locked_backend, open_store
from mistify_server.store.sql.backend import Role
from mistify_server.store.sql.migrations.migrate import SCHEMA_VERSION
from tests.support.fleets import device
from tests.support.postgresql import Cluster, bound_to


async def check_refused(site: Any, code: ErrorCode, message: str, **settings: Any) -> None:
    with pytest.raises(MistifyError, match=message) as raised:
        async with running_server(site.settings(**settings)):
            pass
    assert raised.value.code is code


async def test_servers_only_join_a_store_that_has_a_database_in_postgresql(site: Any) -> None:
    await check_refused(site, ErrorCode.CONFLICT, "there is no store to join", join=True)
    with open_store(site.store):
        pass
    await check_refused(site, ErrorCode.INVALID_CONFIG, "omit --join", join=True)


@pytest.mark.parametrize("address", ["here", "127.0.0.1:x"])
async def test_a_server_that_joins_refuses_an_invalid_address(
    site: Any, cluster: Cluster, address: str
) -> None:
    bound_to(cluster.new_database(), site.store)
    await check_refused(site, ErrorCode.INVALID_CONFIG, "expected HOST:PORT", join=True, listen=address)


def test_logs_of_servers_that_have_ended_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    logs = tmp_path / "logs"
    logs.mkdir()
    with subprocess.Popen(["true"]) as ended:
        pass
    own, of_port = worker_prefix("127.0.0.1:0"), worker_prefix(f"127.0.0.1:{ended.pid}")
    left, elsewhere = own.replace(str(os.getpid()), str(ended.pid)), f"other-pid{ended.pid}-"
    kept = [logs / f"{prefix}worker-0.log" for prefix in (own, of_port, elsewhere)]
    for log in (logs / f"{left}worker-0.log", *kept):
        log.touch()
    scratches = [_fresh_scratch(log) for log in (logs / f"{left}worker-0.log", *kept)]
    remove_left_logs(logs)
    assert sorted(logs.iterdir()) == sorted(kept)
    assert [scratch.exists() for scratch in scratches] == [False, True, True, True]


async def test_a_database_of_another_schema_is_migrated_by_the_main_server_alone(
    site: Any, cluster: Cluster
) -> None:
    address = cluster.new_database()
    bound_to(address, site.store)
    table = f"{address.rpartition('%3D')[2]}.meta"
    older = f"UPDATE {table} SET value = '{SCHEMA_VERSION - 1}' WHERE key = 'schema_version'"  # noqa: S608
    with locked_backend(site.store, role=Role.JOINED):
        cluster.execute(older)
        await check_refused(site, ErrorCode.STORE_VERSION, "start this version without --join", join=True)
        await check_refused(site, ErrorCode.UNAVAILABLE, "stop all servers of the store first")


async def test_only_groups_that_tune_together_are_those_of_the_main_server(
    site: Any, cluster: Cluster
) -> None:
    bound_to(cluster.new_database(), site.store)
    async with (
        running_server(site.settings()) as (main, _),
        running_server(site.settings(join=True, http="127.0.0.1:0")) as (joined, url),
        httpx.AsyncClient(base_url=str(url), timeout=60) as web,
        grpc.aio.insecure_channel(joined) as channel,
    ):
        join = TuningStub(channel).Join(JoinRequest(key=MemberKey(group="home")), timeout=60)
        with pytest.raises(grpc.RpcError, match=f"of the main server: use {main}") as raised:
            await join
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
        for place in ("/v1/fleet", "/v1/rollouts", "/v1/groups", "/v1/devices", "/fleet", "/readyz"):
            assert (await web.get(place)).status_code == 200, place
        with DevicesClient(joined) as client:
            assert await asyncio.to_thread(client.report_status, device("kitchen")) == Instruction()
        (shown,) = (await web.get("/v1/fleet")).json()["devices"]
        assert shown["status"]["name"] == "kitchen"


def test_a_server_that_listens_everywhere_is_reached_by_the_name_of_its_machine() -> None:
    for everywhere in ("0.0.0.0:7465", "[::]:7465"):
        assert address_for_others(everywhere) == f"{socket.gethostname()}:7465"
    for one in ("127.0.0.1:7465", "[::1]:7465", "mistify.example:7465"):
        assert address_for_others(one) == one

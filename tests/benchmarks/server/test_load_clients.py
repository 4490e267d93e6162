"""Clients of a loaded server make their calls when they are due, and measure only what is asked for."""

import asyncio
import json
import math
import time
from dataclasses import asdict, replace
from io import StringIO

import grpc
import psutil
import pytest
import trustme

from benchmarks.server import load_clients
from benchmarks.server.load_clients import Devices, Downloaders, Settings, Watchers
from mistify.v1.porting_pb2 import PackageChunk


class Clock:
    """A clock that only sleeping advances."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def time(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(load_clients.time, "time", clock.time)
    monkeypatch.setattr(load_clients.asyncio, "sleep", clock.sleep)
    return clock


@pytest.fixture
def settings(tmp_path) -> Settings:
    (tmp_path / "authority.pem").write_bytes(b"")
    return Settings("tls://127.0.0.1:1", "", "secret", str(tmp_path / "authority.pem"), clients=4, every=20.0)


async def test_calls_are_due_evenly_and_a_late_client_catches_up(clock, settings):
    dues, begun = [], []
    async for due in Devices(settings).turns(3):
        dues.append(due)
        begun.append(clock.now)
        clock.now += 50.0 if len(dues) == 1 else 1.0
        if len(dues) == 5:
            break
    assert dues == [1_015.0, 1_035.0, 1_055.0, 1_075.0, 1_095.0]
    assert begun == [1_015.0, 1_065.0, 1_066.0, 1_075.0, 1_095.0]


async def test_figures_are_those_since_a_time(clock, settings):
    devices = Devices(settings)
    devices.note(9.0)
    clock.now += 10
    for milliseconds in range(1, 101):
        devices.note(milliseconds / 1e3)
        devices.note_bytes(1_000_000)
    clock.now += 20
    figures = devices.measured(1_005.0)
    assert (figures["count"], figures["per_s"], figures["mb_per_s"]) == (100, 4.0, 4.0)
    assert figures["p50_ms"] == pytest.approx(50.5)
    assert figures["p99_ms"] == pytest.approx(99.01)
    assert figures["longest_ms"] == pytest.approx(100.0)
    assert math.isnan(devices.measured(clock.now)["p99_ms"])


async def test_a_download_is_one_call_with_all_its_bytes(clock, settings):
    async def chunks():
        for size in (3_000_000, 1_000_000):
            clock.now += 2.0
            yield PackageChunk(data=bytes(size))

    devices = Downloaders(settings)
    await devices.measure(clock.now, devices._received(chunks()))
    figures = devices.measured(1_000.0)
    assert (figures["count"], figures["mb_per_s"], figures["longest_ms"]) == (1, 1.0, 4_000.0)


async def test_clients_that_have_ended_give_no_figures(settings, monkeypatch, capsys):
    class Ended(Devices):
        async def run(self) -> None:
            raise ValueError("a call that nothing measures has failed")

    monkeypatch.setitem(load_clients.ROLES, "ended", Ended)
    monkeypatch.setattr(load_clients.resource, "setrlimit", lambda *arguments: None)
    monkeypatch.setattr("sys.stdin", StringIO(f"{json.dumps(asdict(settings))}\n0\n"))
    with pytest.raises(ValueError, match="nothing measures"):
        await load_clients._serve("ended")
    assert capsys.readouterr().out == ""


async def test_failed_calls_are_counted_and_have_no_duration(settings):
    async def failing():
        raise TimeoutError("no answer")

    devices = Devices(settings)
    assert await devices.measure(0.0, failing()) is None
    figures = devices.measured(0.0)
    assert (figures["count"], figures["failures"], figures["failure"]) == (0, 1, "TimeoutError: no answer")


async def test_watchers_without_an_event_since_a_time_are_behind(clock, settings):
    watchers = Watchers(settings)
    watchers._newest = [900.0, 1_000.0, 1_001.0, 0.0]
    watchers.note(100.0)  # an event of before, which arrives late
    watchers.note(0.0)
    figures = watchers.measured(1_000.0)
    assert (figures["behind"], figures["count"]) == (2, 1)


async def test_each_client_has_a_connection_of_its_own(settings):
    accepted = []
    listening = await asyncio.start_server(lambda reader, writer: accepted.append(writer), "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    devices = Devices(Settings(**{**vars(settings), "address": f"tls://127.0.0.1:{port}"}))
    async with devices.channel() as one, devices.channel() as two:
        for channel in (one, two):
            channel.get_state(try_to_connect=True)
        deadline = time.monotonic() + 10
        while len(accepted) < 2 and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        assert len(accepted) == 2
    for writer in accepted:
        writer.close()
    listening.close()


async def test_a_device_has_no_connection_between_its_reports(settings):
    class Fleet(grpc.GenericRpcHandler):
        def service(self, details):
            async def answer(request, context):
                return b""

            return grpc.unary_unary_rpc_method_handler(answer)

    authority = trustme.CA()
    authority.cert_pem.write_to_path(settings.authority)
    certificate = authority.issue_cert("127.0.0.1")
    chain = b"".join(part.bytes() for part in certificate.cert_chain_pems)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([Fleet()])
    credentials = grpc.ssl_server_credentials([(certificate.private_key_pem.bytes(), chain)])
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    devices = Devices(replace(settings, address=f"tls://127.0.0.1:{port}", clients=1, every=3600.0))
    pausing = asyncio.create_task(devices.run_client(0))
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and (not devices.measured(0.0)["count"] or connections(port)):
        await asyncio.sleep(0.01)
    assert (devices.measured(0.0)["count"], connections(port)) == (1, 0)
    pausing.cancel()
    await server.stop(None)


def connections(port):
    """Return the number of open connections to a port of this machine."""
    own = psutil.Process().net_connections("tcp")
    return sum(each.laddr.port == port and each.status == psutil.CONN_ESTABLISHED for each in own)

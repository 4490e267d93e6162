"""A server with few file descriptors, and many connections that never finish a request."""

import asyncio
import os
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx
import pytest
import trustme

from mistify.jobs.job import GoalState, JobState

Config = Callable[..., dict[str, object]]

DESCRIPTORS = 300
CONNECTIONS = 500
MOST_LOG_BYTES = 100_000

HALF_HEAD = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-slow: "
HALF_BODY = b"POST /v1/session HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4000\r\n\r\n{"
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")


class Doors(NamedTuple):
    """The addresses of a server, its log, and the certificate that clients trust."""

    address: str
    url: str
    log: Path
    trust: ssl.SSLContext | bool

    def web(self) -> httpx.AsyncClient:
        """Return a client that opens a new connection for each request, because kept-alive ones are idle."""
        again = httpx.Limits(max_keepalive_connections=0)
        return httpx.AsyncClient(base_url=self.url, verify=self.trust, timeout=60, limits=again)


@asynccontextmanager
async def serving(site: Any, tls: bool) -> AsyncIterator[Doors]:
    command = [sys.executable, str(Path(__file__).parent / "scripted_server.py"), "--store", str(site.store)]
    command += ["--root", str(site.root), "--http", "127.0.0.1:0"]
    trust: ssl.SSLContext | bool = True
    if tls:
        authority = trustme.CA()
        certificate = authority.issue_cert("127.0.0.1")
        certificate.cert_chain_pems[0].write_to_path(str(site.base / "chain.pem"))
        certificate.private_key_pem.write_to_path(str(site.base / "key.pem"))
        command += ["--certificate", str(site.base / "chain.pem"), str(site.base / "key.pem")]
        trust = ssl.create_default_context()
        authority.configure_trust(trust)
    log = site.base / "log"
    with log.open("wb") as written:
        process = await asyncio.create_subprocess_exec(
            *("sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$@"', "sh"),
            *(*command, "--", *site.worker),
            stdout=asyncio.subprocess.PIPE,
            stderr=written,
        )
    try:
        assert process.stdout is not None
        address, url = (await asyncio.wait_for(process.stdout.readline(), 60)).decode().split()
        yield Doors(address, url, log, trust)
    finally:
        process.terminate()
        await process.wait()


@contextmanager
def idle_connections(
    address: str, said: bytes, trust: ssl.SSLContext | None
) -> Iterator[list[socket.socket]]:
    """Open many connections, and send the same incomplete request on each."""
    host, _, port = address.rpartition(":")
    with ExitStack() as opened:
        connections = []
        for _ in range(CONNECTIONS):
            connection = opened.enter_context(socket.create_connection((host, int(port)), 30))
            if trust is not None:
                connection = opened.enter_context(trust.wrap_socket(connection, server_hostname=host))
            with suppress(ConnectionError):  # closed to make room for others
                connection.sendall(said)
            connections.append(connection)
        yield connections


class Idle(NamedTuple):
    """The target of idle connections, and how much of a request each sends."""

    door: str
    said: bytes
    tls: bool = False
    shakes_hands: bool = False


@pytest.mark.slow
@pytest.mark.parametrize(
    "idle",
    [
        pytest.param(Idle("http", HALF_HEAD), id="half a head"),
        pytest.param(Idle("http", HALF_BODY), id="half a body"),
        pytest.param(Idle("http", b""), id="nothing"),
        pytest.param(Idle("http", b"", tls=True), id="no handshake of TLS"),
        pytest.param(Idle("http", HALF_HEAD, tls=True, shakes_hands=True), id="half a head by TLS"),
        pytest.param(Idle("grpc", b""), id="nothing for gRPC"),
        pytest.param(Idle("grpc", HTTP2), id="no call of gRPC"),
    ],
)
async def test_idle_connections_stop_neither_calls_nor_jobs(
    site: Any, call_at: Any, make_config: Config, wait_until: Any, idle: Idle
) -> None:
    (site.control / "hold-adapt").touch()
    async with serving(site, idle.tls) as doors, doors.web() as web:
        submitted = await web.post("/v1/jobs", json=[make_config("a", FLOP="0.5x")])
        job_id = submitted.json()["job"]["id"]
        await wait_until(lambda: bool(site.tasks("adapt")))
        address = urlsplit(doors.url).netloc if idle.door == "http" else doors.address
        trust = doors.trust if idle.shakes_hands and isinstance(doors.trust, ssl.SSLContext) else None
        with idle_connections(address, idle.said, trust):
            os.kill(site.tasks("adapt")[-1]["pid"], signal.SIGKILL)
            assert (await web.get("/healthz", timeout=5)).status_code == 200
            (site.control / "hold-adapt").unlink()
            await web.get(f"/v1/jobs/{job_id}/events")  # until it ends
            job = (await web.get(f"/v1/jobs/{job_id}")).json()["job"]
            if not idle.tls:
                caller = call_at(doors.address)
                assert (await caller.job(job_id)).state is JobState.DONE
                await caller.channel.close()
        assert [goal["state"] for goal in job["goals"]] == [GoalState.MET.value]
        assert len(site.tasks("adapt")) == 2
        assert doors.log.stat().st_size < MOST_LOG_BYTES

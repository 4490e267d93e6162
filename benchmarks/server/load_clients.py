"""Clients that load a server: a process of their own, with a connection for each client.

`python -m benchmarks.server.load_clients ROLE` reads its settings as a line of JSON, runs clients of a role,
and answers every further line, a time in milliseconds since 1970, by what has been measured since then: a
line of JSON. It ends with its standard input.

Connections are those of `mistify_client`: the same options, TLS and a token; streams are opened again with
the same delays. They are asynchronous, so that a process can have thousands of them.
"""

import asyncio
import json
import resource
import ssl
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, HTTPSConnection
from itertools import count
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

import grpc
import numpy as np

from mistify.fleet import DeviceStatus
from mistify.rollouts import DeviceRollouts
from mistify.v1 import devices_pb2, devices_pb2_grpc, porting_pb2_grpc
from mistify.v1 import porting_pb2 as pb
from mistify.wire import devices as wire
from mistify.wire.address import TLS
from mistify_client.rpc.connection import CHANNEL_OPTIONS, DIRECTLY
from mistify_client.rpc.retry import Backoff

#: Deadline of a call, in seconds.
_CALL_SECONDS: Final = 60.0

#: Maximum number of bytes that are read at once.
_CHUNK: Final = 1 << 20

#: Gives every channel a connection of its own.
_OWN_CONNECTION: Final = (("grpc.use_local_subchannel_pool", 1),)


@dataclass(frozen=True)
class Settings:
    """Settings of the clients in a process.

    Attributes:
        address: The server's address for gRPC.
        url: Its address for HTTP.
        token: Secret of the token that every call sends.
        authority: PEM file with the authority of the server's certificate.
        clients: Number of clients; each has a connection of its own.
        every: Seconds between the beginnings of two calls of a client; 0 for one call after the other.
        config: Config to submit, with NUMBER in the place of six digits.
        job: The job to watch, or of the package to download.
        goal: The goal of the package, and one of its files.
    """

    address: str
    url: str
    token: str
    authority: str
    clients: int
    every: float = 0.0
    config: str = ""
    job: str = ""
    goal: str = ""
    file: str = ""

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What is sent with every call."""
        return (("authorization", f"Bearer {self.token}"),)


class Clients(ABC):
    """Clients of one kind, and their measurements."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._credentials = grpc.ssl_channel_credentials(Path(settings.authority).read_bytes())
        self._samples: list[tuple[float, float]] = []
        self._arrivals: list[tuple[float, int]] = []
        self._failures: list[tuple[float, str]] = []

    @abstractmethod
    async def run_client(self, number: int) -> None:
        """Make the calls of a client until it is cancelled."""

    async def run(self) -> None:
        """Run all clients, which begin evenly within `every` seconds."""
        async with asyncio.TaskGroup() as group:
            for number in range(self.settings.clients):
                group.create_task(self.run_client(number))

    @asynccontextmanager
    async def channel(self) -> AsyncIterator[grpc.aio.Channel]:
        """Open a connection for the block."""
        address, options = (
            self.settings.address.removeprefix(TLS),
            (*CHANNEL_OPTIONS, *DIRECTLY, *_OWN_CONNECTION),
        )
        async with grpc.aio.secure_channel(address, self._credentials, options) as channel:
            yield channel

    async def turns(self, number: int) -> AsyncIterator[float]:
        """Yield the times at which a client's calls are due, in seconds since 1970, when they come.

        A client that is late makes its calls one after the other, so that delays add up as for real devices.
        """
        every = self.settings.every
        due = time.time() + every * number / self.settings.clients
        while True:
            if every:
                await asyncio.sleep(max(0.0, due - time.time()))
            yield due if every else time.time()
            due += every

    async def measure(self, since: float, call: Awaitable[Any]) -> Any:
        """Wait for a call, and note its duration in seconds since a time; return None if it fails."""
        try:
            answer = await call
        except (grpc.aio.AioRpcError, HTTPException, OSError) as error:
            self._failures.append((time.time(), _described(error)))
            return None
        self.note(time.time() - since)
        return answer

    def note(self, seconds: float) -> None:
        """Note the duration of a call that has just ended, or the age of an event that has just arrived."""
        self._samples.append((time.time(), seconds))

    def note_bytes(self, size: int) -> None:
        """Note the number of bytes that have just arrived."""
        self._arrivals.append((time.time(), size))

    def measured(self, since: float) -> dict[str, Any]:
        """Return the figures since a time: numbers, bytes, and percentiles of durations in milliseconds."""
        elapsed = max(1e-9, time.time() - since)
        samples = [sample for sample in self._samples if sample[0] >= since]
        failures = [text for at, text in self._failures if at >= since]
        taken = np.array([seconds for _, seconds in samples] or [np.nan])
        return {
            "count": len(samples),
            "per_s": len(samples) / elapsed,
            "mb_per_s": sum(size for at, size in self._arrivals if at >= since) / 1e6 / elapsed,
            "p50_ms": 1e3 * float(np.percentile(taken, 50)),
            "p99_ms": 1e3 * float(np.percentile(taken, 99)),
            "longest_ms": 1e3 * float(taken.max()),
            "failures": len(failures),
            "failure": failures[0] if failures else "",
        }


class Submitters(Clients):
    """Callers that submit jobs of a known model.

    With pauses (`every`), they cancel and remove each job, so that the number of jobs stays the same.
    """

    _numbers: Final[Iterator[int]] = count(1)

    async def run_client(self, number: int) -> None:
        """Submit jobs."""
        options: dict[str, Any] = {"metadata": self.settings.metadata, "timeout": _CALL_SECONDS}
        async with self.channel() as channel:
            stub = porting_pb2_grpc.PortingStub(channel)  # type: ignore[no-untyped-call]
            async for due in self.turns(number):
                text = self.settings.config.replace("NUMBER", f"{next(self._numbers):06}")
                request = pb.SubmitBatchRequest(config_json=text, idempotency_key=uuid4().hex)
                job = await self.measure(due, stub.SubmitBatch(request, **options))
                if job is not None and self.settings.every:
                    await stub.CancelJob(pb.CancelJobRequest(job_id=job.id), **options)
                    await stub.RemoveJob(pb.RemoveJobRequest(job_id=job.id, now=True), **options)


class Watchers(Clients):
    """Clients that watch a job: durations are the ages of events when they arrive."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._newest = [0.0] * settings.clients
        self._backoff = Backoff()

    async def run_client(self, number: int) -> None:
        """Watch the job, also after the end of the connection."""
        failures = after = 0
        async with self.channel() as channel:
            stub = porting_pb2_grpc.PortingStub(channel)  # type: ignore[no-untyped-call]
            while True:
                request = pb.WatchJobRequest(job_id=self.settings.job, after_sequence=after, grouped=True)
                try:
                    async for message in stub.WatchJob(request, metadata=self.settings.metadata):
                        for event in (message, *message.following):
                            failures, after = 0, event.sequence
                            self._newest[number] = event.unix_ms / 1e3
                            self.note(time.time() - event.unix_ms / 1e3)
                except grpc.aio.AioRpcError as error:
                    self._failures.append((time.time(), _described(error)))
                failures += 1
                await asyncio.sleep(self._backoff.delay(failures))

    def measured(self, since: float) -> dict[str, Any]:
        """Return the figures of events that occurred since a time, and how many clients have none of them."""
        self._samples = [sample for sample in self._samples if sample[0] - sample[1] >= since]
        behind = sum(newest < since for newest in self._newest)
        return {**super().measured(since), "behind": behind}


class Downloaders(Clients):
    """Devices that download a file of a package over gRPC, one time after the other."""

    async def run_client(self, number: int) -> None:
        """Download the file."""
        settings = self.settings
        request = pb.FetchPackageRequest(job_id=settings.job, goal_id=settings.goal, file=settings.file)
        async with self.channel() as channel:
            stub = porting_pb2_grpc.PortingStub(channel)  # type: ignore[no-untyped-call]
            async for due in self.turns(number):
                await self.measure(
                    due, self._received(stub.FetchPackage(request, metadata=settings.metadata))
                )

    async def _received(self, chunks: AsyncIterator[pb.PackageChunk]) -> None:
        async for chunk in chunks:
            self.note_bytes(len(chunk.data))


class HttpDownloaders(Clients):
    """Programs that download the same file over HTTP, each on a thread of its own."""

    async def run_client(self, number: int) -> None:
        """Download the file."""
        settings = self.settings
        trust = ssl.create_default_context(cafile=settings.authority)
        connection = HTTPSConnection(urlsplit(settings.url).netloc, timeout=_CALL_SECONDS, context=trust)
        async for due in self.turns(number):
            await self.measure(due, asyncio.to_thread(self._receive, connection))

    def _receive(self, connection: HTTPSConnection) -> None:
        settings = self.settings
        path = f"/v1/jobs/{settings.job}/goals/{settings.goal}/files/{settings.file}"
        connection.request("GET", path, headers=dict(settings.metadata))
        with connection.getresponse() as response:
            if response.status != HTTPStatus.OK:
                raise HTTPException(f"{response.status}: {response.read(200)!r}")
            while chunk := response.read(_CHUNK):
                self.note_bytes(len(chunk))


class Devices(Clients):
    """Devices that report their state, each over a new connection, as the monitor does."""

    async def run_client(self, number: int) -> None:
        """Report a state again and again."""
        status = DeviceStatus(
            name=f"device-{number:06}",
            job_id=self.settings.job,
            goal_id=self.settings.goal,
            option="branch-0",
            options=3,
            latency_ms=4.5,
            expected_ms=4.0,
            idle=False,
            fits=True,
            reason="the best option within the targets",
            targets={"latency": "20ms"},
            rollouts=DeviceRollouts(self.settings.goal, 4.5),
        )
        request = wire.status_to_proto(status)
        async for due in self.turns(number):
            await self._report(request, due)

    async def _report(self, request: devices_pb2.DeviceStatus, due: float) -> None:
        """Report a state over a connection of its own.

        No reference to the call may be left while the device pauses: it would keep the connection open, even
        with the channel closed.
        """
        async with self.channel() as channel:
            stub = devices_pb2_grpc.DevicesStub(channel)  # type: ignore[no-untyped-call]
            report = stub.ReportStatus(request, metadata=self.settings.metadata, timeout=_CALL_SECONDS)
            await self.measure(due, report)


ROLES: Final[dict[str, type[Clients]]] = {
    "submit": Submitters,
    "watch": Watchers,
    "download": Downloaders,
    "http-download": HttpDownloaders,
    "report": Devices,
}


def _described(error: Exception) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return f"{type(error).__name__}: {error}"


async def _serve(role: str) -> None:
    """Run the clients of a role, and answer lines."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    clients = ROLES[role](Settings(**json.loads(sys.stdin.readline())))
    running = asyncio.create_task(clients.run())
    while line := await asyncio.to_thread(sys.stdin.readline):
        if running.done():
            running.result()  # figures without clients would be too good
        print(json.dumps(clients.measured(float(line) / 1e3)), flush=True)
    running.cancel()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))

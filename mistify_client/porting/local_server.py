"""A server for one command, run as a child process; clients connect to it as to any other."""

import importlib.util
import json
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final, NamedTuple

from mistify.errors import ErrorCode, MistifyError, Problem

#: A server on a busy machine, or with its libraries on a cold disk, may need minutes. That it has ended is
#: noticed at once.
START_SECONDS = 300.0
HEALTH_SECONDS = 10.0
STOP_SECONDS = 20.0

_POLL_SECONDS = 0.05
_SHOWN_LINES = 15
_REQUIRED = ("mistify_server", "tensorflow")
_LOOKUP = "mistify_server.planning.lookup"

#: The line in which a server prints its address.
_LISTENING: Final = re.compile(r"^listening on (\S+)$", re.MULTILINE)


class LocalServer(NamedTuple):
    """A server for one command; only the command knows its token, because other users can reach its port."""

    address: str
    token: str


@contextmanager
def embedded_server(
    store: Path, data_roots: Sequence[Path], *, resume: bool = True, porting: bool = True
) -> Iterator[LocalServer]:
    """Run a server on a free port of the loopback interface, yield it, and stop it at the end.

    Args:
        store: The directory of its jobs, so that they can be resumed.
        data_roots: The directories below which it may read models and data.
        resume: Continue the unfinished jobs of the store.
        porting: Whether jobs or plans are expected: a worker then starts at once, and may run code that
            configs name.

    Raises:
        MistifyError: The server is not installed, failed to start, or exited; with its last output.
    """
    _check_installed()
    # Neither the log nor the token has a file name, so a killed command leaves nothing behind.
    with TemporaryFile() as log:
        token = secrets.token_hex(32)
        process = _start(_command(store, data_roots, resume=resume, porting=porting), token, log)
        try:
            address = _wait_until_ready(process, log)
            with _exit_reported(process, log):
                yield LocalServer(address, token)
        finally:
            _stop(process)


def lookup_problems(config: str, store: Path, data_roots: Sequence[Path]) -> list[Problem]:
    """Return the problems that an embedded server would find in a config when it looks up names.

    Starts no server.

    Args:
        config: JSON of the config.
        store: The server's directory; created if it does not exist.
        data_roots: The directories with models and data.

    Raises:
        MistifyError: The server is not installed, or names cannot be looked up; with the last output.
    """
    _check_installed()
    command = [sys.executable, "-m", _LOOKUP, "--store", str(store), *_roots(data_roots)]
    done = subprocess.run(command, input=config, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise MistifyError(ErrorCode.INTERNAL, f"the names in the config cannot be looked up: {done.stderr}")
    return [Problem(**problem) for problem in json.loads(done.stdout)]


def _check_installed() -> None:
    missing = [name for name in _REQUIRED if importlib.util.find_spec(name) is None]
    if missing:
        raise MistifyError(
            ErrorCode.UNAVAILABLE,
            f"porting on this machine needs {' and '.join(missing)}; install the server with "
            "pip install 'mistify-porting[server]', or name a running one with --server HOST:PORT",
        )


def _command(store: Path, data_roots: Sequence[Path], *, resume: bool, porting: bool) -> list[str]:
    command = [sys.executable, "-m", "mistify_server.embedded", "--store", str(store)]
    command += ["--resume"] if resume else []
    command += ["--porting"] if porting else []
    return [*command, *_roots(data_roots)]


def _roots(data_roots: Sequence[Path]) -> list[str]:
    return [word for root in data_roots for word in ("--data-root", str(root))]


def _start(command: Sequence[str], token: str, log: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start the child in its own session: Ctrl-C reaches only the command, which then stops the child.

    However this process ends, the child ends as well, because its standard input closes.
    """
    reading, writing = os.pipe()
    try:
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(token.encode())
        return subprocess.Popen(  # noqa: S603 (our own module)
            [*command, "--token-file", f"/dev/fd/{reading}"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            pass_fds=[reading],
            start_new_session=True,
        )
    finally:
        os.close(reading)


def _wait_until_ready(process: subprocess.Popen[bytes], log: IO[bytes]) -> str:
    """Return the address that the server prints, once its health service reports that it is serving."""
    deadline = time.monotonic() + START_SECONDS
    while not (listening := _LISTENING.search(_text(log))):
        if process.poll() is not None:
            raise _ended(process, log)
        if time.monotonic() > deadline:
            raise _failed(f"the embedded server was not ready after {START_SECONDS:.0f} s", log)
        time.sleep(_POLL_SECONDS)
    # Imported while the server starts; invalid configs are reported without either.
    import grpc  # noqa: PLC0415
    from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: PLC0415

    from mistify_client.rpc.connection import DIRECTLY  # noqa: PLC0415

    address = listening[1]
    with grpc.insecure_channel(address, options=DIRECTLY) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        try:
            answer = health.Check(
                health_pb2.HealthCheckRequest(), timeout=HEALTH_SECONDS, wait_for_ready=True
            )
        except grpc.RpcError as error:
            raise _failed(f"the embedded server at {address} does not respond", log) from error
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        raise _failed(f"the embedded server at {address} is not serving", log)
    return address


@contextmanager
def _exit_reported(process: subprocess.Popen[bytes], log: IO[bytes]) -> Iterator[None]:
    """Report how the server exited if that is why it is unreachable."""
    try:
        yield
    except MistifyError as error:
        if error.code is ErrorCode.UNAVAILABLE and process.poll() is not None:
            raise _ended(process, log) from error
        raise


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    finally:
        if process.stdin is not None:
            process.stdin.close()


def _ended(process: subprocess.Popen[bytes], log: IO[bytes]) -> MistifyError:
    """Return the error for a server that has exited; its exit code identifies the error code."""
    code = next((code for code in ErrorCode if code.exit_code == process.returncode), ErrorCode.INTERNAL)
    return _failed(f"the embedded server ended with exit code {process.returncode}", log, code)


def _failed(message: str, log: IO[bytes], code: ErrorCode = ErrorCode.INTERNAL) -> MistifyError:
    lines = _text(log).strip().splitlines()[-_SHOWN_LINES:]
    return MistifyError(code, "\n".join([f"{message}; its last output:", *(f"  {line}" for line in lines)]))


def _text(log: IO[bytes]) -> str:
    """Return the child's output so far; reading does not affect where the child continues to write."""
    return os.pread(log.fileno(), os.fstat(log.fileno()).st_size, 0).decode(errors="replace")

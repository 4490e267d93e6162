import os
import select
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify_client.porting.local_server import STOP_SECONDS, embedded_server
from mistify_client.rpc.porting import PortingClient
from mistify_client.rpc.retry import Backoff
from mistify_server.store.directory import serving


def arguments_of(process: int) -> list[str]:
    """Return the command line of a process, which all users can read."""
    return Path(f"/proc/{process}/cmdline").read_text().split("\0")


def children() -> set[int]:
    listed = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return {int(child) for child in listed}


def test_the_server_runs_while_the_context_is_open(tmp_path):
    before = children()
    with embedded_server(tmp_path / "store", [tmp_path]) as server:
        host, port = server.address.rsplit(":", 1)
        assert host == "127.0.0.1"
        assert int(port) > 0
        with PortingClient(*server) as client:
            assert list(client.jobs()) == []
        (process,) = children() - before
        assert "--porting" in arguments_of(process)
    assert children() == before


def test_only_the_starting_process_may_call_the_server(tmp_path):
    with (
        embedded_server(tmp_path / "store", [], porting=False) as (address, _),
        PortingClient(address) as stranger,
        pytest.raises(MistifyError) as caught,
    ):
        list(stranger.jobs())
    assert caught.value.code is ErrorCode.UNAUTHENTICATED


def test_a_server_that_only_plans_accepts_no_code(tmp_path):
    before = children()
    with embedded_server(tmp_path / "store", [], porting=False) as server:
        (process,) = children() - before
        arguments = arguments_of(process)
    assert "--porting" not in arguments
    assert server.token not in arguments


def test_no_proxy_is_used_for_a_local_server(tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        for name in ("http_proxy", "https_proxy", "grpc_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        with embedded_server(tmp_path / "store", []) as server, PortingClient(*server) as client:
            assert list(client.jobs()) == []
        proxy.setblocking(False)
        with pytest.raises(BlockingIOError):
            proxy.accept()


def test_the_server_stops_when_the_body_fails(tmp_path):
    before = children()
    with pytest.raises(ZeroDivisionError), embedded_server(tmp_path / "store", [tmp_path]):
        raise ZeroDivisionError
    assert children() == before


def test_a_failed_start_is_reported_with_the_reason(tmp_path):
    (tmp_path / "store").write_text("not a directory")
    with (
        pytest.raises(MistifyError, match="its last output") as caught,
        embedded_server(tmp_path / "store", []),
    ):
        pass
    assert str(tmp_path / "store") in caught.value.message


def test_a_store_can_serve_only_once(tmp_path):
    with (
        embedded_server(tmp_path / "store", []),
        pytest.raises(MistifyError, match="in use by another server"),
        embedded_server(tmp_path / "store", []),
    ):
        pass


def test_an_unexpected_end_of_the_server_is_reported(tmp_path):
    before = children()

    def work() -> None:
        with embedded_server(tmp_path / "store", [tmp_path]) as server:
            (process,) = children() - before
            os.kill(process, signal.SIGKILL)
            os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
            with PortingClient(*server, backoff=Backoff(attempts=1)) as client:
                list(client.jobs())

    with pytest.raises(MistifyError, match="ended with exit code -9") as caught:
        work()
    assert caught.value.code is ErrorCode.INTERNAL


KILLED = """
import os, signal, sys
from pathlib import Path
from mistify_client.porting.local_server import embedded_server
with embedded_server(Path(sys.argv[1]), []):
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    print(*children, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_server_ends_with_a_killed_client(tmp_path):
    (tmp_path / "scratch").mkdir()
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, tmp_path / "store"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path / "scratch")},
    )
    assert ended.returncode == -signal.SIGKILL
    with suppress(ProcessLookupError):
        server = os.pidfd_open(int(ended.stdout))
        try:
            assert select.select([server], [], [], STOP_SECONDS)[0], "the server outlives its client"
        finally:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(server, signal.SIGKILL)
            os.close(server)
    with serving(tmp_path / "store"):
        """The store is free again."""
    assert list((tmp_path / "scratch").iterdir()) == []

import os
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mistify_server.engines.process import WorkerProcess
from mistify_server.engines.supervision import SupervisedWorker, WorkerDied, WorkerNotStarted
from mistify_server.tasks.results import TaskFailure
from tests.support.disks import files_limited_to

#: Creates a temporary directory and prints its path before reading further input.
LITTERS = "import tempfile; print(tempfile.mkdtemp(), flush=True); input()"

#: Runs tasks that write a temporary file.
WRITES = """
import tempfile
from mistify_server.worker.loop import work
def write(task):
    with tempfile.TemporaryFile(buffering=0) as file:
        file.write(b"a network")
work(lambda say: write)
"""


async def worker_with_temporary_files(log: Path) -> tuple[WorkerProcess, Path]:
    """Start a worker, and yield it with its temporary directory."""
    worker = await WorkerProcess.start([sys.executable, "-c", LITTERS], log)
    return worker, Path((await worker.receive()).decode().strip())


async def test_the_log_tail_of_a_worker_that_died_before_its_first_task_is_kept(
    tmp_path: Path, wait_until: Callable[[Callable[[], bool]], Any]
) -> None:
    log = tmp_path / "log"
    log.write_text("words of its predecessor\n")
    worker = await WorkerProcess.start([sys.executable, "-c", "import sys; sys.exit('no tensorflow')"], log)
    await wait_until(lambda: "no tensorflow" in log.read_text())
    await worker.send(b"{}\n")
    with pytest.raises(WorkerDied, match="exit code 1"):
        await worker.receive()
    assert await worker.log_tail() == "no tensorflow"


async def test_the_log_tail_of_a_worker_covers_its_last_task(tmp_path: Path) -> None:
    program = "import sys\nfor line in sys.stdin: print('about', line, file=sys.stderr); print(flush=True)"
    worker = await WorkerProcess.start([sys.executable, "-c", program], tmp_path / "log")
    for task in (b"one\n", b"two\n"):
        await worker.send(task)
        await worker.receive()
    assert await worker.log_tail() == "about two"
    await worker.kill()


async def test_a_dead_worker_counts_as_dead_before_the_event_loop_notices(tmp_path: Path) -> None:
    worker = await WorkerProcess.start([sys.executable, "-c", "input()"], tmp_path / "log")
    assert await worker.alive()
    pid = worker._process.pid
    os.kill(pid, signal.SIGKILL)
    with suppress(ChildProcessError):  # asyncio may use a thread for this, which may have been faster
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert not await worker.alive()
    await worker.kill()


async def test_a_worker_gives_way_to_the_server(tmp_path: Path) -> None:
    """The kernel may give sessions equal shares, so that of the worker gives way as well."""
    worker = await WorkerProcess.start([sys.executable, "-c", "input()"], tmp_path / "log")
    pid = worker._process.pid
    expected = min(19, os.nice(0) + 5)
    assert os.getpriority(os.PRIO_PROCESS, pid) == expected
    session = Path(f"/proc/{pid}/autogroup")
    assert not session.exists() or session.read_text().split()[-1] == str(expected)
    await worker.kill()


async def test_a_removed_log_does_not_stop_workers(tmp_path: Path) -> None:
    program = "for line in __import__('sys').stdin: print(flush=True)"
    worker = await WorkerProcess.start([sys.executable, "-c", program], tmp_path / "log")
    for task in (b"one\n", b"two\n"):
        await worker.send(task)
        assert await worker.receive() == b"\n"
        (tmp_path / "log").unlink(missing_ok=True)
    assert await worker.log_tail() == ""
    await worker.kill()


async def test_a_long_log_that_cannot_be_truncated_does_not_stop_workers(tmp_path: Path) -> None:
    log = tmp_path / "worker-0.log"
    log.write_bytes(b"old\n" * 500_000)
    with files_limited_to(100_000):
        worker = await WorkerProcess.start([sys.executable, "-c", "print(); input()"], log)
        assert await worker.receive() == b"\n"
    await worker.kill()
    assert [path.name for path in tmp_path.iterdir()] == ["worker-0.log"]
    assert log.stat().st_size == 2_000_000


@pytest.mark.parametrize("killed", [True, False])
async def test_a_worker_leaves_no_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, killed: bool
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    worker, litter = await worker_with_temporary_files(tmp_path / "log")
    assert litter.is_dir()
    if killed:
        await worker.kill()
    else:
        await worker.send(b"\n")
        with pytest.raises(WorkerDied):
            await worker.receive()
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


async def test_a_worker_that_fails_to_start_leaves_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(WorkerNotStarted, match="/no/such/program"):
        await WorkerProcess.start(["/no/such/program"], tmp_path / "log")
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


async def test_files_of_a_killed_servers_worker_are_removed_by_the_next_server(tmp_path: Path) -> None:
    left, litter = await worker_with_temporary_files(tmp_path / "worker-0.log")
    other, in_use = await worker_with_temporary_files(tmp_path / "worker-1.log")
    os.killpg(left._process.pid, signal.SIGKILL)
    successor, _ = await worker_with_temporary_files(tmp_path / "worker-0.log")
    assert not litter.exists()
    assert in_use.exists()
    for worker in (left, other, successor):
        await worker.kill()


async def test_a_full_disk_for_temporary_files_is_reported(
    tmp_path: Path, site: Any, adapt_task: Any
) -> None:
    task = adapt_task(site)
    with files_limited_to(0):
        worker = await WorkerProcess.start([sys.executable, "-c", WRITES], tmp_path / "log")
        answer = await SupervisedWorker(worker, "worker").ask(task, lambda progress: None, 60.0)
    assert answer.result == TaskFailure(code="INTERNAL", message="OSError: File too large")
    await worker.kill()


async def test_a_worker_ends_on_an_unknown_command(tmp_path: Path) -> None:
    program = "from mistify_server.worker.loop import work; work(lambda say: lambda task: None)"
    worker = await WorkerProcess.start([sys.executable, "-c", program], tmp_path / "log")
    await worker.send(b'{"ticket": 1, "task": {"kind": "of a later version"}}\n')
    with pytest.raises(WorkerDied, match="exit code 1"):
        await _until_its_end(worker)
    assert "of a later version" in (tmp_path / "log").read_text()


async def _until_its_end(worker: WorkerProcess) -> None:
    while True:  # it may have sent heartbeats
        await worker.receive()

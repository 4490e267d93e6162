import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mistify_server.engines.process import WorkerProcess
from mistify_server.engines.supervision import WorkerDied


async def test_the_last_words_of_a_worker_that_died_before_it_was_asked_are_kept(
    tmp_path: Path, wait_until: Callable[[Callable[[], bool]], Any]
) -> None:
    log = tmp_path / "log"
    log.write_text("words of its predecessor\n")
    worker = await WorkerProcess.start([sys.executable, "-c", "import sys; sys.exit('no tensorflow')"], log)
    await wait_until(lambda: "no tensorflow" in log.read_text())
    await worker.send(b"{}\n")
    with pytest.raises(WorkerDied, match="exit code 1"):
        await worker.receive()
    assert await worker.last_words() == "no tensorflow"


async def test_the_last_words_of_a_worker_are_about_its_last_task(tmp_path: Path) -> None:
    program = "import sys\nfor line in sys.stdin: print('about', line, file=sys.stderr); print(flush=True)"
    worker = await WorkerProcess.start([sys.executable, "-c", program], tmp_path / "log")
    for task in (b"one\n", b"two\n"):
        await worker.send(task)
        await worker.receive()
    assert await worker.last_words() == "about two"
    await worker.kill()


async def test_a_worker_is_not_alive_before_the_event_loop_knows_of_its_death(tmp_path: Path) -> None:
    worker = await WorkerProcess.start([sys.executable, "-c", "input()"], tmp_path / "log")
    assert await worker.alive()
    pid = worker._process.pid
    os.kill(pid, signal.SIGKILL)
    while Path(f"/proc/{pid}").exists():
        time.sleep(0.01)  # and not asyncio.sleep, which would let the loop hear of it
    assert not await worker.alive()
    await worker.kill()


async def test_a_log_that_was_removed_stops_no_worker(tmp_path: Path) -> None:
    program = "for line in __import__('sys').stdin: print(flush=True)"
    worker = await WorkerProcess.start([sys.executable, "-c", program], tmp_path / "log")
    for task in (b"one\n", b"two\n"):
        await worker.send(task)
        assert await worker.receive() == b"\n"
        (tmp_path / "log").unlink(missing_ok=True)
    assert await worker.last_words() == ""
    await worker.kill()


async def test_a_worker_ends_at_an_order_that_it_does_not_understand(tmp_path: Path) -> None:
    program = "from mistify_server.worker import work; work(lambda say: lambda task: None)"
    worker = await WorkerProcess.start([sys.executable, "-c", program], tmp_path / "log")
    await worker.send(b'{"ticket": 1, "task": {"kind": "of a later version"}}\n')
    with pytest.raises(WorkerDied, match="exit code 1"):
        await _until_its_end(worker)
    assert "of a later version" in (tmp_path / "log").read_text()


async def _until_its_end(worker: WorkerProcess) -> None:
    while True:  # it may have said that it lives
        await worker.receive()

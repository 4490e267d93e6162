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

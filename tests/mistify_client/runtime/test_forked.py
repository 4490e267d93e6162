"""Processes that are forked after a package was loaded, such as the workers of a server."""

import multiprocessing
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from mistify_client import load
from mistify_client.runtime.model import PortedModel
from tests.mistify_client.pools import write_pool
from tests.support.block_stores import images
from tests.support.paths import DATA


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")  # that is what is tested
def test_a_forked_process_runs_and_switches_with_statistics_of_its_own(tmp_path):
    package = Path(shutil.copytree(DATA / "blocks", tmp_path / "package"))
    write_pool(package)
    model = load(package)
    for option in ("subnet-0", "subnet-1"):
        _run(model, option)
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    with _running(model):
        forked = context.Process(target=_run_in_fork, args=[model, sender])
        forked.start()
        sender.close()
        try:
            assert receiver.poll(10), "the forked process hangs"
            assert receiver.recv() == {"subnet-0": 0, "subnet-1": 1}
            forked.join()
        finally:
            forked.kill()
    assert forked.exitcode == 0


def _run(model: PortedModel, option: str) -> None:
    model.switch(option)
    while model.running != option:
        model(images(1))


@contextmanager
def _running(model: PortedModel) -> Iterator[None]:
    """Run inferences in another thread, which holds locks most of the time."""
    begun, ends = threading.Event(), threading.Event()

    def infer() -> None:
        while not ends.is_set():
            begun.set()
            model(images(4000))

    thread = threading.Thread(target=infer)
    thread.start()
    try:
        begun.wait()
        yield
    finally:
        ends.set()
        thread.join()


def _run_in_fork(model: PortedModel, sender: Connection) -> None:
    model(images(1))
    counts = model.statistics(3600).counts
    _run(model, "subnet-0")
    sender.send(counts)

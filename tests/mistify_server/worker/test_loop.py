"""Failures in the loop of a worker: TensorFlow's are classified, and none leaves a worker that is deaf."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from mistify_server.worker.loop import resource_errors_as_python_errors


def test_a_full_disk_in_tensorflow_is_reported() -> None:
    with (
        pytest.raises(OSError, match="No space left on device") as raised,
        resource_errors_as_python_errors(),
    ):
        tf.io.write_file("/dev/full", b"a network")
    assert raised.value.errno == errno.ENOSPC


def test_an_exhausted_quota_counts_as_a_full_disk() -> None:
    with pytest.raises(OSError, match="Disk quota exceeded") as raised, resource_errors_as_python_errors():
        raise tf.errors.ResourceExhaustedError(None, None, "/home/a/saved_model.pb; Disk quota exceeded")
    assert raised.value.errno == errno.ENOSPC


@pytest.mark.slow
def test_other_exhausted_resources_count_as_memory() -> None:
    with pytest.raises(MemoryError, match="OOM"), resource_errors_as_python_errors():
        tf.zeros([10**7, 10**7, 10])


def test_a_worker_ends_if_it_cannot_read_orders(tmp_path: Path) -> None:
    """It would otherwise send heartbeats for an order that it never gets."""
    program = "from mistify_server.worker.loop import work; work(lambda report: None)"
    with (tmp_path / "written").open("w") as only_written:
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, stdin=only_written, capture_output=True, text=True, check=False)
    assert (done.returncode, "Bad file descriptor" in done.stderr) == (1, True), done.stderr

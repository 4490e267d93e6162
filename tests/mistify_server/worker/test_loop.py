"""What a worker says of errors that TensorFlow raises."""

import errno

import pytest
import tensorflow as tf

from mistify_server.worker.loop import resource_errors_as_python_errors


def test_a_disk_that_is_full_for_tensorflow_is_reported_as_such() -> None:
    with (
        pytest.raises(OSError, match="No space left on device") as raised,
        resource_errors_as_python_errors(),
    ):
        tf.io.write_file("/dev/full", b"a network")
    assert raised.value.errno == errno.ENOSPC


def test_a_quota_that_is_used_up_is_a_full_disk() -> None:
    with pytest.raises(OSError, match="Disk quota exceeded") as raised, resource_errors_as_python_errors():
        raise tf.errors.ResourceExhaustedError(None, None, "/home/a/saved_model.pb; Disk quota exceeded")
    assert raised.value.errno == errno.ENOSPC


@pytest.mark.slow
def test_what_else_is_exhausted_is_memory() -> None:
    with pytest.raises(MemoryError, match="OOM"), resource_errors_as_python_errors():
        tf.zeros([10**7, 10**7, 10])

"""Classification of TensorFlow errors in a worker."""

import errno

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

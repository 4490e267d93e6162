"""The memory of a process, beside other processes that use the same libraries."""

import mmap
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from mistify_client.engines.measuring import proportional_bytes

pytestmark = pytest.mark.skipif(proportional_bytes() is None, reason="requires /proc/self/smaps")

#: A process that has LiteRT in memory, and waits.
OTHER = """
import sys
import ai_edge_litert.interpreter
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def process_with_litert() -> Iterator[int]:
    """Run such a process, and yield its id."""
    command = [sys.executable, "-c", OTHER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process.pid
        process.stdin.close()


def test_other_processes_with_the_same_libraries_make_no_difference() -> None:
    """The libraries are most of what such a process takes, and each process has its part of them."""
    with process_with_litert() as first:
        alone = proportional_bytes(first)
        with process_with_litert(), process_with_litert():
            assert proportional_bytes(first) == pytest.approx(alone, abs=1e6)
        assert alone is not None
        assert alone > 1e6


def test_arrays_and_mapped_files_count(tmp_path: Path) -> None:
    before = proportional_bytes()
    array = np.ones(100_000_000, np.uint8)
    with_array = proportional_bytes()
    path = tmp_path / "weights"
    path.write_bytes(bytes(array[:50_000_000]))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert sum(mapped[:: mmap.PAGESIZE]) > 0
        with_file = proportional_bytes()
    assert before is not None
    assert with_array is not None
    assert with_file is not None
    assert with_array - before == pytest.approx(100e6, abs=10e6)
    assert with_file - with_array == pytest.approx(50e6, abs=10e6)

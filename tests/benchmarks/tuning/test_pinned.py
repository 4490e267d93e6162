"""Linear algebra is limited to one thread for benchmarks that require it."""

import os

import numpy as np
import pytest

pytest.importorskip("threadpoolctl", reason="needs the extra: pip install -e '.[bench]'")

from threadpoolctl import threadpool_info, threadpool_limits

from benchmarks.tuning.pinned import checked, in_one_thread


def threads_and_overrides():
    np.ones((2, 2)) @ np.ones((2, 2))
    libraries = threadpool_info()
    threads = {library["num_threads"] for library in libraries if library["user_api"] == "blas"}
    return threads, [name for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE") if name in os.environ]


def test_a_process_has_one_thread_and_no_overrides(monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    before = dict(os.environ)
    assert in_one_thread(threads_and_overrides) == ({1}, [])
    assert dict(os.environ) == before


def test_more_threads_are_refused():
    with threadpool_limits(2, "blas"), pytest.raises(RuntimeError, match="expected one thread"):
        checked(threads_and_overrides)

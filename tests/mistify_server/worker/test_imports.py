"""What a worker sets and imports before its first task."""

import os
import subprocess
import sys

import pytest

_SCRIPT = """
import sys
from mistify_server.worker.imports import quick_imports
with quick_imports():
    import mistify_server.worker.runner
print(*sorted({"sklearn", "matplotlib", "pandas", "scipy.stats"} & sys.modules.keys()))
import gc, sklearn
print(gc.isenabled(), gc.get_freeze_count() > 100_000)
"""


def test_a_worker_imports_rarely_needed_libraries_on_demand() -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["", "True True"]


_THREADS = """
import mistify_server.worker.loop
import numpy, scipy.linalg
from threadpoolctl import threadpool_info
print({pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"})
"""


def test_linear_algebra_of_a_worker_uses_one_thread() -> None:
    pytest.importorskip("threadpoolctl", reason="needs the extra: pip install -e '.[bench]'")
    unset = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", _THREADS], env=unset, capture_output=True, text=True, check=True
    )
    assert done.stdout == "{1}\n"

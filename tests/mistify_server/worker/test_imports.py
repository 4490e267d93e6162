"""Modules that a worker imports before its first task."""

import subprocess
import sys

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

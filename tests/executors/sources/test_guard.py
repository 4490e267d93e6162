"""What a model does to the process that loads it, in processes of their own."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.executors.inspection.corpus import config_of, layer, rewritten
from tests.executors.inspection.networks import save_good_model

#: Loads each file that it is given, and says what was wrong with it and how much memory that took at most.
CHILD = """
import os, resource, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
from pathlib import Path
from executors.sources import load_source
from mistify.errors import MistifyError
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 2**20
load_source(Path(sys.argv[1]))
limits = [resource.getrlimit(kind) for kind in (resource.RLIMIT_DATA, resource.RLIMIT_CPU)]
before = peak()
for name in sys.argv[2:]:
    try:
        load_source(Path(name))
    except MistifyError as error:
        print(error.code.name, error.problems[0])
    else:
        sys.exit(f"{name} was accepted")
assert limits == [resource.getrlimit(kind) for kind in (resource.RLIMIT_DATA, resource.RLIMIT_CPU)]
load_source(Path(sys.argv[1]))
print(peak() - before)
"""

BUSY = """
import time
from executors.sources.guard import limited
from mistify.errors import MistifyError
try:
    with limited("model.keras", 2**30, seconds=1):
        while True:
            pass
except MistifyError as error:
    print(error)
"""


def run(script: str, *arguments: str) -> list[str]:
    child = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False
    )
    assert child.returncode == 0, child.stderr
    return child.stdout.splitlines()

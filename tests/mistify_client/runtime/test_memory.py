"""Batches for which there is not enough memory."""

import subprocess
import sys

# In a process of its own, because freed memory of other tests would count as well. The loop ends when the
# limit is known to less than the bytes of the scores, which are allocated last.
_FIND_LIMIT = """
import resource, sys
import numpy as np
from mistify.errors import MistifyError
from mistify_client import load

model = load(sys.argv[1])
images = np.zeros((100_000, 4, 4, 1), np.float32)
with open("/proc/self/status") as status:
    (taken,) = (1024 * int(line.split()[1]) for line in status if line.startswith("VmData:"))
refused, enough = 0, 100_000_000
while enough - refused > 1_000_000:
    limit = (refused + enough) // 2
    resource.setrlimit(resource.RLIMIT_DATA, (taken + limit, -1))
    try:
        model(images)
    except MistifyError as error:
        assert "not enough memory" in error.message
        refused = limit
    else:
        enough = limit
assert refused > 0
assert model(images[:1]).shape == (1, 3)
"""


def test_a_batch_beyond_the_memory_is_refused_wherever_memory_runs_out(package):
    subprocess.run([sys.executable, "-c", _FIND_LIMIT, package], check=True)

"""The benchmark `device.engines`."""

from argparse import Namespace

import pytest

from benchmarks.device.engines import measure
from mistify_client.engines.measuring import proportional_bytes


@pytest.mark.skipif(proportional_bytes() is None, reason="requires /proc/self/smaps")
def test_apps_share_mapped_weights():
    figures = measure(Namespace(quick=True))
    assert figures.keys() == {"memory_of_three", "start", "latency"}
    assert 0 < figures["memory_of_three"] < 0.8

"""The results of `other_device`, and the code that runs on its device."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.harness.run import EXIT_SKIPPED
from benchmarks.latency.other_device import Package, figures_of, main

PACKAGES = [
    Package(share=1.0, limit_ms=None, predicted_ms=10.0, measured_ms=11.0),
    Package(share=0.5, limit_ms=5.0, predicted_ms=4.75, measured_ms=4.5),
    Package(share=0.3, limit_ms=2.5, predicted_ms=2.0, measured_ms=2.6),
    Package(share=1.0, limit_ms=100.0, predicted_ms=10.0, measured_ms=10.0),
]


def test_the_use_of_limits_is_measured_on_the_device() -> None:
    figures = figures_of(PACKAGES)
    assert figures["most_used"] == pytest.approx(2.6 / 2.5)
    assert figures["least_used"] == pytest.approx(0.9)  # the last goal was not cut
    assert figures["worst_error"] == pytest.approx(0.3)
    assert figures["median_error"] == pytest.approx((0.1 + 0.25 / 4.75) / 2)


def test_the_benchmark_is_skipped_without_the_emulator(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["--quick"]) == EXIT_SKIPPED


def test_the_clock_of_the_device_is_its_processor_time() -> None:
    """Also where the clock is a default argument, and without TensorFlow."""
    program = (
        "import inspect, sys, time, benchmarks.latency.other_device_side as side; side.main('measure', []); "
        "from mistify.profiling.measuring import measure_device; "
        "assert inspect.signature(measure_device).parameters['clock'].default is time.process_time; "
        "print({'tensorflow', 'keras'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"

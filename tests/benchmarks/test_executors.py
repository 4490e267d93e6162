"""Which figures the comparison of algorithms yields."""

import pytest

from benchmarks.executors import ALGORITHMS, SHARES, Descent, figures_of, main
from benchmarks.harness import EXIT_SKIPPED
from executors.base import executor_class


def test_figures_are_medians_over_the_seeds():
    descents = [
        Descent({share: base + place for place, share in enumerate(SHARES)}, seconds)
        for base, seconds in ((70.0, 9.0), (60.0, 5.0), (64.0, 6.0))
    ]
    figures = figures_of("resnet8", {"morphnet": descents})
    assert figures["resnet8_morphnet_at_0.75"] == 64.0
    assert figures["resnet8_morphnet_at_0.125"] == 67.0
    assert figures["resnet8_morphnet_mean"] == 65.5
    assert figures["resnet8_morphnet_seconds"] == 6.0


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_is_there(algorithm):
    assert executor_class(algorithm).name == algorithm


def test_without_data_it_is_skipped():
    assert main(["--data", "nowhere"]) == EXIT_SKIPPED

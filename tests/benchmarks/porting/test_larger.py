"""The gain of a network larger than its source, and whether it is served without a gain."""

import pytest

from benchmarks.harness.run import EXIT_SKIPPED
from benchmarks.porting.larger import Network, figures_of, main

SOURCE = Network(1.0, 83.0, 82.0)


def test_gains_are_those_of_the_served_network() -> None:
    figures = figures_of([(SOURCE, Network(2.0, 85.0, 84.0)), (SOURCE, SOURCE)])
    assert figures["points_gained"] == pytest.approx(1.0)
    assert figures["points_gained_least"] == 0.0
    assert (figures["served_larger"], figures["equalled_by_the_source"]) == (1, 0)


@pytest.mark.parametrize(("validation", "equalled"), [(82.9, 1), (83.0, 1), (83.1, 0)])
def test_a_larger_network_that_is_not_better_on_validation_data_counts_as_equal(
    validation: float, equalled: int
) -> None:
    assert figures_of([(SOURCE, Network(2.0, validation, 90.0))])["equalled_by_the_source"] == equalled


def test_the_benchmark_is_skipped_without_data() -> None:
    assert main(["--quick"]) == EXIT_SKIPPED

"""What a network above its source gains, and whether it is served for nothing."""

import pytest

from benchmarks.harness.run import EXIT_SKIPPED
from benchmarks.porting.larger import Network, figures_of, main

SOURCE = Network(1.0, 83.0, 82.0)


def test_gains_are_those_of_what_is_served() -> None:
    figures = figures_of([(SOURCE, Network(2.0, 85.0, 84.0)), (SOURCE, SOURCE)])
    assert figures["points_gained"] == pytest.approx(1.0)
    assert figures["points_gained_least"] == 0.0
    assert (figures["served_larger"], figures["equalled_by_the_source"]) == (1, 0)


@pytest.mark.parametrize(("validation", "equalled"), [(82.9, 1), (83.0, 1), (83.1, 0)])
def test_a_larger_network_that_is_no_better_on_the_validation_data_is_equalled(
    validation: float, equalled: int
) -> None:
    assert figures_of([(SOURCE, Network(2.0, validation, 90.0))])["equalled_by_the_source"] == equalled


def test_without_data_it_is_skipped() -> None:
    assert main(["--quick"]) == EXIT_SKIPPED

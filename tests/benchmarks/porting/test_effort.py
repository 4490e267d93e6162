"""The configs whose lines are counted are valid."""

import pytest

from benchmarks.porting.effort import COUNTS, _lines, config_of, shares_of
from mistify.config.reading import parse_batch


@pytest.mark.parametrize("count", COUNTS)
def test_a_config_has_a_line_for_each_goal(count):
    config = config_of(shares_of(count), 100, 1)
    assert _lines(config) == count + 2
    assert len(parse_batch(config)) == count


def test_goals_are_spread_from_the_largest_to_the_smallest():
    shares = shares_of(10)
    assert shares[0] == 0.9
    assert shares[-1] == pytest.approx(0.1)
    assert shares == sorted(set(shares), reverse=True)

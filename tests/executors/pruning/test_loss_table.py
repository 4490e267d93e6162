"""Losses of groups between and beyond the measured widths."""

import numpy as np
import pytest

from executors.pruning.loss_table import LossTable, measured_widths
from executors.structure import ChannelGroup

#: The losses of `a` grow with the power 1.5 of the halvings; one of the others was measured less often.
TABLE = LossTable(
    {"a": 64, "b": 2, "c": 1, "noisy": 16},
    {"a": {32: 1.0, 16: 2.0**1.5, 8: 5.0}, "b": {1: 0.4}, "c": {}, "noisy": {8: 0.2, 4: 0.1, 2: -0.1}},
)


def group(size, least=1):
    return ChannelGroup("g", size, (), least=least)


@pytest.mark.parametrize(
    ("size", "least", "widths"),
    [(64, 1, [32, 16, 8]), (64, 20, [32, 20]), (4, 1, [2, 1]), (2, 1, [1]), (1, 1, []), (8, 8, [])],
)
def test_a_group_is_measured_at_a_half_a_quarter_and_an_eighth(size, least, widths):
    assert measured_widths(group(size, least)) == widths


def test_measured_losses_are_those_of_the_table():
    np.testing.assert_allclose(TABLE.of("a", [64, 32, 16, 8]), [0, 1, 2**1.5, 5])
    np.testing.assert_allclose(TABLE.of("b", [2, 1]), [0, 0.4])
    assert TABLE.of("c", [1]) == 0


def test_the_first_units_of_a_group_count_less():
    """The loss grows up to the first measured width as it does from there to the second."""
    assert TABLE.of("a", [48])[0] == pytest.approx(np.log2(64 / 48) ** 1.5)


def test_losses_are_interpolated_over_halvings_and_continued():
    middle = 64 * 2**-2.5
    assert TABLE.of("a", [middle])[0] == pytest.approx((2**1.5 + 5) / 2)
    assert TABLE.of("a", [4])[0] == pytest.approx(5 + (5 - 2**1.5))


def test_each_halving_loses_at_least_as_much_as_the_one_before():
    np.testing.assert_allclose(TABLE.of("noisy", [16, 8, 4, 2, 1]), [0, 0.2, 0.4, 0.6, 0.8])


def test_a_table_is_loaded_as_it_was_saved():
    assert LossTable.loaded(TABLE.saved()) == TABLE
    assert not LossTable.loaded(b"").covers({"a": 1})


def test_a_table_covers_the_groups_of_its_network_up_to_their_widths():
    assert TABLE.covers({"a": 64, "b": 1})
    assert not TABLE.covers({"a": 65})
    assert not TABLE.covers({"a": 64, "other": 1})

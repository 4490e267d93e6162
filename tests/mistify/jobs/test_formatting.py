"""Amounts, names of costs, and percentages of the source's costs as text."""

import pytest

from mistify.jobs.formatting import amount, excess, label, shares
from mistify.jobs.job import Source


@pytest.mark.parametrize(
    ("axis", "value", "text"),
    [
        ("flops", 12_501_632, "12.5M"),
        ("params", 78_666, "78.7K"),
        ("memory_bytes", 314_664, "315KB"),
        ("latency_ms@host", 0.0314159, "31.4us"),
        ("flops", 0.0, "0"),
        ("flops", None, "-"),
    ],
)
def test_amounts_have_three_digits(axis, value, text):
    assert amount(axis, value) == text


def test_labels_name_the_hardware():
    assert label("latency_ms@jetson-nano") == "predicted latency on jetson-nano"
    assert label("size_bytes") == "size"


def test_costs_that_the_source_lacks_are_omitted():
    costs = {"size_bytes": 7.0, "params": 10.0, "flops": 50.0}
    assert shares(costs, Source({"flops": 100.0, "params": 0.0}, 0.5)) == "multiply-adds 50%"


def test_costs_are_listed_in_a_fixed_order():
    costs = {"latency_ms@host": 1.0, "size_bytes": 1.0, "flops": 1.0, "latency_ms@a": 1.0}
    shown = "multiply-adds 100%, size 100%, predicted latency on a 100%, latency on host 100%"
    assert shares(costs, Source(costs, 0.5)) == shown


@pytest.mark.parametrize(
    ("costs", "limits", "text"),
    [
        ({"flops": 5.0, "params": 9.0}, {"flops": 5.0, "params": 9.0}, ""),
        ({"latency_ms@host": 2.1}, {"latency_ms@host": 2.0}, "latency on host 2.1ms over 2ms"),
        (
            {"flops": 9.0, "params": 7e3},
            {"flops": 8.0, "params": 2e3},
            "parameters 7K over 2K, multiply-adds 9 over 8",
        ),
        ({"flops": 584_950.0}, {"flops": 584_928.0}, "multiply-adds 584.95K over 584.928K"),
        ({"flops": 1_000_000_001.0}, {"flops": 1_000_000_000.0}, "multiply-adds 1.000000001G over 1G"),
    ],
)
def test_excesses_name_costs_with_their_units(costs, limits, text):
    """The largest excess is first, and both figures differ however close they are."""
    assert excess(costs, limits) == text

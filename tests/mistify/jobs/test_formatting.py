"""Amounts, names of costs, and percentages of the source's costs as text."""

import pytest

from mistify.jobs.formatting import amount, label, shares
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

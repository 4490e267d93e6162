"""The benchmark of lending: its oracle, and a placement that never changes."""

import pytest

from benchmarks.device.lending import Case
from benchmarks.device.lending_device import FixedChooser
from mistify_client.lending.chains import Part
from mistify_client.lending.cuts import Cut
from mistify_client.lending.links import HelperSpeed, Link
from mistify_client.lending.placement import Reachable


def test_the_oracle_is_the_best_single_placement() -> None:
    ways = {"here": 30.0, "lending": 20.0, "static": 21.0, "0": 24.0, "3": 25.0}
    assert Case("network", 1, ways, "").oracle == 24.0


@pytest.mark.parametrize(
    ("cut", "parts"),
    [
        (None, []),
        (Cut(0, 5000), [Part("drone:1", 0, 2)]),
        (Cut(1, 1000), [Part(None, 0, 1), Part("drone:1", 1, 2)]),
    ],
)
def test_a_fixed_placement_stays_whatever_it_costs(cut, parts) -> None:
    chooser = FixedChooser(cut, 2)
    assert chooser.choose({}, 0).is_local
    placement = chooser.choose({"drone:1": Reachable(Link(), HelperSpeed([500.0, 500.0]))}, 0)
    assert [each.part for each in placement.parts] == parts

"""The choice between this device and its helpers, with known times."""

import pytest

from mistify_client.lending.chains import Part
from mistify_client.lending.cuts import Cut
from mistify_client.lending.links import Exchange, HelperSpeed, Link
from mistify_client.lending.placement import Placement, PlacementChooser, Reachable
from mistify_client.lending.speed import LocalSpeed

#: Milliseconds of the segments here and there, and the cuts between them.
SEGMENTS = [2.0, 4.0, 4.0, 10.0]
CUTS = (Cut(0, 600_000), Cut(2, 50_000), Cut(3, 5_000))
HELPER = "drone:7470"
CAR = "car:7470"


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def link(bytes_per_ms: float, round_trip_ms: float = 0.5) -> Link:
    """Return a link of which some messages have shown bandwidth and round trip."""
    made = Link()
    for _ in range(5):
        made.observe(
            Exchange(50_000, 0, 50_000 / bytes_per_ms + round_trip_ms + 3, 3.0, 50_000 / bytes_per_ms)
        )
    return made


class World:
    """A device with a helper whose times are set by the test."""

    def __init__(self, *, slower: float = 1.0, bytes_per_ms: float = 1e4, there: float = 1.0) -> None:
        self.clock = Clock()
        self.local = LocalSpeed(sum(SEGMENTS), SEGMENTS, self.clock)
        self.chooser = PlacementChooser(CUTS, 4_000, self.local, self.clock)
        self.helpers = {
            HELPER: Reachable(link(bytes_per_ms), HelperSpeed([each * there for each in SEGMENTS]))
        }
        self.here(slower)

    def here(self, slower: float) -> None:
        """Run inferences on this device, which take some times as long as when it is idle."""
        for _ in range(9):
            self.local.observe(slower * sum(SEGMENTS))

    def chosen(self) -> tuple[str | None, int | None]:
        """Return the helper and the index of its first block, some time later."""
        self.clock.now += 1
        placement = self.chooser.choose(self.helpers, 600_000)
        if placement.is_local:
            return None, None
        *_, last = placement.parts
        assert [each.part.helper for each in placement.parts[:-1]] == [None] * (last.part.start > 0)
        return last.part.helper, last.part.start


@pytest.mark.parametrize(
    ("slower", "bytes_per_ms", "there", "first"),
    [
        (1, 1e4, 1, None),  # an idle device is not helped by an equal one
        (1, 1e4, 0.25, 3),  # but by a faster one: 10 + 0.5 + 0.9 + 2.5 ms instead of 20
        (4, 1e4, 1, 2),  # 24 + 0.5 + 5.4 + 14, instead of 80
        (4, 1e6, 1, 0),  # everything over a fast link: 0.5 + 0.6 + 20
        (4, 1e2, 1, None),  # 40 + 90 + 10 even for the smallest tensors
        (4, 5e2, 1, 3),  # 40 + 0.5 + 18 + 10
    ],
)
def test_the_cut_with_the_least_time_is_chosen(slower, bytes_per_ms, there, first) -> None:
    expected = (None, None) if first is None else (HELPER, first)
    assert World(slower=slower, bytes_per_ms=bytes_per_ms, there=there).chosen() == expected


def test_a_decision_holds_for_a_moment_under_the_same_circumstances() -> None:
    world = World(slower=4)
    world.clock.now += 1
    first = world.chooser.choose(world.helpers, 600_000)
    world.here(1)
    world.clock.now += 0.01
    assert world.chooser.choose(world.helpers, 600_000) is first
    assert world.chooser.choose({}, 600_000).is_local
    world.clock.now += 1
    assert world.chooser.choose(world.helpers, 600_000).is_local


def test_the_predicted_time_is_the_sum_of_its_parts() -> None:
    world = World(slower=4)
    placement = world.chooser.choose(world.helpers, 600_000)
    assert placement.local_ms == pytest.approx(80)
    here, there = placement.parts
    assert (here.part, there.part) == (Part(None, 0, 2), Part(HELPER, 2, 4))
    assert there.expected_ms == pytest.approx(0.5 + 54_000 / 1e4 + 14)
    assert placement.predicted_ms == pytest.approx(24 + there.expected_ms)
    assert placement.reason == (
        "drone:7470 runs the network from cut 2 on (50 KB), 43.9 ms expected; this device alone takes 80.0 ms"
    )


def test_a_helper_must_save_a_tenth_and_a_millisecond() -> None:
    assert World(slower=1.4).chosen() == (None, None)  # 25.4 with a helper, 28 without
    assert World(slower=1.4, there=0.9).chosen() == (HELPER, 3)  # 24.4


def test_this_device_comes_first_as_soon_as_it_is_as_fast() -> None:
    world = World(slower=4)
    assert world.chosen() == (HELPER, 2)
    world.clock.now += 3
    world.here(1.2)
    world.clock.now -= 1
    assert world.chosen() == (None, None)


def test_a_better_cut_is_taken_after_a_while_and_only_if_it_saves_a_tenth() -> None:
    world = World(slower=4)
    assert world.chosen() == (HELPER, 2)
    world.helpers = {HELPER: Reachable(link(2e3), HelperSpeed(SEGMENTS))}
    world.clock.now -= 1
    assert world.chosen() == (HELPER, 2)
    assert world.chosen() == (HELPER, 3)
    world.helpers = {HELPER: Reachable(link(3e3), HelperSpeed(SEGMENTS))}
    assert world.chosen() == (HELPER, 3)  # 53.5, and 56.5 with the cut of before


def test_a_helper_that_cannot_be_asked_is_left_at_once() -> None:
    world = World(slower=4)
    assert world.chosen() == (HELPER, 2)
    world.helpers = {}
    world.clock.now -= 1
    assert world.chosen() == (None, None)


def test_inputs_that_can_be_sent_as_bytes_cost_less() -> None:
    world = World(slower=4)
    (everything,) = world.chooser.choose(world.helpers, 150_000).parts  # 0.5 + 15.4 + 20, 43.9 at cut 2
    assert (everything.part, everything.sent) == (Part(HELPER, 0, 4), 150_000)


def test_the_best_of_several_helpers_is_chosen() -> None:
    world = World(slower=4)
    world.helpers["car:7470"] = Reachable(link(1e4), HelperSpeed([each / 4 for each in SEGMENTS]))
    assert world.chosen() == ("car:7470", 2)


def test_what_a_cut_takes_beyond_the_prediction_is_remembered_for_a_while() -> None:
    world = World(slower=4)
    for cut, other in ((2, (HELPER, 3)), (3, (None, None))):
        assert world.chosen() == (HELPER, cut)
        placement = world.chooser.choose(world.helpers, 600_000)
        for _ in range(7):  # three that do not count, and four that say nothing yet
            world.chooser.observe(placement, 120.0)
            assert world.chosen() == (HELPER, cut)
        world.chooser.observe(placement, 120.0)
        assert world.chosen() == other
    world.clock.now += 12
    assert world.chosen() == (None, None)
    world.clock.now += 20
    assert world.chosen() == (HELPER, 2)


def test_another_cut_is_tried_if_one_takes_longer_than_predicted() -> None:
    world = World(slower=4)
    everything = world.chooser.choose(world.helpers, 150_000)  # 0.5 + 15.4 + 20
    assert [each.part for each in everything.parts] == [Part(HELPER, 0, 4)]
    for _ in range(8):
        world.chooser.observe(everything, 38.0)
    world.clock.now += 1
    later = world.chooser.choose(world.helpers, 150_000)  # 43.9 at cut 2
    assert later.chain == everything.chain
    for _ in range(9):
        world.chooser.observe(later, 60.0)
    world.helpers = {HELPER: Reachable(link(1e4), HelperSpeed([each / 2 for each in SEGMENTS]))}
    world.clock.now += 1
    other = world.chooser.choose(world.helpers, 150_000)
    assert [each.part for each in other.parts] == [Part(None, 0, 2), Part(HELPER, 2, 4)]
    for _ in range(8):
        world.chooser.observe(other, 37.0)
    world.clock.now += 1
    assert world.chooser.choose(world.helpers, 150_000).chain == other.chain
    assert world.chooser.correction(HELPER) == pytest.approx(37.0 - 24 - 0.5 - 5.4 - 7)


def chain_world() -> tuple[World, Placement]:
    """Return a world of two helpers, with a fast link and a fast processor, and its placement."""
    world = World(slower=4)
    world.helpers = {
        HELPER: Reachable(link(1e6), HelperSpeed([1.0, 1.0, 4.0, 100.0])),
        CAR: Reachable(link(1e3), HelperSpeed([each / 2 for each in SEGMENTS])),
    }
    return world, world.chooser.choose(world.helpers, 600_000)


def test_one_helper_makes_tensors_small_for_the_other_one() -> None:
    _, placement = chain_world()
    assert [each.part for each in placement.parts] == [Part(HELPER, 0, 3), Part(CAR, 3, 4)]
    expected = [0.5 + 605_000 / 1e6 + 6, 0.5 + 9_000 / 1e3 + 5]
    assert [each.expected_ms for each in placement.parts] == pytest.approx(expected)
    assert placement.predicted_ms == pytest.approx(sum(expected))
    assert placement.reason == (
        "drone:7470 runs the network to cut 3 (600 KB), then car:7470 from cut 3 on (5 KB), "
        "21.6 ms expected; this device alone takes 80.0 ms"
    )


def test_what_a_chain_takes_beyond_the_prediction_says_nothing_about_its_helpers_alone() -> None:
    world, placement = chain_world()
    for _ in range(8):
        world.chooser.observe(placement, placement.predicted_ms + 100)
    assert [world.chooser.correction(each) for each in placement.helpers] == [0.0, 0.0]
    world.clock.now += 1
    after = world.chooser.choose(world.helpers, 600_000)
    assert [each.part for each in after.parts] == [Part(None, 0, 3), Part(CAR, 3, 4)]  # 54.5 ms


@pytest.mark.parametrize(("difference", "counted"), [(-9, 0), (9, 18)])
def test_what_helpers_save_alone_is_not_added_up_in_a_chain_but_what_they_waste_is(
    difference, counted
) -> None:
    world, placement = chain_world()
    for address, helper in world.helpers.items():
        alone = PlacementChooser(CUTS, 4_000, world.local, world.clock)
        world.local.observe(30 * sum(SEGMENTS))  # so slow that each of them is asked
        single = alone.choose({address: helper}, 600_000)
        assert single.helpers == (address,)
        for _ in range(8):
            world.chooser.observe(single, single.predicted_ms + difference)
        assert world.chooser.correction(address) == pytest.approx(difference)
    world.clock.now += 1
    after = world.chooser.choose(world.helpers, 600_000)
    assert [each.part for each in after.parts] == [each.part for each in placement.parts]
    assert after.predicted_ms == pytest.approx(placement.predicted_ms + counted)

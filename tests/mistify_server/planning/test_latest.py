"""Values of the latest keys."""

from functools import partial

from mistify_server.planning.latest import LatestValues


def test_the_values_of_the_latest_keys_are_made_once() -> None:
    latest: LatestValues[list[int], int] = LatestValues(2)
    made: list[int] = []

    def double(number: int) -> int:
        made.append(number)
        return 2 * number

    # Each key is another object.
    values = [latest.get([number], partial(double, number)) for number in (1, 2, 1, 2, 3, 2, 3, 1)]
    assert values == [2, 4, 2, 4, 6, 4, 6, 2]
    assert made == [1, 2, 3, 1]

"""Division of shapes into corresponding blocks."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistify_client.exporting.shapes import BatchSize, Shape, blocks, count

N = BatchSize()


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ((N, 4, 6, 8), (N, 192), [((0,), (0,)), ((1, 2, 3), (1,))]),
        ((N, 4, 6, 8), (N, 24, 8), [((0,), (0,)), ((1, 2), (1,)), ((3,), (2,))]),
        ((N, 16, 8), (N, 16, 2, 4), [((0,), (0,)), ((1,), (1,)), ((2,), (2, 3))]),
        ((N, 7, 8), (BatchSize(7), 8), [((0, 1), (0,)), ((2,), (1,))]),
        ((N, 7, 8), (N, 7, 1, 8), [((0,), (0,)), ((1,), (1, 2)), ((2,), (3,))]),
        ((N, 1, 1, 8), (N, 8), [((0, 1, 2), (0,)), ((3,), (1,))]),
    ],
)
def test_blocks_are_the_smallest_that_correspond(
    old: Shape, new: Shape, expected: list[tuple[tuple[int, ...], tuple[int, ...]]]
) -> None:
    assert [(tuple(first), tuple(second)) for first, second in blocks(old, new)] == expected


@given(st.lists(st.lists(st.integers(1, 6), max_size=3), max_size=4))
def test_blocks_cover_all_axes_and_have_equally_many_entries(parts: list[list[int]]) -> None:
    old = (N, *(size for part in parts for size in part))
    new = (N, *(prod(part) for part in parts))
    for first, second in ((old, new), (new, old)):
        divided = list(blocks(first, second))
        assert [axis for block, _ in divided for axis in block] == list(range(len(first)))
        assert [axis for _, block in divided for axis in block] == list(range(len(second)))
        for before, behind in divided:
            assert count([first[axis] for axis in before]) == count([second[axis] for axis in behind])

"""Classes in a text, whose names may have commas in them."""

import pytest

from mistify.scenarios.classes import classes_in

NAMES = ("shark, white", "shark", "white", "ray")


@pytest.mark.parametrize(
    ("text", "classes"),
    [
        ("shark,ray", ("shark", "ray")),
        (" ray , shark, white", ("ray", "shark, white")),
        ("shark,white", ("shark", "white")),
        ("white,shark, white,0", ("white", "shark, white", "0")),
        ("shark, whit", ("shark", "whit")),
        ("ray,", ("ray", "")),
    ],
)
def test_the_longest_name_counts(text, classes):
    assert classes_in(text, NAMES) == classes

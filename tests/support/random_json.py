"""Random changes of JSON values."""

from copy import deepcopy
from typing import Any

from hypothesis import strategies as st


def inside(value: Any) -> list[tuple[str | int, ...]]:
    """Return the keys of all values inside a value, itself first."""
    if isinstance(value, dict):
        children: Any = value.items()
    elif isinstance(value, list):
        children = enumerate(value)
    else:
        children = ()
    return [(), *((key, *rest) for key, child in children for rest in inside(child))]


def at(value: Any, keys: tuple[str | int, ...]) -> Any:
    for key in keys:
        value = value[key]
    return value


@st.composite
def changed(draw: st.DrawFn, value: Any, values: st.SearchStrategy[Any], keys: st.SearchStrategy[str]) -> Any:
    """Return a value with up to four changes: parts replaced, added, removed, or put into lists.

    Args:
        values: New parts.
        keys: New keys.
    """
    value = deepcopy(value)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.sampled_from(inside(value)))
        change = draw(st.sampled_from(["replace", "add", "remove", "listed"]))
        if not place and change != "add":
            continue
        around = at(value, place[:-1])
        if change == "replace":
            around[place[-1]] = draw(values)
        elif change == "remove":
            del around[place[-1]]
        elif change == "listed":
            around[place[-1]] = [around[place[-1]], draw(values)]
        elif isinstance(here := at(value, place), dict):
            here[draw(keys)] = draw(values)
        elif isinstance(here, list):
            here.insert(draw(st.integers(0, len(here))), draw(values))
    return value

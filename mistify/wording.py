"""Counts and lists in sentences, and names."""

from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

#: Maximum number of names listed in a sentence; the others are counted.
MOST_LISTED = 5

Key = TypeVar("Key", bound=Hashable)


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: `1 goal`, `1,200 goals`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def listed(names: Sequence[str]) -> str:
    """Format names for a sentence: `a`, `a and b`, `a, b, c, d, e and 995 others`."""
    shown = list(names) if len(names) <= MOST_LISTED + 1 else list(names[:MOST_LISTED])
    left = len(names) - len(shown)
    *first, last = [*shown, f"{left:,} others"] if left else shown
    return f"{', '.join(first)} and {last}" if first else last


def numbered(wanted: str, taken: Container[str]) -> str:
    """Return a name that is not taken: `conv`, `conv_2`, `conv_3`."""
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    return name


def names_by(pairs: Iterable[tuple[str, Key]]) -> Mapping[Key, list[str]]:
    """Return the names paired with each key, in order of first appearance."""
    grouped: dict[Key, list[str]] = {}
    for name, key in pairs:
        grouped.setdefault(key, []).append(name)
    return grouped

"""The kinds of options in a package, and their ids, which devices, servers and apps use."""

from enum import StrEnum


class OptionKind(StrEnum):
    """The form of an option: a branch of the package's network, a subnet of its blocks, or a slice.

    A slice is a network for the package's task, cut from a network with all units.
    """

    BRANCH = "branch"
    SUBNET = "subnet"
    SLICE = "slice"


def option_id(kind: OptionKind, number: float) -> str:
    """Return the id of an option, such as "branch-0" or "slice-0.25".

    Args:
        number: The index of the option among those of its kind; for a slice the largest share of open units.
    """
    return f"{kind}-{number:.3g}"

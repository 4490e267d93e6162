"""The kinds of options in a package, and their ids, which devices, servers and apps use."""

from enum import StrEnum
from typing import Final

_HELPED: Final = "-helped"


class OptionKind(StrEnum):
    """The form of an option: a branch of the package's network, a subnet of its blocks, a slice, and so on.

    A slice is a network for the package's task, cut from a network with all units. With exits, the package's
    network answers early if it is confident. An engine is another way to run the package's network.
    """

    BRANCH = "branch"
    SUBNET = "subnet"
    SLICE = "slice"
    EXIT = "exit"
    ENGINE = "engine"


def option_id(kind: OptionKind, number: float) -> str:
    """Return the id of an option, such as "branch-0" or "slice-0.25".

    Args:
        number: The index of the option among those of its kind; for a slice the largest share of open units;
            for exits the allowed loss of accuracy.
    """
    return f"{kind}-{number:.3g}"


def helped_id(option: str) -> str:
    """Return the id of an option with helpers."""
    return option + _HELPED


def local_id(option: str) -> str:
    """Return the id of an option on its device alone, whether or not the given one is with helpers."""
    return option.removesuffix(_HELPED)

"""The kinds of options in a package, and their ids, which devices, servers and apps use."""

from enum import StrEnum


class OptionKind(StrEnum):
    """The form of an option: a branch of the package's network, or a subnet of its blocks."""

    BRANCH = "branch"
    SUBNET = "subnet"


def option_id(kind: OptionKind, number: int) -> str:
    """Return the id of an option, such as "branch-0", from its index among the options of its kind."""
    return f"{kind}-{number}"

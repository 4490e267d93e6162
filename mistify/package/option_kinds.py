"""The kinds of options that a package has, and their ids, which devices, servers and apps name them by."""

from enum import StrEnum


class OptionKind(StrEnum):
    """The form of an option: a branch of the package's network, or a subnet of its blocks."""

    BRANCH = "branch"
    SUBNET = "subnet"


def option_id(kind: OptionKind, number: int) -> str:
    """Return the id of an option, such as "branch-0", by its place among those of its kind from 0 on."""
    return f"{kind}-{number}"

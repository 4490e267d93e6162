"""What a caller of a server uses, and the limits on it."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Quota:
    """Limits on what a caller uses at the same time; None for no limit.

    Attributes:
        uploads: Models and data that the server keeps for the caller, in bytes.
        jobs: Unfinished jobs, including paused ones.
        workers: Steps of jobs in progress; others wait.
    """

    uploads: int | None = None
    jobs: int | None = None
    workers: int | None = None


UNLIMITED: Final = Quota()


@dataclass(frozen=True)
class Usage:
    """What a caller uses, as limited by a `Quota`."""

    uploads: int = 0
    jobs: int = 0
    workers: int = 0


@dataclass(frozen=True)
class CallerStatus:
    """A caller, by the name of their token, with its scopes, limits, what they use, and their tenant.

    The tenant is empty if the server knows none.
    """

    name: str
    scopes: tuple[str, ...]
    limits: Quota
    usage: Usage
    tenant: str = ""

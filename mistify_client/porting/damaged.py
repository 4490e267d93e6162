"""Packages that cannot be downloaded intact; the others are still downloaded."""

from collections.abc import Iterator
from contextlib import contextmanager

from mistify.errors import ErrorCode, MistifyError
from mistify.wording import counted


class DamagedPackages:
    """The goals with damaged packages."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}

    @contextmanager
    def recording(self, goal_id: str) -> Iterator[None]:
        """Record the goal's package as damaged if the block, which downloads it, finds it so."""
        try:
            yield
        except MistifyError as error:
            if error.code is not ErrorCode.CORRUPT_PACKAGE:
                raise
            self._reasons[goal_id] = error.message

    def __contains__(self, goal_id: str) -> bool:
        return goal_id in self._reasons

    def check(self) -> None:
        """Check that no package was damaged.

        Raises:
            MistifyError: CORRUPT_PACKAGE, with each damaged package and its problem.
        """
        if self._reasons:
            packages = counted(len(self._reasons), "package")
            lines = [f"  {goal_id}: {reason}" for goal_id, reason in self._reasons.items()]
            message = "\n".join([f"{packages} could not be fetched, all others were:", *lines])
            raise MistifyError(ErrorCode.CORRUPT_PACKAGE, message)

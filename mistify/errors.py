"""The one catalogue of errors: code, gRPC status, HTTP status, exit code.

Every failure that a user can meet is a `MistifyError` with a code from `ErrorCode`. The server
translates it to a gRPC status with the problems attached, the client translates it back, and the
command line turns it into an exit code. No other place decides what a failure looks like.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from mistify.wording import counted, listed, names_by

#: The number of a goal, or of a value in its lists.
_INDEX = re.compile(r"\[\d+\]")


class ErrorCode(Enum):
    """A kind of failure: (gRPC status name, HTTP status, exit code)."""

    INVALID_CONFIG = ("INVALID_ARGUMENT", 400, 2)
    INVALID_MODEL = ("INVALID_ARGUMENT", 400, 2)
    INVALID_DATASET = ("INVALID_ARGUMENT", 400, 2)
    INVALID_PUBLICATION = ("INVALID_ARGUMENT", 400, 2)
    NOT_FOUND = ("NOT_FOUND", 404, 3)
    CONFLICT = ("ALREADY_EXISTS", 409, 4)
    UNAUTHENTICATED = ("UNAUTHENTICATED", 401, 5)
    STORE_VERSION = ("FAILED_PRECONDITION", 409, 6)
    ADDRESS_IN_USE = ("UNAVAILABLE", 503, 7)
    UNAVAILABLE = ("UNAVAILABLE", 503, 8)
    CANCELLED = ("CANCELLED", 499, 9)
    CORRUPT_PACKAGE = ("DATA_LOSS", 500, 10)
    PRIVACY_BUDGET = ("FAILED_PRECONDITION", 409, 12)
    NO_ROOM = ("RESOURCE_EXHAUSTED", 413, 13)
    INTERNAL = ("INTERNAL", 500, 1)

    # Members with equal tuples would become aliases of each other: the name keeps them apart.
    def __new__(cls, grpc_status: str, http_status: int, exit_code: int) -> "ErrorCode":
        """Give each member its own value, so that equal statuses do not merge members."""
        member = object.__new__(cls)
        member._value_ = len(cls.__members__)
        member.grpc_status = grpc_status
        member.http_status = http_status
        member.exit_code = exit_code
        return member

    grpc_status: str
    http_status: int
    exit_code: int


@dataclass(frozen=True)
class Problem:
    """One error in the user's input.

    `place` is a JSON path (`[3].adaptation_goal.FLOP`) or a file; `value` is the value found there.
    """

    place: str
    value: str
    expected: str
    fix: str

    def __str__(self) -> str:
        return f"{self.place}: {self.complaint}"

    @property
    def complaint(self) -> str:
        """The problem without its place."""
        return f"got {self.value}; expected {self.expected}; {self.fix}"


class MistifyError(Exception):
    """A failure with a code and, where the user's input is at fault, every problem in it."""

    def __init__(self, code: ErrorCode, message: str, problems: Iterable[Problem] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.problems = tuple(problems)

    def __reduce__(self) -> tuple[type["MistifyError"], tuple[ErrorCode, str, tuple[Problem, ...]]]:
        """Pickle the error, so that it can be raised in another process."""
        return MistifyError, (self.code, self.message, self.problems)

    def __str__(self) -> str:
        """Return the message with every problem; the same problem in many goals is reported once."""
        alike = names_by(
            (problem.place, (_INDEX.sub("[]", problem.place), problem.complaint)) for problem in self.problems
        )
        lines = (f"  {listed(places)}: {complaint}" for (_, complaint), places in alike.items())
        return "\n".join([self.message, *lines])


#: The name in errors of a config whose file is not known, such as to a server.
THE_CONFIG = "the config"


def invalid_config(problems: Iterable[Problem], source: str = THE_CONFIG) -> MistifyError:
    """Return all problems of one config as one error."""
    problems = tuple(problems)
    count = counted(len(problems), "problem")
    return MistifyError(ErrorCode.INVALID_CONFIG, f"{source}: {count}, nothing was started", problems)

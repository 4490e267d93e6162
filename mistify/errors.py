"""The catalogue of errors: code, gRPC status, HTTP status, exit code.

Every failure that a user can see is a `MistifyError` with a code from `ErrorCode`. The server converts
it to a gRPC status with the problems attached, the client converts it back, and the command line maps it to
an exit code. No other module decides how a failure is presented.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from mistify.wording import counted, listed, names_by

#: The index of a goal, or of a value in its lists.
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
    PERMISSION_DENIED = ("PERMISSION_DENIED", 403, 14)
    STORE_VERSION = ("FAILED_PRECONDITION", 409, 6)
    ADDRESS_IN_USE = ("UNAVAILABLE", 503, 7)
    UNAVAILABLE = ("UNAVAILABLE", 503, 8)
    STORE_REFUSED = ("FAILED_PRECONDITION", 503, 19)
    CANCELLED = ("CANCELLED", 499, 9)
    CORRUPT_PACKAGE = ("DATA_LOSS", 500, 10)
    PRIVACY_BUDGET = ("FAILED_PRECONDITION", 409, 12)
    UNTRUSTED = ("FAILED_PRECONDITION", 409, 16)
    NO_ROOM = ("RESOURCE_EXHAUSTED", 413, 13)
    QUOTA_EXCEEDED = ("RESOURCE_EXHAUSTED", 429, 17)
    INVALID_MESSAGE = ("INVALID_ARGUMENT", 400, 18)
    INTERNAL = ("INTERNAL", 500, 1)

    # Enum members with equal tuples would become aliases; a value per member avoids this.
    def __new__(cls, grpc_status: str, http_status: int, exit_code: int) -> "ErrorCode":
        """Give each member a value of its own."""
        member = object.__new__(cls)
        member._value_ = len(cls.__members__)
        member.grpc_status = grpc_status
        member.http_status = http_status
        member.exit_code = exit_code
        return member

    grpc_status: str
    http_status: int
    exit_code: int


def encodable(text: str) -> str:
    """Return a text with escapes in place of unpaired surrogates, which nothing can send or print."""
    return text.encode("utf-8", "backslashreplace").decode()


@dataclass(frozen=True)
class Problem:
    """One problem in the user's input.

    `place` is a JSON path (`[3].adaptation_goal.FLOP`) or a file; `value` is the value found there.
    """

    place: str
    value: str
    expected: str
    fix: str

    def __post_init__(self) -> None:
        """Make its texts encodable: they may quote the input, such as the names that a user has defined."""
        for name in ("place", "value", "expected", "fix"):
            object.__setattr__(self, name, encodable(getattr(self, name)))

    def __str__(self) -> str:
        return f"{self.place}: {self.complaint}"

    @property
    def complaint(self) -> str:
        """The problem without its place."""
        return f"got {self.value}; expected {self.expected}; {self.fix}"


class MistifyError(Exception):
    """A failure with a code and, if the user's input is wrong, all of its problems."""

    def __init__(self, code: ErrorCode, message: str, problems: Iterable[Problem] = ()) -> None:
        message = encodable(message)
        super().__init__(message)
        self.code = code
        self.message = message
        self.problems = tuple(problems)

    def __reduce__(self) -> tuple[type["MistifyError"], tuple[ErrorCode, str, tuple[Problem, ...]]]:
        """Pickle the error, so that it can be raised in another process."""
        return MistifyError, (self.code, self.message, self.problems)

    def __str__(self) -> str:
        """Return the message with all problems; a problem that many goals share is reported once."""
        alike = names_by(
            (problem.place, (_INDEX.sub("[]", problem.place), problem.complaint)) for problem in self.problems
        )
        lines = (f"  {listed(places)}: {complaint}" for (_, complaint), places in alike.items())
        return "\n".join([self.message, *lines])


#: Name in errors for a config whose file is unknown, for example on a server.
THE_CONFIG = "the config"

#: What errors in a config end with, because all of it is checked first.
NOTHING_STARTED = "nothing was started"


def invalid_config(problems: Iterable[Problem], source: str = THE_CONFIG) -> MistifyError:
    """Return an error with all problems of one config."""
    problems = tuple(problems)
    count = counted(len(problems), "problem")
    return MistifyError(ErrorCode.INVALID_CONFIG, f"{source}: {count}, {NOTHING_STARTED}", problems)


def with_outcome(error: MistifyError, outcome: str) -> MistifyError:
    """Return an error of `invalid_config` that ends with another outcome than `NOTHING_STARTED`.

    Other errors are returned unchanged.

    Args:
        outcome: The consequence of the invalid config, such as "nothing was changed".
    """
    before = error.message.removesuffix(NOTHING_STARTED)
    if before == error.message:
        return error
    return MistifyError(error.code, before + outcome, error.problems)


#: Codes of errors that pass by themselves, or once the operator follows their advice.
OUTAGES: Final = frozenset({ErrorCode.UNAVAILABLE, ErrorCode.STORE_REFUSED})


def is_outage(error: BaseException) -> bool:
    """Check whether an error is temporary, so that jobs wait for its end."""
    return isinstance(error, MistifyError) and error.code in OUTAGES

"""Limits on how much each caller has in progress at the same time; the calls of others do not count."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from mistify.errors import ErrorCode, MistifyError
from mistify_server.identity.callers import CallerId, current_caller


class InProgress:
    """Counts what each caller has in progress; for one event loop.

    Args:
        most: The maximum of a caller.
        name: Its name for people, in the plural.
        advice: The end of the error for a caller with too many: how to go on.
    """

    def __init__(self, most: int, name: str, advice: str) -> None:
        self._most = most
        self._name = name
        self._advice = advice
        self._counts: Counter[CallerId] = Counter()

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """Count one more of the current caller within the block.

        Raises:
            MistifyError: QUOTA_EXCEEDED, the caller has as many as it may.
        """
        caller = current_caller().id
        if self._counts[caller] >= self._most:
            raise MistifyError(
                ErrorCode.QUOTA_EXCEEDED,
                f'the token "{caller.name}" has {self._most:,} {self._name} in progress, which is the limit; '
                f"{self._advice}",
            )
        self._counts[caller] += 1
        try:
            yield
        finally:
            self._counts -= Counter([caller])

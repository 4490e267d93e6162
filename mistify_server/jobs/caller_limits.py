"""The limits of callers with running jobs, as last read from the store."""

import asyncio
import logging
from collections.abc import Callable, Collection

from mistify.errors import MistifyError
from mistify.quotas import Quota
from mistify_server.identity.callers import CallerId
from mistify_server.identity.tokens import TokenStore

_log = logging.getLogger(__name__)


class CallerLimits:
    """The limits of callers, kept in memory: steps are scheduled on the event loop, which reads no store.

    Args:
        tokens_of: Returns the tokens of a tenant.
    """

    def __init__(self, tokens_of: Callable[[str], TokenStore]) -> None:
        self._tokens_of = tokens_of
        self._known: dict[CallerId, Quota] = {}
        self._unreadable = False

    def most_steps(self, caller: CallerId) -> int | None:
        """Return how many steps of a known caller may run at the same time; None for no limit."""
        return self._known[caller].workers

    def __contains__(self, caller: CallerId) -> bool:
        """Check whether the limits of a caller are known."""
        return caller in self._known

    async def learn(self, caller: CallerId) -> None:
        """Read the limits of a caller.

        Raises:
            MistifyError: They cannot be read.
        """
        self._known[caller] = await asyncio.to_thread(self._read, caller)

    async def refresh(self, present: Collection[CallerId]) -> None:
        """Read the limits of callers again, and forget other callers.

        Limits that cannot be read stay as they are.
        """
        # Before the wait, so that nobody is forgotten who gets a job meanwhile.
        self._known = {caller: limits for caller, limits in self._known.items() if caller in present}
        callers = tuple(self._known)
        try:
            read = await asyncio.to_thread(lambda: {each: self._read(each) for each in callers})
        except MistifyError as error:
            if not self._unreadable:
                _log.warning("the limits of callers cannot be read, and stay as they are: %s", error)
            self._unreadable = True
        else:
            self._known |= read
            self._unreadable = False

    def _read(self, caller: CallerId) -> Quota:
        return self._tokens_of(caller.tenant).limits(caller.name)

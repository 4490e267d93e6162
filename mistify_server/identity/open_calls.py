"""The calls that are being answered: they end when the token of their caller does."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final, Never

from mistify.errors import MistifyError
from mistify_server.identity.authentication import Authenticator, Credential, unauthenticated

#: Interval between checks of the tokens of open calls.
_INTERVAL_SECONDS: Final = 5.0

_log = logging.getLogger(__name__)


class OpenCall:
    """A call that is being answered, by a task that waits for most of the time.

    Attributes:
        ended: Whether it may not go on.
    """

    def __init__(self) -> None:
        self.ended = False
        self._waiting: asyncio.Timeout | None = None

    def end(self) -> None:
        """End the call: now if it waits, and otherwise when it is about to."""
        self.ended = True
        if self._waiting is not None:
            self._waiting.reschedule(asyncio.get_running_loop().time())

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """Wait for something within the block.

        Raises:
            MistifyError: UNAUTHENTICATED, the call was ended.
        """
        if self.ended:
            raise unauthenticated()
        try:
            async with asyncio.timeout(None) as self._waiting:
                yield
        except TimeoutError:
            if not self.ended:
                raise
            raise unauthenticated() from None
        finally:
            self._waiting = None


class OpenCalls:
    """The open calls of a server. Each ends within seconds after the token with which it was made.

    Watchers and downloads last for hours, for which a revoked token would otherwise still count.
    """

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator
        self._open: dict[OpenCall, Credential] = {}

    @contextmanager
    def begun(self, credential: Credential | None) -> Iterator[OpenCall]:
        """Yield a call that is open during the block.

        Args:
            credential: The digest of its token; None if callers need none.
        """
        call = OpenCall()
        if credential is not None:
            self._open[call] = credential
        try:
            yield call
        finally:
            self._open.pop(call, None)

    async def keep_checking(self) -> Never:
        """End calls whose token was revoked or has expired, until cancelled."""
        while True:
            await asyncio.sleep(_INTERVAL_SECONDS)
            try:
                await self._check()
            except MistifyError as error:  # the store is away: calls stay as they are
                _log.debug("the tokens of open calls cannot be checked: %s", error)
            except Exception:
                _log.exception("the tokens of open calls cannot be checked because of an internal error")

    async def _check(self) -> None:
        for credential in {*self._open.values()}:
            if await self._authenticator.caller(credential) is None:
                for call in [call for call, other in self._open.items() if other == credential]:
                    call.end()
            await asyncio.sleep(0)  # a local store is read at once, perhaps for each of thousands of tokens

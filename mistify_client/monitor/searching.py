"""The search for other subnets of a package if none in its pool meets the targets (AdaptiveNet 5.3)."""

import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Final, TypeAlias

from mistify.errors import ErrorCode, MistifyError
from mistify.parsing.quantities import format_time
from mistify_client.assembly.pool import SubnetPool
from mistify_client.monitor.config import SearchConfig
from mistify_client.monitor.foreground import IntervalOutcome
from mistify_client.monitor.replacement.goals import rounded_down
from mistify_client.monitor.state.journal import Journal
from mistify_client.runtime.versions import open_current, state_directory

_ABOUT: Final = "search"

#: The command `mistify`, regardless of how this process was started.
_MISTIFY: Final = (sys.executable, "-c", "from mistify_client.cli.main import main; main()")

#: The lowest priority in Linux.
_NICE: Final = 19

_DIGITS: Final = 3

#: Seconds until a search that was killed, or could not run, may be repeated: the cause may have gone.
_RETRY_SECONDS: Final = 600.0

#: The conditions of a search: its latency target, rounded, and the targets for accuracy and memory.
_Conditions: TypeAlias = tuple[float, float | None, float | None]


@dataclass(frozen=True)
class _Search:
    """A search in progress.

    Attributes:
        process: The search process.
        budget_ms: The latency target of the subnets.
    """

    process: subprocess.Popen[bytes]
    budget_ms: float
    conditions: _Conditions


class SubnetSearch:
    """Searches for other subnets, one search at a time, with `mistify adapt` in a low-priority process.

    Data, strategy and number of threads are those of the pool, which the process replaces with its result.
    The same conditions lead to only one search, and after one that found nothing no tighter target is tried
    until the daemon restarts. A search that was killed, or could not run, is repeated later.

    Args:
        package: The directory of the shipped package.
        messages: The file for the process's output.
        journal: The log for searches and problems.

    Attributes:
        config: Settings of the searches, which may change.
    """

    def __init__(self, package: Path, messages: Path, journal: Journal) -> None:
        self.config = SearchConfig()
        self._package = package
        self._messages = messages
        self._journal = journal
        self._search: _Search | None = None
        self._repeat_at: dict[_Conditions, float] = {}
        self._futile_ms = 0.0

    @property
    def budget_ms(self) -> float | None:
        """The target of the current search, in milliseconds; None if there is no search."""
        return None if self._search is None else self._search.budget_ms

    def goes_on(self, now: float) -> bool:
        """Return True if a search is in progress; log how one has ended since the last call.

        Args:
            now: Seconds of the monotonic clock.
        """
        if self._search is not None and (code := self._search.process.poll()) is not None:
            self._note_end(self._search, code, now)
        return self._search is not None

    def consider(self, outcome: IntervalOutcome, short_seconds: float) -> bool:
        """Begin a search if one is due.

        Args:
            outcome: The current decision, with no option that meets the targets.
            short_seconds: Seconds for which no option has met them.

        Returns:
            True while a search is in progress or pending.
        """
        situation = outcome.situation
        targets = situation.targets
        if not (self.config.enabled and outcome.pool) or targets.latency is None:
            return False
        budget_ms = targets.latency / situation.ratio
        conditions = rounded_down(budget_ms), targets.accuracy, targets.memory
        if situation.now < self._repeat_at.get(conditions, -inf) or budget_ms <= self._futile_ms:
            return False
        if short_seconds >= self.config.after and not situation.idle:
            self._repeat_at[conditions] = inf
            self._begin(budget_ms, conditions, situation.now)
        return True

    def stop(self) -> None:
        """Stop a search in progress, without changing the pool."""
        if self._search is not None:
            self._search.process.kill()
            self._search.process.wait()
            self._search = None

    def _begin(self, budget_ms: float, conditions: _Conditions, now: float) -> None:
        try:
            pool = SubnetPool.load(state_directory(self._package), open_current(self._package))
            if pool is None or not pool.entries:
                return
            with self._messages.open("wb") as messages:
                process = subprocess.Popen(  # noqa: S603 (Mistify itself)
                    _command(self._package, pool, budget_ms),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=messages,
                )
        except (MistifyError, OSError) as error:
            self._journal.problem(_ABOUT, f"the search for other subnets cannot start: {error}")
            self._repeat_at[conditions] = now + _RETRY_SECONDS
            return
        with suppress(OSError):  # it has already ended, or the system has no priorities
            os.setpriority(os.PRIO_PROCESS, process.pid, _NICE)
        self._search = _Search(process, budget_ms, conditions)
        reason = f"searching for other subnets within {format_time(budget_ms, _DIGITS)} on an idle device"
        self._journal.note("search", reason, budget_ms=float(f"{budget_ms:.6g}"), data=pool.data)

    def _note_end(self, search: _Search, code: int, now: float) -> None:
        """Log how a search has ended."""
        self._search = None
        if code == 0:
            self._journal.problem(_ABOUT, None)
            self._journal.note("search", "the search for other subnets has ended")
        else:
            if code == ErrorCode.INVALID_CONFIG.exit_code:
                self._futile_ms = max(self._futile_ms, search.budget_ms)
            else:
                self._repeat_at[search.conditions] = now + _RETRY_SECONDS
            reason = self._error() or f"the process ended with {code}"
            self._journal.problem(_ABOUT, f"no other subnets were found: {reason}")

    def _error(self) -> str:
        """Return the error message of a search as one line."""
        try:
            messages = self._messages.read_text(errors="replace")
        except OSError as error:
            return str(error)
        return " ".join(messages.rpartition("mistify: ")[2].split())


def _command(package: Path, pool: SubnetPool, budget_ms: float) -> list[str]:
    """Return the command for a search like the one for the pool, with another latency target."""
    options = {
        "--package": str(package),
        "--data": pool.data,
        "--latency": f"{budget_ms:.6f}ms",
        "--strategy": pool.strategy,
        "--threads": str(pool.entries[0].engine.threads),
    }
    return [*_MISTIFY, "adapt", *(word for option in options.items() for word in option)]

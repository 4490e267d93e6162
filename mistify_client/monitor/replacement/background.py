"""The background path: request a new package, and handle it until the end of its probation (paper 6)."""

import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Final

from mistify.config.porting import PortingConfig
from mistify.package.manifest import Manifest
from mistify.parsing.quantities import format_time
from mistify_client.monitor.config import ReplacementConfig
from mistify_client.monitor.replacement.access import RETRY, ServerAccess, passes, permanent
from mistify_client.monitor.replacement.candidate import try_candidate
from mistify_client.monitor.replacement.goals import Shortfall, new_goal
from mistify_client.monitor.replacement.ledger import Ledger, Phase, Replacement
from mistify_client.monitor.replacement.steps import ReplacementSteps, TrialRunner
from mistify_client.monitor.state.journal import Journal
from mistify_client.monitor.state.state import MonitorState
from mistify_client.rpc.porting import PortingClient
from mistify_client.rpc.retry import Backoff
from mistify_client.runtime.paged import RETRY_SECONDS
from mistify_client.runtime.trust import Trust

_ABOUT: Final = "new package"


class BackgroundReplacement:
    """Background thread that works on one replacement at a time; the phase is stored on disk.

    Args:
        package: The directory of the shipped package.
        state: The daemon's files.
        config: Settings of the background path.
        template: The template of new goals.
        journal: The log for phases and problems.
        retry: The delay after a failure; only attempts that cannot read or write are limited.
        run_trial: Tries a candidate next to the current package.
        trust: The keys by which a candidate has to be signed; None for any.

    Attributes:
        fastest_ms: Present latency of the fastest current option in milliseconds, set by the foreground path;
            None before the first measurement.
    """

    def __init__(
        self,
        package: Path,
        state: MonitorState,
        config: ReplacementConfig,
        template: PortingConfig,
        journal: Journal,
        *,
        trust: Trust | None = None,
        retry: Backoff = RETRY,
        run_trial: TrialRunner = try_candidate,
    ) -> None:
        self._config = config
        self._template = template
        self._journal = journal
        self._access = ServerAccess(config, PortingClient, retry)
        self._ledger = Ledger(state.replacement)
        self._steps = ReplacementSteps(
            package,
            state.candidate,
            config,
            connect=self._access.connected,
            keep=self._ledger.save,
            fastest_ms=lambda: self.fastest_ms,
            trust=trust,
            run_trial=run_trial,
        )
        self._thread: threading.Thread | None = None
        self._probation: list[tuple[float, float]] = []
        self._outdated_since: float | None = None
        self.fastest_ms: float | None = None

    @property
    def replacement(self) -> Replacement | None:
        """The current or most recent replacement; None if there was none."""
        return self._ledger.replacement

    def resume(self) -> None:
        """Start the thread if it has work and is not running; called in each interval."""
        replacement = self.replacement
        if replacement is None or self._steps.of(replacement.phase) is None:
            return
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._work, name="mistify-background", daemon=True)
            self._thread.start()

    def ask(self, shortfall: Shortfall, package: Manifest) -> None:
        """Request a package that meets the missed targets.

        Does nothing while another replacement is in progress, or if the same goal was requested before.

        Args:
            shortfall: The reason why no option fits.
            package: Manifest of the current version.
        """
        last = self.replacement
        if last is not None and not last.phase.ended:
            return
        with self._journal.noting_problems(_ABOUT):
            goal = new_goal(self._template, package, shortfall)
            if goal.id not in self._ledger.requested:
                job = self._config.job or (None if last is None else last.job)
                asked = Replacement(
                    goal=goal.id, config=goal.config, key=uuid.uuid4().hex, job=job, faster=shortfall.too_slow
                )
                self._advance(asked.at(Phase.SUBMITTING, goal.reason))

    def judge(self, now: float, fits: bool) -> None:
        """Judge a package on probation by the latency of its fastest option, `fastest_ms`.

        Args:
            now: Seconds of the monotonic clock.
            fits: True if an option meets the targets.
        """
        self._outdated_since = None
        replacement = self.replacement
        if replacement is None or replacement.phase is not Phase.PROBATION or self.fastest_ms is None:
            self._probation.clear()
            return
        if not self._probation or now - self._probation[0][0] < self._config.probation:
            self._probation.append((now, self.fastest_ms))
            return
        takes, before = median(taken for _, taken in self._probation), replacement.fastest_ms
        reason = f"its fastest option takes {format_time(takes, 3)}"
        if before is not None:
            reason += f", that of the previous package took {format_time(before, 3)}"
        worse = not fits and before is not None and takes > before
        with self._journal.noting_problems(_ABOUT):
            self._advance(replacement.at(Phase.ROLLING_BACK if worse else Phase.KEPT, reason))

    def judge_unused(self, ended: float) -> None:
        """Judge a package on probation that no app has run, although apps run inferences.

        Apps may be unable to load it. It is rolled back if apps have not run it after the delay until they
        retry loading it, plus the probation.

        Args:
            ended: End of the last inference of another version, in seconds of the monotonic clock.
        """
        replacement = self.replacement
        if replacement is None or replacement.phase is not Phase.PROBATION:
            return
        if self._outdated_since is None:
            self._outdated_since = ended
        if ended - self._outdated_since < RETRY_SECONDS + self._config.probation:
            return
        reason = "no app has loaded it: those that run inferences use another version; their logs say why"
        with self._journal.noting_problems(_ABOUT):
            self._advance(replacement.at(Phase.ROLLING_BACK, reason))

    def stop(self) -> None:
        """Stop the thread after a running trial or installation; the next daemon continues the work."""
        self._access.stop()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        failures = 0
        while not self._access.stopped and (replacement := self.replacement) is not None:
            step = self._steps.of(replacement.phase)
            if step is None:
                return
            with self._journal.noting_problems(_ABOUT) as problems:
                self._advance(self._apply(step, replacement, failures))
            failures = failures + 1 if problems else 0
            if problems:
                self._access.wait(failures)

    def _apply(
        self, step: Callable[[Replacement], Replacement], replacement: Replacement, failures: int
    ) -> Replacement:
        """Return the replacement after a step; rejected if the step failed permanently.

        A package is rolled back however long it takes to write.

        Args:
            failures: The number of consecutive failures before.
        """
        try:
            return step(replacement)
        except Exception as error:  # no failure of a package or a server may end the daemon
            if self._access.stopped:
                return replacement
            if passes(error, 0 if replacement.phase is Phase.ROLLING_BACK else failures):
                raise
            return self._steps.rejected(replacement, permanent(error, failures))

    def _advance(self, replacement: Replacement) -> None:
        if replacement == self.replacement:
            return
        self._ledger.save(replacement)
        fields = {"goal": replacement.goal, "job": replacement.job, "phase": replacement.phase.value}
        self._journal.note("replacement", replacement.reason, **fields)

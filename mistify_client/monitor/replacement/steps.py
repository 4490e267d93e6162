"""Steps of a replacement, one for each phase; a step interrupted by a crash is repeated."""

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import Goal, GoalState, Job, JobEvent
from mistify.package.opened import Package
from mistify.parsing.quantities import format_time
from mistify_client.monitor.config import ReplacementConfig
from mistify_client.monitor.installed import install_candidate, take_back
from mistify_client.monitor.replacement.access import tells_nothing
from mistify_client.monitor.replacement.candidate import Trial, try_candidate
from mistify_client.monitor.replacement.ledger import Phase, Replacement
from mistify_client.origin import note_token_file
from mistify_client.rpc.porting import PortingClient
from mistify_client.runtime.trust import Trust, check_trusted
from mistify_client.runtime.versions import state_directory

#: A trial may crash the daemon or fail to read the package; more trials would fail in the same way.
_MOST_TRIALS: Final = 3

TrialRunner = Callable[[Path, Path, Path | None], Trial]


class ReplacementSteps:
    """Steps of the background path; each returns the replacement in its next phase.

    A step raises `MistifyError` if the server is unreachable or rejects the request, or if the package is
    unusable, and `OSError` if a disk is full.

    Args:
        package: The directory of the shipped package.
        candidate: The download directory for a new package.
        config: Settings of the background path.
        connect: Returns a new client of the server for each step.
        keep: Writes a replacement to disk in the middle of a step.
        fastest_ms: Returns the present latency of the fastest current option in milliseconds; None if
            unknown.
        trust: The keys by which a candidate has to be signed; None for any.
        run_trial: Tries a candidate next to the current package.
    """

    def __init__(
        self,
        package: Path,
        candidate: Path,
        config: ReplacementConfig,
        *,
        connect: Callable[[], AbstractContextManager[PortingClient]],
        keep: Callable[[Replacement], None],
        fastest_ms: Callable[[], float | None],
        trust: Trust | None = None,
        run_trial: TrialRunner = try_candidate,
    ) -> None:
        self._package = package
        self._candidate = candidate
        self._config = config
        self._connect = connect
        self._keep = keep
        self._fastest_ms = fastest_ms
        self._trust = trust
        self._run_trial = run_trial
        self._steps = {
            Phase.SUBMITTING: self._submit,
            Phase.ADAPTING: self._adapt,
            Phase.DOWNLOADING: self._download,
            Phase.VALIDATING: self._validate,
            Phase.INSTALLING: self._install,
            Phase.ROLLING_BACK: self._roll_back,
        }

    def of(self, phase: Phase) -> Callable[[Replacement], Replacement] | None:
        """Return the step for a phase; None if the thread has no work in it."""
        return self._steps.get(phase)

    def rejected(self, replacement: Replacement, reason: str) -> Replacement:
        """Remove the downloaded package, and return the replacement as rejected."""
        shutil.rmtree(self._candidate, ignore_errors=True)
        return replacement.at(Phase.REJECTED, reason)

    def _submit(self, replacement: Replacement) -> Replacement:
        with self._connect() as client:
            job = self._added(client, replacement) or client.submit(replacement.config, replacement.key)
        return replacement.at(Phase.ADAPTING, f"submitted to job {job.id}", job=job.id)

    def _added(self, client: PortingClient, replacement: Replacement) -> Job | None:
        """Add the goal to its job; return None if there is no job, or the previous goal's job was removed."""
        if replacement.job is None:
            return None
        try:
            return client.add_goals(replacement.job, replacement.config)
        except MistifyError as error:
            if error.code is not ErrorCode.NOT_FOUND or self._config.job is not None:
                raise
            return None

    def _adapt(self, replacement: Replacement) -> Replacement:
        """Wait until the server has finished the goal."""
        job_id = str(replacement.job)
        with self._connect() as client:
            for event in client.watch(job_id):
                if _ends(event, replacement.goal):
                    break
            job = client.job(job_id)
        goal = _goal(job, replacement.goal)
        outcome = f"the goal is {goal.state.value}" + (f": {goal.reason}" if goal.reason else "")
        if goal.files:
            return replacement.at(Phase.DOWNLOADING, outcome)
        if goal.state.ended or job.state.ended:
            return self.rejected(replacement, f"{outcome}, and has no package")
        raise MistifyError(
            ErrorCode.UNAVAILABLE, f"the server no longer reports on job {job_id}, which is still running"
        )

    def _download(self, replacement: Replacement) -> Replacement:
        with self._connect() as client:
            client.fetch_without_blocks(str(replacement.job), replacement.goal, self._candidate)
        note_token_file(state_directory(self._package), self._config.server, self._config.token_file)
        return replacement.at(Phase.VALIDATING, "downloaded")

    def _validate(self, replacement: Replacement) -> Replacement:
        """Try the candidate next to the current package: verify, run, compare and measure it."""
        if replacement.trials >= _MOST_TRIALS:
            return self.rejected(
                replacement, f"{replacement.trials} trials have begun, and none has succeeded"
            )
        counted = replacement.model_copy(update={"trials": replacement.trials + 1})
        self._keep(counted)
        try:
            check_trusted(Package.open(self._candidate), self._trust)
            trial = self._run_trial(self._candidate, self._package, self._config.examples)
        except Exception as error:
            if tells_nothing(error):  # the daemon did not crash, and the trial has not taken place
                self._keep(replacement)
            raise
        figures = (
            f"an inference takes {format_time(trial.candidate_ms, 3)}, "
            f"{format_time(trial.running_ms, 3)} with the current package"
        )
        if trial.agreement is not None:
            figures += f"; both agree on {trial.agreement:.0%} of the examples"
            if trial.agreement < self._config.agreement:
                return self.rejected(counted, f"{figures}, which is below {self._config.agreement:.0%}")
        if counted.faster and trial.candidate_ms >= trial.running_ms:
            return self.rejected(counted, f"not faster: {figures}")
        return counted.at(Phase.INSTALLING, figures, fastest_ms=self._fastest_ms())

    def _install(self, replacement: Replacement) -> Replacement:
        install_candidate(self._package, self._candidate, replacement.job, replacement.goal)
        return replacement.at(Phase.PROBATION, "installed")

    def _roll_back(self, replacement: Replacement) -> Replacement:
        take_back(self._package, replacement.job, replacement.goal)
        return replacement.at(Phase.ROLLED_BACK, replacement.reason)


def _ends(event: JobEvent, goal_id: str) -> bool:
    return event.goal_id == goal_id and isinstance(event.event, GoalState) and event.event.ended


def _goal(job: Job, goal_id: str) -> Goal:
    for goal in job.goals:
        if goal.id == goal_id:
            return goal
    raise MistifyError(ErrorCode.NOT_FOUND, f"job {job.id} has no goal {goal_id}")

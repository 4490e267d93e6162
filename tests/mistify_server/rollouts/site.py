"""A store with roll-outs on a manual clock, and devices that tests make up."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from mistify.fleet import DeviceStatus
from mistify.jobs.job import GoalState, JobState, PackageFile
from mistify.rollouts import Instruction, RolloutProgress
from mistify_server.fleet import Fleet
from mistify_server.rollouts.service import RolloutService
from mistify_server.store.directory import Store, open_store
from tests.support.filled_store import put_job
from tests.support.fleets import JOB
from tests.support.many_goals import job_of

#: The digest of the manifest of the package `phone-2`.
DIGEST: Final = "5" * 64


class Site:
    """A store with a job of two packages, its roll-outs on a manual clock, and devices."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.now = datetime(2026, 11, 29, tzinfo=UTC)
        self.open()
        first, *_ = job_of(3).goals
        files = (PackageFile("manifest.json", 100, DIGEST),)
        goals = (
            replace(first, id="phone-2", files=files, state=GoalState.MET),
            replace(first, id="phone-3", files=(replace(files[0], sha256="6" * 64),)),
            replace(first, id="none", files=(), state=GoalState.FAILED),
        )
        put_job(self.store, replace(job_of(1), id=JOB, goals=goals, state=JobState.DONE))

    def open(self) -> None:
        self.opened = open_store(self.directory)
        self.store: Store = self.opened.__enter__()
        self.fleet = Fleet(self.store.fleet, lambda: self.now)
        self.service = RolloutService(self.store.rollouts, self.store.jobs, self.fleet, lambda: self.now)

    def close(self) -> None:
        self.fleet.write()
        self.opened.__exit__(None, None, None)

    def restart(self) -> None:
        self.close()
        self.open()

    def report(self, *statuses: DeviceStatus) -> list[Instruction]:
        """Return what devices learn in response to their reports."""
        for status in statuses:
            self.fleet.report(status)
        return [self.service.instruction(status) for status in statuses]

    def wanting(self, statuses: Sequence[DeviceStatus]) -> list[str]:
        """Return the names of the devices that are instruction to install a package."""
        instruction = zip(statuses, self.report(*statuses), strict=True)
        return [status.name for status, instruction in instruction if instruction.wanted is not None]

    def tick(self, seconds: float = 1.0) -> None:
        self.now += timedelta(seconds=seconds)
        self.service.advance()

    def get(self, progress: RolloutProgress) -> RolloutProgress:
        return self.service.get(progress.rollout.id)

"""The state of a server, collected on each Prometheus scrape."""

import shutil
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from typing_extensions import override

from mistify.jobs.job import GoalState, JobState
from mistify_server.engines.base import TaskEngine
from mistify_server.identity.tenants import ByTenant
from mistify_server.jobs.inspection_turns import InspectionTurns
from mistify_server.jobs.running_jobs import RunningJobs
from mistify_server.store.jobs import JobStore
from mistify_server.store.tenant_uploads import kept_bytes
from mistify_server.store.uploads import Uploads

_State = TypeVar("_State", bound=Enum)


class ServerState(Collector):
    """Jobs and goals of all tenants by state, the queue, the workers, uploads and the disk.

    Args:
        directory: The store's directory, for the space on its disk.
        engine: The engine that runs the workers.
        turns: The turns of inspections.
    """

    def __init__(
        self,
        directory: Path,
        store: JobStore,
        jobs: RunningJobs,
        engine: TaskEngine,
        uploads: ByTenant[Uploads],
        *,
        turns: InspectionTurns,
    ) -> None:
        self._directory = directory
        self._store = store
        self._jobs = jobs
        self._turns = turns
        self._engine = engine
        self._uploads = uploads

    @override
    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        jobs, goals = self._store.states()
        yield _by_state("mistify_jobs", "Jobs in the store", JobState, jobs)
        yield _by_state("mistify_goals", "Goals of the jobs in the store", GoalState, goals)
        load = self._engine.load
        yield GaugeMetricFamily(
            "mistify_queue_length",
            "Job steps and inspections waiting for a worker",
            load.waiting + self._jobs.waiting + self._turns.waiting,
        )
        yield GaugeMetricFamily("mistify_slots", "Maximum number of concurrent tasks", self._engine.slots)
        yield GaugeMetricFamily("mistify_workers", "Workers that are alive", load.alive)
        yield GaugeMetricFamily("mistify_workers_busy", "Workers with a task", load.busy)
        yield CounterMetricFamily("mistify_workers_lost", "Workers that died with a task", load.lost)
        yield CounterMetricFamily(
            "mistify_upload_received_bytes",
            "Bytes of models and data received",
            sum(uploads.received for uploads in self._uploads.all()),
        )
        yield GaugeMetricFamily(
            "mistify_uploads_bytes", "Bytes of stored models and data", kept_bytes(self._uploads)
        )
        yield GaugeMetricFamily("mistify_database_bytes", "Size of the store's database", self._store.size())
        yield GaugeMetricFamily(
            "mistify_store_free_bytes",
            "Free space on the store's disk",
            shutil.disk_usage(self._directory).free,
        )


def _by_state(
    name: str, documentation: str, states: type[_State], counts: Mapping[_State, int]
) -> GaugeMetricFamily:
    """Return the number in each state, including zeros."""
    family = GaugeMetricFamily(name, documentation, labels=("state",))
    for state in states:
        family.add_metric((state.value,), counts.get(state, 0))
    return family

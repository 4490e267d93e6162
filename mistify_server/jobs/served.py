"""The tasks that the batches of a job serve, once an algorithm has prepared for all of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mistify.jobs.job import Job
from mistify.scenarios.served import ServedTasks
from mistify_server.planning.snapshot import common_of
from mistify_server.store.directory import Store


@dataclass(frozen=True)
class ServedBatch:
    """A batch of a job whose goals can have any of many tasks, without a preparation of their own.

    Attributes:
        common: Model, data and algorithm, as in the configs of its goals.
        tasks: The tasks, with the expected quality and costs of their networks.
    """

    number: int
    common: Mapping[str, object]
    tasks: ServedTasks


def serves_tasks(job: Job) -> bool:
    """Check whether an algorithm has prepared for all tasks of a job at once, not for each one by itself."""
    prepared = {(source.batch, name) for source in job.sources for name in source.preparing_steps}
    return any(goal.spec.task is not None and (goal.batch, goal.algorithm) in prepared for goal in job.goals)


def served_batches(store: Store, job_id: str) -> Iterator[ServedBatch]:
    """Yield the batches of a job that serve tasks, in order; none before they are prepared.

    Raises:
        MistifyError: NOT_FOUND, there is no such job; CORRUPT_PACKAGE, a file of the store is damaged.
    """
    for state in store.jobs.batches(job_id):
        for preparation in state.preparations.values():
            if preparation.served is not None:
                content = store.artifacts.intact(preparation.served).read_bytes()
                tasks = ServedTasks.model_validate_json(content)
                yield ServedBatch(state.plan.number, common_of(state.plan), tasks)

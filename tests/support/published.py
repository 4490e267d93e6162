"""Packages in the store of a server, as if a job had made them."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from mistify.jobs.job import GoalState, JobState, PackageFile
from mistify.package.manifest import Manifest
from mistify.package.records import describe_file
from mistify_server.identity.callers import DEFAULT_TENANT
from mistify_server.store.directory import open_store
from tests.support.filled_store import put_job
from tests.support.many_goals import job_of


def publish(store: Path, job_id: str, packages: Iterable[Path], tenant: str = DEFAULT_TENANT) -> None:
    """Store a job of a tenant whose goals have these packages; the server signs them when it starts.

    The manifests of the packages are changed: they get the name of the directory as their goal.
    """
    template, *_ = job_of(1).goals
    goals = []
    with open_store(store) as whole:
        opened = whole.of(tenant)
        for package in packages:
            manifest = Manifest.load(package).model_copy(update={"job": job_id, "goal": package.name})
            manifest.save(package)
            files = []
            for path in sorted(package.iterdir()):
                opened.artifacts.put(path)
                described = describe_file(path)
                files.append(PackageFile(path.name, described.size, described.sha256))
            goals.append(replace(template, id=package.name, state=GoalState.MET, files=tuple(files)))
        put_job(opened, replace(job_of(1), id=job_id, goals=tuple(goals), state=JobState.DONE))

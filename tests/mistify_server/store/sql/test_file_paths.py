"""A store that has moved, such as a served backup, refers to the files where they are now."""

from pathlib import Path

from mistify.jobs.job import Goal, Job, JobState
from mistify.jobs.package_spec import PackageSpec
from mistify_server.store.changes import RootSaved, Submission
from mistify_server.store.directory import locked_backend, open_store_as_server
from mistify_server.store.plans import BatchPlan, BatchState
from mistify_server.tasks.results import SourceResult
from mistify_server.tasks.sources import DataSource, ModelSource

JOB = Job("j", JobState.QUEUED, (Goal(id="a", batch=0, spec=PackageSpec({"flops": 1.0})),), created_unix_ms=5)


def batch_of(directory: Path) -> BatchState:
    """Return the batch of the only job, as the next server reads it."""
    with (
        locked_backend(directory) as backend,
        open_store_as_server(directory, 1.0, backend) as store,
    ):
        (state,) = store.jobs.batches("j")
        return state


def test_jobs_continue_with_the_files_of_a_store_that_has_moved(directory: Path, plan: BatchPlan) -> None:
    new = directory.with_name('moved "ü"')
    files = ("artifacts/11/model.keras", "uploads/named/22/train.csv")
    model, train = (str(directory / file) for file in files)
    elsewhere = f"{directory}-of-another/train.csv"
    recipe = plan.recipe.model_copy(
        update={
            "model": ModelSource(path=model),
            "data": DataSource(train=train, test=elsewhere),
        }
    )
    root = SourceResult(
        source_costs={},
        source_accuracy=0.5,
        teacher="33.keras",
        teacher_accuracy=0.5,
        root="33.keras",
        root_costs={},
        steps=1,
        data=recipe.data,
    )
    with (
        locked_backend(directory) as backend,
        open_store_as_server(directory, 1.0, backend) as store,
    ):
        store.jobs.create(Submission(JOB, [plan.model_copy(update={"recipe": recipe})], "[]", None))
        store.jobs.record("j", [RootSaved(0, root)], 0.0, {})
    assert batch_of(directory).plan.recipe == recipe
    for before, place in ((directory, new), (new, directory)):
        before.rename(place)
        state = batch_of(place)
        assert state.root is not None
        assert state.root.data is not None
        assert state.plan.recipe.model.path == str(place / files[0])
        assert [state.plan.recipe.data.train, state.root.data.train] == [str(place / files[1])] * 2
        assert [state.plan.recipe.data.test, state.root.data.test] == [elsewhere] * 2

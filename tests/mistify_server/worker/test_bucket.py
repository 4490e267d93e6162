"""Tasks of a job on machines without a shared disk."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from executors.readers.builtin import read_builtin
from mistify.uploads import UploadName
from mistify_server.store.artifacts import Artifacts
from mistify_server.store.objects.binding import opened_artifacts
from mistify_server.store.upload_directories import UPLOADS
from mistify_server.store.uploads import Uploads
from mistify_server.tasks.sources import DataSource, ModelSource
from mistify_server.tasks.tasks import AdaptTask, InspectTask, SourceTask
from mistify_server.worker.runner import TaskRunner
from tests.mistify_server.digits_tasks import recipe, saved_source, taught
from tests.support.buckets import BucketServer, with_bucket
from tests.support.sent import send


def uploaded(path: Path, store: Path, artifacts: Artifacts) -> Path:
    """Upload a file to the server, and return its path there."""
    uploads = Uploads(store / UPLOADS, 1e9, set, share=artifacts.share)
    file = send(uploads, path.read_bytes())
    return uploads.find(UploadName(file.sha256, path.name))


def test_a_machine_gets_the_model_the_data_and_what_others_made_of_them(
    bucket_server: BucketServer, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    artifacts = with_bucket(bucket_server.new_bucket(), store)
    named = artifacts.put(Path(str(saved_source(tmp_path).path)))
    model = ModelSource(path=str(artifacts.path(named)))
    np.savez(tmp_path / "photos.npz", x=read_builtin("builtin:digits-train")["x"][:200])
    photos = uploaded(tmp_path / "photos.npz", store, artifacts)
    data = DataSource(unlabelled=str(photos), labelled=False)

    def run(task: Any) -> Any:
        """Run a task on another machine, with the same path of its store."""
        for part in ("artifacts", "uploads"):
            shutil.rmtree(store / part)
        return TaskRunner(opened_artifacts(store), lambda _: None).run(task)

    metric = run(InspectTask(recipe=recipe(model, data=data))).metric
    data = data.model_copy(update={"settings": data.settings.model_copy(update={"metric": metric})})
    root = run(SourceTask(recipe=recipe(model, data=data), exceed={}))
    assert set(root.data.answered) == {"train", "test"}
    adapted = run(
        AdaptTask(
            recipe=taught(root.teacher, model=model, data=root.data),
            parent=root.root,
            budget={"flops": root.root_costs["flops"] * 0.7},
        )
    )
    assert adapted.costs["flops"] <= root.root_costs["flops"] * 0.7
    assert {root.root, root.teacher, adapted.checkpoint} <= set(opened_artifacts(store).names())

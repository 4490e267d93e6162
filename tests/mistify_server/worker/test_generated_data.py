"""Source tasks with generated data."""

from pathlib import Path

import numpy as np

from mistify.jobs.job import ProgressUpdate
from mistify_server.store.artifacts import artifacts_of
from mistify_server.tasks.results import SourceResult
from mistify_server.tasks.sources import DataSource
from mistify_server.tasks.tasks import SourceTask
from mistify_server.worker.runner import TaskRunner
from tests.mistify_server.digits_tasks import COMMON, recipe, saved_source


def test_generating_reports_progress_and_training_data_is_mixed(tmp_path: Path) -> None:
    updates: list[ProgressUpdate] = []
    runner = TaskRunner(artifacts_of(tmp_path), updates.append)
    common = {**COMMON, "data": DataSource(train="generated:6", test="generated:4", labelled=False)}
    result = runner.run(SourceTask(recipe=recipe(saved_source(tmp_path), **common), exceed={}))
    assert isinstance(result, SourceResult)
    assert result.data is not None
    for part, examples in (("train", 48), ("test", 4)):
        reported = [update for update in updates if update.stage == f"generating {part} data"]
        assert (reported[0].step, reported[0].total_steps) == (0, reported[-1].total_steps)
        assert reported[-1].total_steps >= 10
        with np.load(result.data.answered[part]) as arrays:
            assert {len(array) for array in arrays.values()} == {examples}
    assert "generating" in result.spent

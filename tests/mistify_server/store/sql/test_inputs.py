"""The inputs of a job's batches are those of their plans."""

from pathlib import Path

import pytest

from mistify.errors import MistifyError
from mistify_server.planning.snapshot import common_of
from mistify_server.store.directory import open_store
from mistify_server.store.plans import BatchInputs
from tests.support.stored import digits_job


def test_inputs_are_read_without_the_rest_of_the_plans(tmp_path: Path) -> None:
    job = digits_job(tmp_path)
    with open_store(tmp_path) as store:
        plans = [state.plan for state in store.jobs.batches(job.id)]
        assert plans[0].dataset.train == "builtin:digits-train"
        expected = [
            BatchInputs(plan.model_name, plan.dataset, plan.recipe.algorithm, plan.recipe.settings)
            for plan in plans
        ]
        inputs = store.jobs.inputs(job.id)
        assert inputs == expected
        assert [batch.common for batch in inputs] == [common_of(plan) for plan in plans]
        with pytest.raises(MistifyError, match='no job "none"'):
            store.jobs.inputs("none")

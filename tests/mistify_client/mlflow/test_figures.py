"""Names of parameters, metrics and tags, which MLflow has to accept."""

from hypothesis import given
from hypothesis import strategies as st
from mlflow.entities import RunStatus
from mlflow.utils.validation import _validate_metric_name, _validate_param_name, _validate_tag_name

from mistify.jobs.job import GoalState, JobState
from mistify_client.mlflow.figures import goal_params, job_tags, metric_name
from mistify_client.mlflow.runs import STATUS


@given(st.lists(st.text(min_size=1), min_size=1, max_size=3).map("/".join))
def test_any_name_becomes_a_name_of_a_metric(name):
    _validate_metric_name(metric_name(name))


def test_every_state_is_a_status_that_ends_a_run_if_the_state_is_final():
    for state in (*JobState, *GoalState):
        assert RunStatus.is_terminated(STATUS[state.value]) == state.ended, state


def test_allowed_names_stay_as_they_are():
    assert metric_name("outputs/the boxes-1.0/mse") == "outputs/the boxes-1.0/mse"


@given(st.lists(st.text(min_size=1)))
def test_any_tag_of_a_job_is_allowed(words):
    job = {"job": "job-1", "tags": words, "state": "done"}
    for name in job_tags(job):
        _validate_tag_name(name)


@given(st.text(min_size=1), st.text(min_size=1))
def test_any_axis_and_output_become_names_of_parameters(axis, output):
    goal = {
        "batch": 0,
        "algorithm": None,
        "parent": None,
        "quantization": {"precision": "none", "inputs": "float32"},
        "hardware": "host",
        "threads": 1,
        "budget": {axis: 1.0},
        "targets": [{"output": output, "metric": "mse", "value": 0.5}],
        "compression": None,
        "exits": None,
        "task": None,
    }
    for name in goal_params({"sources": []}, goal, {0: {"seed": 3}}):
        _validate_param_name(name)

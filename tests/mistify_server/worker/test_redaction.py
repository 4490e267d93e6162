"""Error messages of failed tasks do not contain the server's directories."""

from pathlib import Path

import pytest

from mistify.errors import Problem
from mistify_server.tasks.results import Inspection, PrepareResult, Result, TaskFailure
from mistify_server.tasks.sources import DataSource, ModelSource
from mistify_server.tasks.tasks import InspectTask
from mistify_server.worker.redaction import redacted
from tests.mistify_server.digits_tasks import recipe

TASK = InspectTask(
    recipe=recipe(
        ModelSource(path="/srv/models/net.keras"),
        data=DataSource(train="/srv/data/photos/train", test="/srv/data/photos/test"),
    )
)
STORE = Path("/var/lib/mistify")


def shown(result: Result) -> Result:
    return redacted(result, TASK, [STORE])


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("/srv/data/photos/train cannot be used", "train cannot be used"),
        (
            "File not found: filepath=/var/lib/mistify/artifacts/ab/c.keras.",
            "File not found: filepath=artifacts/ab/c.keras.",
        ),
        (
            "got '/m/0dgw9r'; expected one of the training data's",
            "got '/m/0dgw9r'; expected one of the training data's",
        ),
        ("1/2 of it", "1/2 of it"),
    ],
)
def test_messages_contain_only_file_names(message: str, expected: str) -> None:
    problem = Problem(message, message, "one", "correct it")
    failure = shown(TaskFailure(code="INTERNAL", message=message, problems=(problem,)))
    assert isinstance(failure, TaskFailure)
    assert failure.message == expected
    assert (failure.problems[0].place, failure.problems[0].value) == (expected, expected)
    inspection = shown(Inspection(costs={}, floor={}, problems=(problem,)))
    assert isinstance(inspection, Inspection)
    assert inspection.problems == failure.problems


def test_other_results_are_not_changed() -> None:
    done = PrepareResult(prepared="/var/lib/mistify/x", steps=0)
    assert shown(done) is done

"""Tasks that a model or an algorithm cannot serve, and how classes are written in plans."""

from typing import Any

import pytest

from executors.contract.params import Params
from executors.contract.profile import AlgorithmProfile, unprepared
from mistify.config.porting import PortingConfig
from mistify.config.task import TaskConfig
from mistify_server.planning.tasks import canonical_task, unserved_tasks
from mistify_server.tasks.estimates import EdgeEstimates, NetworkFeatures
from mistify_server.tasks.results import Inspection

ANIMALS = ("cat", "bird", "dog", "frog")


def inspected(
    classes: tuple[str, ...] | None = ANIMALS, *, serves: bool = False, prepares: bool = True
) -> Inspection:
    profile: AlgorithmProfile = unprepared(Params(), None)
    changes = {"serves_tasks": serves, "preparation": (100,) if serves and prepares else ()}
    return Inspection(
        costs={"flops": 10.0},
        floor={},
        classes=classes,
        estimates=EdgeEstimates(
            features=NetworkFeatures(model="", kind="", blocks=0),
            source_steps=0,
            profiles={"chosen": profile.model_copy(update=changes)},
            scaled=(),
        ),
    )


def problems(inspection: Inspection, task: Any, dataset: dict[str, str] | None = None) -> list[str]:
    files = {"train": "t.npz", "test": "t.npz"}
    config = PortingConfig.model_validate(
        {
            "id": "half",
            "model": "net",
            "dataset": files | (dataset or {}),
            "task": task,
            "algorithm": "chosen",
            "adaptation_goal": {"FLOP": "0.5x"},
        }
    )
    return [str(problem) for problem in unserved_tasks(3, config, inspection)]


@pytest.mark.parametrize("task", [None, {"classes": ["cat", "dog"]}, {"classes": [1, "frog"]}])
def test_any_algorithm_serves_classes_of_the_model(task: Any) -> None:
    assert problems(inspected(), task) == []
    assert problems(inspected(None), task) == []


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (
            {"classes": ["cat", "fog"]},
            '[3].task.classes[1]: got "fog"; expected one of bird, cat, dog, frog; did you mean "frog"?',
        ),
        (
            {"classes": ["cat", "dog", "0"]},
            '[3].task.classes[2]: got "0"; expected a class other than "cat"; leave it out',
        ),
        (
            {"classes": ["cat", 4]},
            '[3].task.classes[1]: got "4"; expected one of bird, cat, dog, frog; '
            "remove it or use a known name",
        ),
    ],
)
def test_classes_that_the_model_lacks_are_refused(task: Any, expected: str) -> None:
    assert problems(inspected(), task) == [expected]


def test_a_model_without_classes_has_none_to_choose_from() -> None:
    assert problems(inspected(()), {"classes": ["cat", "dog"]}) == [
        '[3].task.classes: got ["cat", "dog"]; expected no classes: the model has not one output of classes, '
        'made by its last layer; leave "task" out'
    ]


def test_properties_need_an_algorithm_that_serves_tasks() -> None:
    dataset = {"tasks": "tasks.json"}
    assert problems(inspected(), ["odd"], dataset)[0].startswith(
        '[3].task: got "odd"; expected no properties with the algorithm chosen, which serves no single task '
        'of many; leave "task" out'
    )
    assert problems(inspected(serves=True), ["odd"], dataset) == []


def test_an_algorithm_that_serves_tasks_needs_one() -> None:
    (problem,) = problems(inspected(serves=True), None)
    assert problem.startswith("[3].task: got nothing; expected a task, as chosen makes a network for each")
    assert problems(inspected(serves=True), {"classes": ["cat", "dog"]}) == []


def test_an_algorithm_that_serves_tasks_needs_units_to_choose_from() -> None:
    """Without any, its network would answer everything that the source does, and no single task."""
    assert problems(inspected(serves=True, prepares=False), {"classes": ["cat", "dog"]}) == [
        "[3].algorithm: got chosen for a model with too few units; expected a model with enough units inside "
        'its blocks for tasks to choose from; write another algorithm, or leave "algorithm" out'
    ]


@pytest.mark.parametrize("classes", [("frog", "cat"), ("cat", "frog"), ("3", "cat"), ("0", "3")])
def test_plans_have_classes_by_name_in_the_order_of_the_model(classes: tuple[str, ...]) -> None:
    assert canonical_task(TaskConfig(classes=classes), ANIMALS) == TaskConfig(classes=("cat", "frog"))


def test_classes_of_one_name_go_by_their_numbers() -> None:
    birds_and_machines = ("crane", "drill, power", "crane", "drill")
    task = canonical_task(TaskConfig(classes=("2", "drill, power")), birds_and_machines)
    assert task == TaskConfig(classes=("drill, power", "2"))
    assert problems(inspected(birds_and_machines), {"classes": ["2", "drill, power"]}) == []
    (problem,) = problems(inspected(birds_and_machines), {"classes": ["crane", "drill"]})
    assert problem.startswith('[3].task.classes[0]: got "crane"; expected a class by its number, as several')

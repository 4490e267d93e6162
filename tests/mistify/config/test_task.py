"""The task of a config: its forms, lists of tasks in short goals, and tasks that cannot be."""

import json
from typing import Any

import pytest
from pydantic import TypeAdapter

from mistify.config.porting import PortingConfig
from mistify.config.reading import OF_ANY_JOB, collective_batches, parse_batch
from mistify.config.task import TaskConfig
from mistify.errors import MistifyError

PLAIN = {"train": "train.npz", "test": "test.npz"}
WITH_TASKS = {**PLAIN, "tasks": "tasks.json"}
CLASSES = {"classes": ["cat", "dog", "frog"]}


def goal(**values: Any) -> dict[str, Any]:
    return {"id": "a", "model": "net", "dataset": PLAIN, "adaptation_goal": {"FLOP": "0.5x"}} | values


def parsed(file: Any) -> tuple[PortingConfig, ...]:
    return parse_batch(json.dumps(file))


def problems(file: Any) -> list[str]:
    with pytest.raises(MistifyError) as caught:
        parsed(file)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("written", "task", "shown"),
    [
        (["exactly:2", "odd"], TaskConfig(properties=("exactly:2", "odd")), "exactly:2, odd"),
        ("exactly:2,odd", TaskConfig(properties=("exactly:2", "odd")), "exactly:2, odd"),
        ("two-odd", TaskConfig(properties=("two-odd",)), "two-odd"),
        (["has", 7], TaskConfig(properties=("has", "7")), "has, 7"),
        (CLASSES, TaskConfig(classes=("cat", "dog", "frog")), "classes cat, dog, frog"),
        ({"classes": [3, 5]}, TaskConfig(classes=("3", "5")), "classes 3, 5"),
    ],
)
def test_forms_of_a_task(written: Any, task: TaskConfig, shown: str) -> None:
    (config,) = parsed([goal(task=written, dataset=WITH_TASKS if task.properties else PLAIN)])
    assert config.task == task
    assert str(task) == shown
    kind = TypeAdapter(TaskConfig)
    assert kind.validate_json(kind.dump_json(task)) == task


def test_tasks_of_goals_that_are_added_to_a_job_are_left_to_the_server() -> None:
    raw = {"id": "a", "task": ["odd"], "adaptation_goal": {"FLOP": "0.5x"}}
    (config,) = parse_batch(json.dumps(raw), common=OF_ANY_JOB)
    assert config.task == TaskConfig(properties=("odd",))


def test_goals_of_several_tasks_are_one_batch() -> None:
    configs = parsed([goal(task=CLASSES), goal(id="b"), goal(id="c", task={"classes": [0, 1]})])
    assert [len(batch.configs) for batch in collective_batches(configs)] == [3]


def test_a_list_of_tasks_makes_a_goal_of_each() -> None:
    file = {
        "defaults": {
            "id": "{task}-{FLOP}",
            "model": "net",
            "dataset": WITH_TASKS,
            "tasks": [["exactly:2", "odd"], "has-7"],
        },
        "goals": [
            {"adaptation_goal": {"FLOP": ["0.5x", "0.2x"]}},
            {"task": ["has", "1"], "adaptation_goal": {"FLOP": "0.1x"}},
        ],
    }
    assert [(config.id, str(config.task)) for config in parsed(file)] == [
        ("exactly-2-odd-0.5x", "exactly:2, odd"),
        ("exactly-2-odd-0.2x", "exactly:2, odd"),
        ("has-7-0.5x", "has-7"),
        ("has-7-0.2x", "has-7"),
        ("has-1-0.1x", "has, 1"),
    ]


def test_goals_of_a_list_are_named_by_their_tasks() -> None:
    (first, second) = parsed([goal(id="net", tasks=[CLASSES, {"classes": [1, 2]}])])
    assert (first.id, second.id) == ("net-cat-dog-frog", "net-1-2")
    assert first.task == TaskConfig(classes=("cat", "dog", "frog"))


def test_problems_of_listed_tasks_are_at_their_places() -> None:
    file = [goal(id="{task}", tasks=[CLASSES, {"classes": ["cat", "cat"]}, {"class": []}])]
    assert [problem.partition(": ")[0] for problem in problems(file)] == [
        "[0].tasks[1].classes[1]",
        "[0].tasks[2].class",
    ]


def test_a_goal_has_one_task_or_a_list() -> None:
    (problem,) = problems([goal(task=CLASSES, tasks=[CLASSES])])
    assert problem.startswith('[0].tasks: got the key "tasks"; expected one of ')


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            {"task": {"classes": ["cat"]}},
            '[0].task.classes: got ["cat"]; expected at least two classes to tell apart; add another one',
        ),
        (
            {"task": {"classes": ["cat", "dog", "cat"]}},
            '[0].task.classes[2]: got "cat"; expected each class once; leave it out',
        ),
        ({"task": []}, '[0].task: got []; expected either properties or "classes"; for example'),
        ({"task": ["odd", ""]}, '[0].task[1]: got ""; expected a text of 1 to 64 printable characters'),
        ({"task": {"classes": ["cat", 1.0]}}, "[0].task.classes[1]: got 1.0; expected a text"),
        (
            {"task": {**CLASSES, "properties": ["odd"]}, "dataset": WITH_TASKS},
            '[0].task: got {"properties": ["odd"], "classes": ["cat", "dog", "frog"]}; expected either ',
        ),
        (
            {"task": ["exactly:2", "odd"]},
            '[0].task: got "exactly:2, odd"; expected data that answer tasks, whose properties are in a file '
            'named by "dataset.tasks"; add "tasks": "tasks.json" to "dataset", or leave "task" out',
        ),
        (
            {"dataset": WITH_TASKS},
            "[0].task: got null; expected a task with properties, as the "
            "data answer one task or another; add a task",
        ),
        (
            {"dataset": WITH_TASKS, "task": CLASSES},
            '[0].task: got "classes cat, dog, frog"; expected a task with properties',
        ),
        (
            {"task": CLASSES, "branches": {"count": 2}, "tuning": {"trainable": "head"}},
            '[0]: got {"task": "classes cat, dog, frog", "branches": 2, "tuning": "head"}; expected a task '
            "without branches, tuning on the device, or training for int8; "
            'leave out "task", or "branches" and "tuning"',
        ),
        (
            {"task": CLASSES, "quantization": "int8-qat"},
            '[0]: got {"task": "classes cat, dog, frog", "quantization": "int8-qat"}; '
            "expected a task without branches",
        ),
    ],
)
def test_tasks_that_cannot_be_are_refused(values: dict[str, Any], expected: str) -> None:
    found = problems([goal(**values)])
    assert any(problem.startswith(expected) for problem in found), found

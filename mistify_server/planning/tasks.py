"""Tasks of goals: tasks that a model or an algorithm cannot serve, and the canonical form of tasks."""

from collections.abc import Iterator, Sequence

from executors.contract.algorithm import built_in
from mistify.config.porting import PortingConfig
from mistify.config.task import TaskConfig
from mistify.errors import Problem
from mistify.parsing.validation import InvalidValue
from mistify.scenarios.classes import class_numbers, class_texts
from mistify_server.tasks.results import Inspection


def unserved_tasks(index: int, config: PortingConfig, inspection: Inspection) -> Iterator[Problem]:
    """Yield a problem for a missing task, or for a task that the algorithm or the model cannot serve.

    Args:
        index: Number of the config in its batch.
    """
    profiles = inspection.estimates.profiles if inspection.estimates else {}
    algorithm, task = config.algorithm.name, config.task
    serves = algorithm in profiles and profiles[algorithm].serves_tasks
    if serves and task is None:
        example = '"task": {"classes": ["cat", "dog"]}'
        expected = f"a task, as {algorithm} makes a network for each one of them"
        yield Problem(f"[{index}].task", "nothing", expected, f"add a task, for example {example}")
    elif serves and not profiles[algorithm].prepares:
        expected = "a model with enough units inside its blocks for tasks to choose from"
        fix = 'write another algorithm, or leave "algorithm" out'
        yield Problem(f"[{index}].algorithm", f"{algorithm} for a model with too few units", expected, fix)
    elif profiles and not serves and task is not None and task.properties:
        serving = [name for name, known in built_in().items() if known.serves_tasks]
        use = f', or write "algorithm": "{serving[0]}"' if serving else ""
        expected = f"no properties with the algorithm {algorithm}, which serves no single task of many"
        yield InvalidValue(str(task), expected, f'leave "task" out{use}').problem(f"[{index}].task")
    if task is not None and task.classes and inspection.classes is not None:
        yield from _unknown_classes(task, inspection.classes, f"[{index}].task")


def canonical_task(task: TaskConfig | None, classes: Sequence[str] | None) -> TaskConfig | None:
    """Return a task with its classes by their names, in the order of the source's output."""
    if task is None or not task.classes or classes is None:
        return task
    numbers = class_numbers(task.classes, classes, len(classes))
    return TaskConfig(classes=class_texts(numbers, classes))


def _unknown_classes(task: TaskConfig, classes: tuple[str, ...], place: str) -> Iterator[Problem]:
    """Yield a problem for each class that the source lacks, or that is named twice."""
    if not classes:
        expected = "no classes: the model has not one output of classes, made by its last layer"
        yield InvalidValue([*task.classes], expected, 'leave "task" out').problem(f"{place}.classes")
        return
    numbers = dict[int, str]()
    for position, each in enumerate(task.classes):
        try:
            (number,) = class_numbers([each], classes, len(classes))
        except InvalidValue as error:
            yield error.problem(f"{place}.classes[{position}]")
            continue
        if number in numbers:
            wrong = InvalidValue(each, f'a class other than "{numbers[number]}"', "leave it out")
            yield wrong.problem(f"{place}.classes[{position}]")
        numbers[number] = each

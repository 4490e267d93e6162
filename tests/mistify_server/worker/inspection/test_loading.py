"""Loading the data of a config: problems and skipped files of each part."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from executors.outputs.objectives import objectives_for
from executors.structure.signature import Activation, Input, Output, Signature
from mistify.config.data.metric import Metric
from mistify_server.tasks.problems import ProblemCollector
from mistify_server.tasks.sources import DataSource
from mistify_server.worker.cache import SourceCache
from mistify_server.worker.inspection.loading import InspectedData

FIGURES = Signature((Input("x", (2,), "float32"),), (Output("y", (2,), Activation.SOFTMAX),))
IMAGES = Signature((Input("x", (4, 4, 3), "float32"),), FIGURES.outputs)


def inspected(data: DataSource, signature: Signature) -> tuple[InspectedData, list[str]]:
    problems = ProblemCollector()
    loading = InspectedData(SourceCache(lambda _: None), problems, data, signature, lambda inputs: {})
    loading.load()
    return loading, [f"{problem.place}: {problem.value}" for problem in problems.problems]


@pytest.mark.parametrize(
    ("broken", "places"),
    [
        ({"train"}, ["dataset.train"]),
        ({"test"}, ["dataset.test"]),
        ({"train", "test"}, ["dataset.test", "dataset.train"]),
        ({"train", "validation"}, ["dataset.train", "dataset.validation"]),
    ],
)
def test_a_mistake_is_reported_only_for_its_file(tmp_path: Path, broken: set[str], places: list[str]) -> None:
    parts = {name: tmp_path / f"{name}.csv" for name in ("train", "test", "validation")}
    for name, path in parts.items():
        wrong = "3,4,1,9\n" if name in broken else ""
        path.write_text(f"a,b,y\n1,2,0\n3,4,1\n{wrong}")
    settings = {"validation": str(parts["validation"])}
    data = DataSource.model_validate(
        {"train": str(parts["train"]), "test": str(parts["test"]), "settings": settings}
    )
    _, problems = inspected(data, FIGURES)
    assert problems == [f"{place}: row 4: 4 cells" for place in places]


def test_skipped_files_are_reported_for_each_part(tmp_path: Path) -> None:
    for part in ("train", "test", "more"):
        for kind in ("cat", "dog"):
            (tmp_path / part / kind).mkdir(parents=True)
            for number in range(2):
                pixels = np.zeros((4, 4, 3), np.uint8)
                Image.fromarray(pixels).save(tmp_path / part / kind / f"{number}.png")
    (tmp_path / "train" / "cat" / "1.heic").touch()
    (tmp_path / "more" / "dog" / "1.raw").touch()
    data = DataSource(**{part: str(tmp_path / part) for part in ("train", "test")})
    with_more = data.model_copy(update={"unlabelled": str(tmp_path / "more")})
    loading, problems = inspected(with_more, IMAGES)
    assert (problems, loading.left_out) == (
        [],
        ("dataset.train: 1 .heic in cat", "dataset.unlabelled: 1 .raw in dog"),
    )
    assert loading.class_counts == ("dataset.test: 2 cat and 2 dog", "dataset.train: 2 cat and 2 dog")


ANSWERS = Signature((Input("x", (2,), "float32"),), (Output("y", (1,), Activation.NONE),))


def answering(directory: Path, answers: list[list[int]]) -> DataSource:
    """Data that answer two tasks, the same for training and for tests."""
    space = {"properties": {"which": ["1", "2"]}, "tasks": {"one": ["1"], "two": ["2"]}}
    (directory / "tasks.json").write_text(json.dumps(space))
    rows = np.array(answers * 50, np.int8)
    for part in ("train", "test"):
        np.savez(directory / f"{part}.npz", x=np.zeros((len(rows), 2), np.float32), y=rows)
    parts = {part: str(directory / f"{part}.npz") for part in ("train", "test")}
    settings = {"tasks": str(directory / "tasks.json")}
    return DataSource.model_validate({**parts, "settings": settings})


def test_data_that_answer_tasks_have_balanced_accuracy(tmp_path: Path) -> None:
    loading, problems = inspected(answering(tmp_path, [[1, 0], [0, 1], [-1, -1]]), ANSWERS)
    assert problems == []
    loaded = loading.load()
    assert loaded is not None
    objectives = objectives_for(ANSWERS, loaded.train)
    assert loading.checked_metric(loaded, objectives) is Metric.BALANCED_ACCURACY
    assert {*loaded.train.targets["y"].tolist()} == {-1, 0, 1}


def test_a_task_that_is_always_answered_alike_is_reported(tmp_path: Path) -> None:
    _, problems = inspected(answering(tmp_path, [[1, 0], [0, 0], [1, -1]]), ANSWERS)
    (problem,) = problems
    assert re.fullmatch(r"dataset.train: the task two with 0 yes and \d+ no", problem)
    assert inspected(answering(tmp_path, [[1, -1], [0, -1]]), ANSWERS)[1] == []


def test_data_without_an_answer_are_reported(tmp_path: Path) -> None:
    assert inspected(answering(tmp_path, [[-1, -1]]), ANSWERS)[1] == [
        "dataset.train: no answer that is known"
    ]


def test_validation_data_that_no_task_can_be_scored_by_are_reported(tmp_path: Path) -> None:
    data = answering(tmp_path, [[1, 0], [0, 1]])
    np.savez(tmp_path / "validation.npz", x=np.zeros((2, 2), np.float32), y=np.array([[1, 0], [1, -1]]))
    settings = data.settings.model_copy(update={"validation": str(tmp_path / "validation.npz")})
    assert inspected(data.model_copy(update={"settings": settings}), ANSWERS)[1] == [
        "dataset.validation: answers to none of the tasks"
    ]

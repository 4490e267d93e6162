"""Data that answer tasks: as a matrix, as one answer and its task each, and in the columns of tables."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from executors.data import Dataset
from executors.readers.loading import load_dataset
from executors.structure.signature import Activation, Input, Output, Signature
from mistify.errors import ErrorCode, MistifyError
from mistify.scenarios.space import TaskSpace

SPACE = TaskSpace.read(
    '{"properties": {"which": ["1", "2", "3"]}, "names": {"odd": ["1", "3"]},'
    ' "tasks": {"any-odd": ["odd"], "has-2": ["2"], "has-3": ["3"]}}'
)
MODEL = Signature((Input("x", (2,), "float32"),), (Output("yes", (1,), Activation.NONE),))
X = np.arange(8, dtype=np.float32).reshape(4, 2)
ANSWERS = [[1, 0, -1], [-1, 1, 0], [0, -1, -1], [-1, -1, -1]]


def loaded(source: Path, signature: Signature = MODEL, space: TaskSpace = SPACE) -> Dataset:
    return load_dataset(str(source), signature, space=space)


def problem(source: Path, signature: Signature = MODEL) -> str:
    with pytest.raises(MistifyError) as caught:
        loaded(source, signature)
    assert caught.value.code is ErrorCode.INVALID_DATASET
    (found,) = caught.value.problems
    assert found.place == str(source)
    return found.complaint


def saved(directory: Path, **arrays: Any) -> Path:
    np.savez(directory / "data.npz", **arrays)
    return directory / "data.npz"


def table(directory: Path, suffix: str, rows: list[list[Any]], columns: tuple[str, ...]) -> Path:
    path = directory / f"data{suffix}"
    if suffix == ".csv":
        lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
    else:
        lines = [json.dumps(dict(zip(columns, row, strict=True))) for row in rows]
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize("name", ["y", "yes"])
@pytest.mark.parametrize("kind", [np.int8, np.int64, np.float32])
def test_a_matrix_has_an_answer_to_each_task(tmp_path: Path, name: str, kind: type) -> None:
    data = loaded(saved(tmp_path, x=X, **{name: np.array(ANSWERS, kind)}))
    assert data.answers.tolist() == ANSWERS
    assert data.answers.dtype == np.int8
    assert data.space == SPACE
    assert data.of_task(SPACE.parse("2")).targets["yes"].tolist() == [0, 1]


def test_targets_are_answers_to_one_of_the_tasks_that_an_example_answers(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    answers = rng.integers(-1, 2, (200, 3)).astype(np.int8)
    inputs = np.zeros((200, 2), np.float32)
    target = loaded(saved(tmp_path, x=inputs, y=answers)).targets["yes"]
    assert target.dtype == np.int64
    assert target.shape == (200,)
    answered = (answers >= 0).any(axis=1)
    assert (target[~answered] == -1).all()
    assert all(one in row for one, row in zip(target[answered], answers[answered], strict=True))
    assert {*target[answered].tolist()} == {0, 1}
    assert loaded(tmp_path / "data.npz").targets["yes"].tolist() == target.tolist()


def test_an_answer_and_its_task_for_each_example(tmp_path: Path) -> None:
    source = saved(tmp_path, x=X, y=np.array([1, 0, 1, 0]), task=np.array([0, 2, 1, 0], np.uint8))
    assert loaded(source).answers.tolist() == [[1, -1, -1], [-1, -1, 0], [-1, 1, -1], [0, -1, -1]]


CELLS = {".csv": ["1", "", "-1"], ".jsonl": [True, None, -1]}


@pytest.mark.parametrize("suffix", CELLS)
def test_a_table_has_a_column_for_each_task(tmp_path: Path, suffix: str) -> None:
    one, unknown, ignored = CELLS[suffix]
    rows = [["0 1", one, 0, unknown], ["2 3", ignored, 1, 0]]
    source = table(tmp_path, suffix, rows, ("x", "any-odd", "has-2", "has-3"))
    data = loaded(source)
    assert data.answers.tolist() == [[1, 0, -1], [-1, 1, 0]]
    assert data.inputs["x"].tolist() == [[0, 1], [2, 3]]


def test_columns_of_tasks_are_no_figures_of_the_input(tmp_path: Path) -> None:
    rows = [[5, 6, 1, 0, 1]]
    source = table(tmp_path, ".csv", rows, ("a", "b", "any-odd", "has-2", "has-3"))
    data = loaded(source)
    assert (data.inputs["x"].tolist(), data.answers.tolist()) == ([[5, 6]], [[1, 0, 1]])


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        (
            {"y": np.zeros((4, 2), np.int8)},
            "got y of shape (4, 2); expected an answer to each of the 3 tasks of dataset.tasks, [n, 3]",
        ),
        (
            {"y": np.zeros((4, 4), np.int8)},
            "got y of shape (4, 4); expected an answer to each of the 3 tasks",
        ),
        ({"y": np.zeros(4, np.int8)}, "got y of shape (4,); expected an answer to each of the 3 tasks"),
        ({"y": np.array(ANSWERS) * 2}, "got y[0, 0] = 2; expected 0 or 1, or -1 for unknown"),
        (
            {"y": np.ones(4), "task": np.array([0, 1, 3, 0])},
            "got task[2] = 3; expected the number of a task, from 0 to 2",
        ),
        ({"y": np.arange(4), "task": np.zeros(4)}, "got y[2] = 2; expected 0 or 1"),
        (
            {"y": np.ones(3), "task": np.zeros(4)},
            "got task of shape (4,) and y of shape (3,); expected a task",
        ),
    ],
)
def test_answers_that_fit_no_task_are_refused(tmp_path: Path, arrays: dict[str, Any], expected: str) -> None:
    assert problem(saved(tmp_path, x=X, **arrays)).startswith(expected)


@pytest.mark.parametrize("suffix", CELLS)
def test_tables_without_a_column_and_with_other_answers_are_refused(tmp_path: Path, suffix: str) -> None:
    source = table(tmp_path, suffix, [["0 1", 1, 0]], ("x", "any-odd", "has-2"))
    expected = "got no column has-3; expected a column for each task of dataset.tasks"
    assert problem(source).startswith(expected)
    source = table(tmp_path, suffix, [["0 1", 1, 0, 2]], ("x", "any-odd", "has-2", "has-3"))
    assert "has-3 = " in problem(source)
    assert "expected 1, 0, or blank for unknown" in problem(source)


def test_a_model_with_several_outputs_answers_no_tasks(tmp_path: Path) -> None:
    outputs = tuple(Output(name, (1,), Activation.NONE) for name in ("yes", "no"))
    source = saved(tmp_path, x=X, y=np.array(ANSWERS))
    expected = "got answers to tasks for 2 outputs; expected a model with one output"
    assert problem(source, Signature(MODEL.inputs, outputs)).startswith(expected)


def test_inputs_alone_need_no_answers(tmp_path: Path) -> None:
    data = load_dataset(str(saved(tmp_path, x=X)), MODEL, labelled=False, space=SPACE)
    assert data.answers is None

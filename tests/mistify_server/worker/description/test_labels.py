"""Class names from the config, a file or the training data, or none."""

from pathlib import Path
from typing import Any

import pytest

from executors.outputs.objectives import Binary, Categorical, OutputObjective, Regression
from executors.structure.signature import Activation, Output
from mistify_server.tasks.problems import ProblemCollector
from mistify_server.worker.description.labels import label_count, labels_of

COUNTS = {"kind": 3, "open": 2, "price": 0}


def labels(declared: Any, counts: dict[str, int] | None = None, **classes: tuple[str, ...]) -> Any:
    problems = ProblemCollector()
    named = labels_of(declared, counts or COUNTS, classes, problems)
    return [str(problem) for problem in problems.problems] or named


@pytest.mark.parametrize(
    ("shape", "objective", "count"),
    [
        ((3,), Categorical(Activation.SOFTMAX), 3),
        ((8, 8, 3), Categorical(Activation.NONE), 3),
        ((1,), Binary(Activation.SIGMOID), 2),
        ((), Binary(Activation.SIGMOID), 2),
        ((4,), Binary(Activation.SIGMOID), 4),
        ((4,), Regression(Activation.NONE), 0),
    ],
)
def test_the_number_of_names_follows_from_the_output(
    shape: tuple[int, ...], objective: OutputObjective, count: int
) -> None:
    assert label_count(Output("y", shape, objective.activation), objective) == count


def test_names_from_the_training_data_are_used_if_the_config_has_none() -> None:
    own = {"open": ("shut", "wide")}
    assert labels(own, kind=("a", "b", "c")) == {"kind": ("a", "b", "c"), "open": ("shut", "wide")}
    assert labels({"kind": ("x", "y", "z")}, kind=("a", "b", "c")) == {"kind": ("x", "y", "z")}


def test_incomplete_names_are_omitted() -> None:
    assert labels(None, kind=("a", "b")) == {}


def test_a_plain_list_is_for_the_only_output_with_classes() -> None:
    assert labels({"": ("no", "yes")}, {"open": 2, "price": 0}) == {"open": ("no", "yes")}
    (problem,) = labels({"": ("no", "yes")})
    assert problem.startswith('dataset.labels: got "one list"; expected names by output, of kind, open')


def test_a_file_has_one_name_per_line(tmp_path: Path) -> None:
    file = tmp_path / "labels.txt"
    file.write_bytes("große Katze\r\nHund\n  Maus \n".encode())
    assert labels({"kind": str(file)}) == {"kind": ("große Katze", "Hund", "Maus")}
    file.write_bytes(b"\xff\xfe")
    assert "names in UTF-8" in labels({"kind": str(file)})[0]


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"kind": ("a", "b")}, 'dataset.labels.kind: got "2 names"; expected 3, one for each class'),
        ({"price": ("a", "b")}, 'dataset.labels.price: got "price"; expected one of kind, open'),
        ({"kid": ("a", "b", "c")}, 'did you mean "kind"?'),
        ({"kind": ("b", "a", "c")}, "expected the order of the training data: a, b, c"),
    ],
)
def test_unsuitable_names_are_refused(declared: Any, message: str) -> None:
    (problem,) = labels(declared, kind=("a", "b", "c"))
    assert message in problem


def test_without_classes_there_are_no_names() -> None:
    (problem,) = labels({"": ("a", "b")}, {"price": 0})
    assert "no output predicts classes" in problem

"""Mistakes in CSV files."""

import pytest

from executors.data.errors import SchemaSourceError
from executors.readers.loading import load_dataset
from executors.structure.signature import Activation, Input, Output
from tests.executors.readers.files import problem_of, signature, write_csv

SIGNATURE = signature([Input("x", (3,), "float32")], [Output("y", (3,), Activation.SOFTMAX)])


@pytest.mark.parametrize(
    ("header", "reported"),
    [
        (
            ["a", "b", "a", "y"],
            "row 1: 2 columns named a; expected a different name for each column; rename",
        ),
        (["x", "y", "y", "y"], "row 1: 3 columns named y"),
        (["a", "", "", "y"], "row 1: 2 columns without a name"),
    ],
)
def test_column_names_have_to_be_unique(tmp_path, header, reported):
    path = write_csv(tmp_path / "t.csv", header, [[1, 2, 3, 0]])
    assert reported in problem_of(path, SIGNATURE)


def test_an_overlong_cell_is_reported(tmp_path):
    path = write_csv(tmp_path / "t.csv", ["x", "y", "note"], [["1 2 3", 0, "a"], ["1 2 3", 1, "a" * 131_073]])
    reported = problem_of(path, SIGNATURE)
    assert "row 3: a cell of more than 131,072 characters; expected shorter cells" in reported
    assert ".jsonl or .npz" in reported
    write_csv(path, ["x", "y", "note"], [["1 2 3", 0, "a" * 131_072]])
    assert len(load_dataset(str(path), SIGNATURE)) == 1


def test_an_invalid_row_is_reported(tmp_path):
    (tmp_path / "t.csv").write_text('x,y\n1 2 3,0\n"1 2 3"4,1\n')
    assert "row 3: text that is not valid CSV (" in problem_of(tmp_path / "t.csv", SIGNATURE)


def test_the_error_names_columns_that_are_not_inputs_instead_of_rows(tmp_path):
    path = write_csv(tmp_path / "t.csv", ["id", "a", "b", "c", "y"], [[7, 1, 2, 3, 0], [8, 4, 5, 6, 1]])
    reported = problem_of(path, SIGNATURE)
    assert "got 4 columns for the input x: id, a, b and c; expected 3 columns, one number in each" in reported
    assert reported.endswith("remove columns that are not inputs of the model, such as row numbers (id?)")


def test_the_error_names_a_column_without_numbers(tmp_path):
    path = write_csv(tmp_path / "t.csv", ["a", "b", "c", "y"], [[1, 2, 3, 0], [1, "n/a", 3, 1]])
    reported = problem_of(path, SIGNATURE)
    assert "row 3: b = 'n/a'; expected numbers in each of the columns a, b and c" in reported


def test_the_error_names_the_column_of_an_empty_cell(tmp_path):
    path = write_csv(tmp_path / "t.csv", ["a", "b", "c", "y"], [[1, 2, 3, 0], [4, "", 6, 1]])
    reported = problem_of(path, SIGNATURE)
    assert "row 3: b = an empty cell; expected a number in each of the columns a, b and c" in reported


@pytest.mark.parametrize("several", [False, True])
def test_the_error_for_far_too_many_columns_is_short(tmp_path, several):
    header = [f"c{number}" for number in range(100_000)]
    path = write_csv(tmp_path / "t.csv", [*header, "y"], [[1] * 100_000 + [row % 3] for row in range(3)])
    inputs = [Input(name, (3,), "float32") for name in ("x", "z")[: 1 + several]]
    reported = problem_of(path, signature(inputs, SIGNATURE.outputs))
    assert "c0, c1, c2, c3, c4 and 99,99" in reported
    assert len(reported) < 500


def test_a_table_as_wide_as_the_model_is_read(tmp_path):
    header = [f"c{number}" for number in range(20_000)]
    path = write_csv(tmp_path / "t.csv", [*header, "y"], [[row] * 20_000 + [row % 3] for row in range(9)])
    wide = signature([Input("x", (20_000,), "float32")], SIGNATURE.outputs)
    data = load_dataset(str(path), wide, str(path))
    assert data.inputs["x"][:, -1].tolist() == [*range(9)]


def test_a_mistake_in_the_training_data_is_not_reported_for_the_test_data(tmp_path):
    train = write_csv(tmp_path / "train.csv", ["x", "y"], [["1 2 3", 0], ["1 2 3", 1, 9]])
    test = write_csv(tmp_path / "test.csv", ["x", "y"], [["1 2 3", 0]])
    with pytest.raises(SchemaSourceError):
        load_dataset(str(test), SIGNATURE, str(train))
    write_csv(test, ["x", "y"], [["1 2 3", 0], ["1 2 3"]])
    assert "row 3: 1 cell; expected 2" in problem_of(test, SIGNATURE, train=str(train))

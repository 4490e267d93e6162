"""What is wrong with a CSV file as such."""

import pytest

from executors.readers.loading import load_dataset
from executors.structure.signature import Activation, Input, Output
from tests.executors.readers.files import problem_of, signature, write_csv

SIGNATURE = signature([Input("x", (3,), "float32")], [Output("y", (3,), Activation.SOFTMAX)])


@pytest.mark.parametrize(
    ("header", "reported"),
    [
        (
            ["a", "b", "a", "y"],
            "row 1: 2 columns named a; expected a name of its own for each column; rename",
        ),
        (["x", "y", "y", "y"], "row 1: 3 columns named y"),
        (["a", "", "", "y"], "row 1: 2 columns without a name"),
    ],
)
def test_columns_have_names_of_their_own(tmp_path, header, reported):
    path = write_csv(tmp_path / "t.csv", header, [[1, 2, 3, 0]])
    assert reported in problem_of(path, SIGNATURE)


def test_a_cell_that_is_too_long_is_reported(tmp_path):
    path = write_csv(tmp_path / "t.csv", ["x", "y", "note"], [["1 2 3", 0, "a"], ["1 2 3", 1, "a" * 131_073]])
    reported = problem_of(path, SIGNATURE)
    assert "row 3: a cell of more than 131,072 characters; expected shorter cells" in reported
    assert ".jsonl or .npz" in reported
    write_csv(path, ["x", "y", "note"], [["1 2 3", 0, "a" * 131_072]])
    assert len(load_dataset(str(path), SIGNATURE)) == 1


def test_the_row_that_is_no_csv_is_reported(tmp_path):
    (tmp_path / "t.csv").write_text('x,y\n1 2 3,0\n"1 2 3"4,1\n')
    assert "row 3: what is no CSV (" in problem_of(tmp_path / "t.csv", SIGNATURE)

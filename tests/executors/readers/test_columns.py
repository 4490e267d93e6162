"""Targets in tables: class names, or numbers with mistakes."""

import pytest

from executors.readers.loading import load_dataset
from executors.structure.signature import Activation, Input, Output
from mistify.config.data.dataset import TextSettings
from tests.executors.readers.files import problem_of, signature, write_jsonl, write_table

FIGURES = Input("figures", (3,), "float32")
TOKENS = Input("tokens", (6,), "int32")
KIND = Output("kind", (3,), Activation.SOFTMAX)
LABELS = Output("labels", (6, 2), Activation.NONE)


def written(path, targets):
    return write_table(path, ["figures", "y"], [["1 2 3", target] for target in targets])


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
@pytest.mark.parametrize("blank", ["", "  "])
@pytest.mark.parametrize(
    ("others", "expected"),
    [(["dog", "cat", "eel"], "one of the training data's cat, dog, eel"), (["1", "0", "2"], "numbers")],
)
def test_a_blank_target_is_not_a_class(tmp_path, suffix, blank, others, expected):
    path = written(tmp_path / f"t.{suffix}", [*others, blank])
    row = {"csv": 5, "jsonl": 4}[suffix]
    assert f"row {row}: kind = {blank!r}; expected {expected}" in problem_of(
        path, signature([FIGURES], [KIND])
    )


@pytest.mark.parametrize("blank", ["", None])
def test_a_blank_label_of_a_position_is_not_a_class(tmp_path, blank):
    rows = [{"tokens": [1, 2], "labels": ["O", "B"]}, {"tokens": [1, 2], "labels": ["O", blank]}]
    path = write_jsonl(tmp_path / "t.jsonl", rows)
    reported = problem_of(path, signature([TOKENS], [LABELS]))
    assert f"row 2: labels = ['O', {blank!r}]; expected one of the training data's B, O" in reported


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
@pytest.mark.parametrize(
    ("output", "targets"),
    [
        (Output("price", (1,), Activation.NONE), ["2.5", "n/a", "4"]),
        (Output("spam", (1,), Activation.SIGMOID), ["0", "n/a", "1"]),
        (Output("sizes", (2,), Activation.SIGMOID), ["0 1", "n/a", "1 1"]),
        (Output("sizes", (2,), Activation.SIGMOID), ["none", "n/a", "none"]),
    ],
)
def test_a_text_is_not_a_class_if_the_output_has_no_classes(tmp_path, suffix, output, targets):
    path = written(tmp_path / f"t.{suffix}", targets)
    wrong = next(row for row, target in enumerate(targets) if target in ("n/a", "none"))
    row = wrong + {"csv": 2, "jsonl": 1}[suffix]
    reported = problem_of(path, signature([FIGURES], [output]))
    assert f"row {row}: {output.name} = {targets[wrong]!r}; expected numbers" in reported


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_the_data_say_which_inputs_were_texts(tmp_path, suffix):
    text = TextSettings(hashing=50)
    rows = [["a fine day", 0], ["7 8", 1]]
    path = write_table(tmp_path / f"t.{suffix}", ["tokens", "y"], rows)
    assert load_dataset(str(path), signature([TOKENS], [KIND]), text=text).origins == {"tokens": "text"}
    path = write_table(tmp_path / f"n.{suffix}", ["figures", "y"], [["1 2 3", 0], ["1 2 3", 1]])
    assert load_dataset(str(path), signature([FIGURES], [KIND]), text=text).origins == {}

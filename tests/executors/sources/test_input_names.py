"""Inputs get names that LiteRT accepts; data may have the names of the model's file."""

import json

import keras
import numpy as np
import pytest

from executors.readers.loading import load_dataset
from executors.sources.keras.loading import flatten
from executors.structure.signature import signature_of, usable_input_name
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.tflite.runner import Runner
from tests.executors.structure.networks import randomised, same

layers = keras.layers

#: Name in a model -> name in a package.
NAMES = {
    "image": "image",
    "input_1": "input_1",
    "ends_": "ends_",
    "input.1": "input_1",
    "sepal length (cm)": "sepal_length_cm",
    "x-ray": "x_ray",
    "_private": "private",
    "2nd": "input_2nd",
    "é": "input",
}


@pytest.mark.parametrize("name", NAMES)
def test_litert_accepts_the_name_of_an_input(name):
    given = keras.Input((4,), name=name)
    source = randomised(keras.Model(given, layers.Dense(2, name="scores")(given)))
    flat = flatten("model.keras", source)
    assert [each.name for each in signature_of(flat).inputs] == [NAMES[name]]
    arrays = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    made = Runner(convert(flat)).run_all({NAMES[name]: arrays})
    same([np.asarray(source(arrays))], [made["scores"]])


def test_inputs_keep_different_names():
    given = [keras.Input((2,), name=name) for name in ("a.b", "a-b")]
    hidden = layers.Dense(2, name="a_b_2")(layers.Concatenate(name="a_b")(given))
    flat = flatten("model.keras", randomised(keras.Model(given, layers.Dense(2)(hidden))))
    assert [each.name for each in signature_of(flat).inputs] == ["a_b_3", "a_b_4"]


@pytest.mark.parametrize("suffix", ["npz", "csv", "jsonl"])
@pytest.mark.parametrize("usable", [True, False])
def test_data_have_the_names_of_the_file_or_of_the_package(tmp_path, suffix, usable):
    names = ["sepal length (cm)", "sepal width (cm)"]
    given = [keras.Input((1,), name=name) for name in names]
    x = layers.Concatenate()(given)
    flat = flatten("model.keras", keras.Model(given, layers.Dense(2, "softmax", name="kind")(x)))
    columns = [usable_input_name(name) if usable else name for name in names]
    values = {columns[0]: [5.1, 4.9], columns[1]: [3.5, 3.0], "y": [0, 1]}
    path = tmp_path / f"train.{suffix}"
    if suffix == "npz":
        np.savez(path, **{name: np.array(column)[:, None] for name, column in values.items()})
    else:
        rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
        lines = [",".join(values), *(",".join(map(str, row.values())) for row in rows)]
        path.write_text("\n".join(lines if suffix == "csv" else map(json.dumps, rows)) + "\n")
    data = load_dataset(str(path), signature_of(flat))
    assert list(data.inputs) == ["sepal_length_cm", "sepal_width_cm"]
    np.testing.assert_allclose(data.inputs["sepal_width_cm"].ravel(), [3.5, 3.0])

"""Packages as models of MLflow: their predictions, signatures and requirements."""

from pathlib import Path

import mlflow
import numpy as np
import pytest
from mlflow.models import Model
from mlflow.types.schema import TensorSpec

from mistify.errors import MistifyError
from mistify_client import load
from mistify_client.mlflow.flavor import save_model


@pytest.fixture
def model(tmp_path):
    """Return a function that saves a package as a model, and loads it."""

    def saved(package: Path):
        save_model(str(tmp_path / "model"), package)
        return mlflow.pyfunc.load_model(str(tmp_path / "model"))

    return saved


@pytest.mark.parametrize("kind", ["package", "branch_package", "int8_package"])
def test_predictions_are_those_of_the_client(model, request, kind, expected):
    package, images = request.getfixturevalue(kind), expected["image"]
    loaded, own = model(package), load(package)
    assert np.array_equal(loaded.predict(images), own(images))
    assert np.array_equal(loaded.predict({"image": images}), own(images))
    assert np.array_equal(loaded.get_raw_model()(images), own(images))


def test_several_inputs_and_outputs_have_names(model, pair_package):
    arrays = {name: np.random.default_rng(0).random((2, 4), np.float32) for name in ("left", "right")}
    loaded = model(pair_package)
    predicted, own = loaded.predict(arrays), load(pair_package)(arrays)
    assert predicted.keys() == own.keys() == {"mix", "difference"}
    assert all(np.array_equal(predicted[name], own[name]) for name in own)


def test_the_signature_has_the_values_that_quantized_tensors_stand_for(int8_package, tmp_path):
    save_model(str(tmp_path / "model"), int8_package)
    signature = Model.load(str(tmp_path / "model")).signature
    assert signature.inputs.inputs == [TensorSpec(np.dtype("float32"), (-1, 4, 4, 1), "image")]
    assert signature.outputs.inputs == [TensorSpec(np.dtype("float32"), (-1, 3))]


def test_inputs_of_another_type_are_refused(model, package, expected):
    with pytest.raises(mlflow.MlflowException, match="Failed to enforce schema"):
        model(package).predict(expected["image"].astype(np.float64))


def test_the_model_names_the_client_as_its_requirement(package, tmp_path):
    save_model(str(tmp_path / "model"), package)
    requirements = (tmp_path / "model" / "requirements.txt").read_text()
    assert "mistify-porting[client]>=" in requirements
    flavor = Model.load(str(tmp_path / "model")).flavors["mistify"]
    assert (flavor["goal"], flavor["precision"]) == ("half", "none")
    assert (tmp_path / "model" / flavor["data"] / "serve.tflite").exists()


def test_the_files_of_a_model_do_not_change_when_it_runs(model, package, expected, tmp_path):
    loaded = model(package)
    before = sorted((tmp_path / "model").rglob("*"))
    loaded.predict(expected["image"])
    assert sorted((tmp_path / "model").rglob("*")) == before
    assert not (tmp_path / "model" / "data" / f"{package.name}.state").exists()


def test_a_damaged_model_is_refused(package, tmp_path):
    save_model(str(tmp_path / "model"), package)
    network = tmp_path / "model" / "data" / package.name / "serve.tflite"
    content = bytearray(network.read_bytes())
    content[-1] ^= 1
    network.write_bytes(content)
    with pytest.raises(MistifyError, match=r"serve\.tflite"):
        mlflow.pyfunc.load_model(str(tmp_path / "model"))

"""A scaled model applied to raw values equals the model applied to scaled values."""

import keras
import numpy as np
import pytest

from executors.sources.keras.scaling import scaled
from executors.structure import analyse, narrow
from executors.structure.signature import signature_of
from mistify.config.data.preparation import InputScaling
from mistify.parsing.validation import InvalidValue

layers = keras.layers
MEAN, STD = (10.0, 20.0, 30.0), (2.0, 4.0, 8.0)


def network(ids_dtype="int32"):
    keras.utils.set_random_seed(0)
    image = keras.Input((6, 6, 3), name="image")
    ids = keras.Input((2,), dtype=ids_dtype, name="ids")
    x = layers.GlobalAveragePooling2D()(layers.Conv2D(4, 3, name="conv")(image))
    y = layers.Flatten()(layers.Embedding(9, 3, name="table")(ids))
    return keras.Model([image, ids], layers.Dense(3, name="scores")(layers.Concatenate()([x, y])))


@pytest.mark.parametrize("ids_dtype", ["int32", "float32"])
@pytest.mark.parametrize(
    ("scaling", "factor", "offset"),
    [
        (InputScaling(factor=1 / 255), 1 / 255, 0.0),
        (InputScaling(factor=2, offset=-1), 2.0, -1.0),
        (InputScaling(mean=MEAN, std=STD), 1 / np.array(STD), -np.array(MEAN) / np.array(STD)),
    ],
)
def test_a_scaled_model_accepts_raw_values(scaling, factor, offset, ids_dtype, tmp_path):
    model = network(ids_dtype)
    rng = np.random.default_rng(0)
    raw, ids = rng.uniform(0, 255, (4, 6, 6, 3)).astype("float32"), rng.integers(0, 9, (4, 2))
    expected = np.asarray(model([(raw * factor + offset).astype("float32"), ids]))
    actual = scaled(model, scaling)
    assert signature_of(actual) == signature_of(model)
    np.testing.assert_allclose(actual([raw, ids]), expected, rtol=1e-4, atol=1e-4)
    actual.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded([raw, ids]), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("scaling", [InputScaling(factor=0.1), InputScaling(mean=MEAN, std=STD)])
def test_a_scaled_model_can_be_adapted(scaling):
    image = keras.Input((6, 6, 3), name="image")
    x = layers.Conv2D(4, 3, name="conv")(image)
    model = scaled(keras.Model(image, layers.Dense(3)(layers.GlobalAveragePooling2D()(x))), scaling)
    structure = analyse(model)
    assert structure.groups["conv"].size == 4
    raw = np.random.default_rng(0).uniform(0, 255, (4, 6, 6, 3)).astype("float32")
    narrowed = narrow(structure, {"conv": np.array([True, False, True, True])})
    assert analyse(narrowed).groups["conv"].size == 3
    np.testing.assert_allclose(narrow(structure, {})(raw), model(raw), rtol=1e-5, atol=1e-5)


def test_a_model_without_scaling_is_not_changed():
    model = network()
    assert scaled(model, None) is model


def test_scaling_for_a_wrong_number_of_channels_is_refused():
    with pytest.raises(InvalidValue) as caught:
        scaled(network(), InputScaling(mean=(0.0,), std=(1.0,)))
    assert caught.value.expected == "values for 3 channels"
    ids = keras.Input((2,))
    with pytest.raises(InvalidValue, match="no numeric inputs"):
        scaled(keras.Model(ids, layers.Embedding(9, 3)(ids)), InputScaling(factor=2))

import keras
import numpy as np
import pytest

from executors.readers.loading import load_dataset
from executors.sources.keras.builtin import train_digits_resnet
from executors.sources.keras.loading import builtin_source, flatten, load_keras
from executors.structure.signature import signature_of
from executors.training.evaluation import evaluate
from mistify.errors import ErrorCode, MistifyError
from tests.executors.structure.networks import randomised

layers = keras.layers
IMAGE = (12, 12, 3)


@pytest.fixture(scope="module")
def tf_keras():
    """Import Keras 2, which wrote old files."""
    return pytest.importorskip("tf_keras")


def network():
    """Return a small network with batch norm, a skip connection and two kinds of convolution."""
    inputs = keras.Input(IMAGE, name="image")
    x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(6, 3, padding="same")(inputs)))
    y = layers.DepthwiseConv2D(3, padding="same")(x)
    x = layers.GlobalAveragePooling2D()(layers.Add()([x, y]))
    return randomised(keras.Model(inputs, layers.Dense(4, "softmax")(x)))


def images(batch=5, shape=IMAGE):
    return np.random.default_rng(1).uniform(size=(batch, *shape)).astype(np.float32)


def old_randomised(model):
    rng = np.random.default_rng(2)
    for variable in model.variables:
        positive = "variance" in variable.name or "gamma" in variable.name
        variable.assign(
            rng.uniform(0.5, 1.5, variable.shape) if positive else rng.normal(0, 0.3, variable.shape)
        )
    return model


def agrees(loaded, expected, shape=IMAGE):
    inputs = images(shape=shape)
    np.testing.assert_allclose(np.asarray(loaded(inputs)), np.asarray(expected(inputs)), atol=1e-5)


@pytest.mark.parametrize("name", ["model.keras", "model.h5", "model.hdf5"])
def test_a_file_of_keras_3_is_loaded(tmp_path, name):
    model = network()
    model.save(tmp_path / "saved.h5" if "keras" not in name else tmp_path / name)
    if "keras" not in name:
        (tmp_path / "saved.h5").rename(tmp_path / name)
    agrees(load_keras(tmp_path / name), model)


def functional(tf_keras):
    old = tf_keras.layers
    inputs = old.Input(IMAGE)
    x = old.ReLU(6.0)(
        old.BatchNormalization()(old.DepthwiseConv2D(3, padding="same", use_bias=False)(inputs))
    )
    y = old.Conv2D(3, 1, activation="relu", kernel_regularizer="l2")(x)
    x = old.ZeroPadding2D(1)(old.Add()([x, y]))
    x = old.Dropout(0.5)(old.Flatten()(old.MaxPooling2D()(x)))
    return tf_keras.Model(inputs, old.Dense(4, "softmax")(x))


def sequential(tf_keras):
    old = tf_keras.layers
    body = [old.Conv2D(6, 3), old.BatchNormalization(), old.ReLU(), old.DepthwiseConv2D(3), old.Flatten()]
    return tf_keras.Sequential([old.Input(IMAGE), *body, old.Dense(4, "softmax")])


def separable(tf_keras):
    old = tf_keras.layers
    body = [old.SeparableConv2D(6, 3, padding="same"), old.BatchNormalization(), old.AveragePooling2D()]
    return tf_keras.Sequential([old.Input(IMAGE), *body, old.Flatten(), old.Dense(4, "softmax")])


def transposed(tf_keras):
    old = tf_keras.layers
    inputs = old.Input(IMAGE)
    x = old.Conv2D(8, 3, strides=2, padding="same", activation="relu")(inputs)
    x = old.Conv2DTranspose(5, 3, strides=2, padding="same")(x)
    x = old.Concatenate()([x, old.DepthwiseConv2D(3, padding="same")(inputs)])
    return tf_keras.Model(inputs, old.Dense(4, "softmax")(old.GlobalAveragePooling2D()(x)))


def nested(tf_keras):
    """Return a nested model: Keras 2 counts its calls differently and stores its weights in another order."""
    old = tf_keras.layers
    body = [old.Conv2D(4, 3), old.BatchNormalization(), old.LeakyReLU(0.2), old.DepthwiseConv2D(3)]
    inner = tf_keras.Sequential(body, name="inner")
    inputs = old.Input(IMAGE)
    x = old.Concatenate()([inner(inputs), inner(old.ReLU()(inputs))])
    return tf_keras.Model(inputs, old.Dense(4, "softmax")(old.Flatten()(old.SpatialDropout2D(0.1)(x))))


@pytest.mark.parametrize(
    ("make", "name"),
    [
        pytest.param(make, name, marks=[] if name == "old.h5" or make is functional else [pytest.mark.slow])
        for make in (functional, sequential, separable, transposed, nested)
        for name in ("old.h5", "old.keras", "old")
    ],
)
def test_a_model_of_keras_2_is_translated(tmp_path, tf_keras, make, name):
    old = old_randomised(make(tf_keras))
    old.save(tmp_path / name, **({"save_format": "tf"} if name == "old" else {}))
    agrees(load_keras(tmp_path / name), lambda inputs: old(inputs, training=False))


def test_a_compiled_file_of_keras_2_is_translated(tmp_path, tf_keras):
    old = old_randomised(functional(tf_keras))
    old.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    old.save(tmp_path / "old.h5")
    agrees(load_keras(tmp_path / "old.h5"), old)


def test_a_nested_model_is_flattened(tmp_path):
    backbone = keras.Sequential(
        [keras.Input(IMAGE), layers.Conv2D(6, 3), layers.BatchNormalization(), layers.ReLU()], name="backbone"
    )
    inputs = keras.Input(IMAGE)
    x = layers.GlobalAveragePooling2D()(backbone(inputs))
    model = randomised(keras.Model(inputs, layers.Dense(4, "softmax")(x)))
    model.save(tmp_path / "nested.keras")
    flat = load_keras(tmp_path / "nested.keras")
    assert not any(isinstance(layer, keras.Model) for layer in flat.layers)
    assert "backbone_conv2d" in "".join(layer.name for layer in flat.layers)
    agrees(flat, model)


def test_the_built_in_model_is_accurate(digits_resnet):
    test = load_dataset("builtin:digits-test", signature_of(digits_resnet))
    assert evaluate(digits_resnet, test) > 0.97


@pytest.mark.slow
def test_the_built_in_model_is_reproduced_by_its_training(digits_resnet):
    # Processors differ in the last digits of sums, and training amplifies these differences.
    again = train_digits_resnet()
    test = load_dataset("builtin:digits-test", signature_of(again))
    assert [w.shape for w in again.get_weights()] == [w.shape for w in digits_resnet.get_weights()]
    assert evaluate(again, test) == pytest.approx(evaluate(digits_resnet, test), abs=0.01)


def test_an_unknown_built_in_model_is_refused():
    with pytest.raises(MistifyError, match="digits-resnet") as caught:
        builtin_source("cifar-resnet")
    assert caught.value.code is ErrorCode.NOT_FOUND


def refused(path, text, function=load_keras, *arguments):
    with pytest.raises(MistifyError, match="cannot be ported") as caught:
        function(path, *arguments)
    assert caught.value.code is ErrorCode.INVALID_MODEL
    (problem,) = caught.value.problems
    assert problem.place == str(path)
    assert text in str(problem)


@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
def test_a_file_without_a_model_is_refused(tmp_path, name):
    (tmp_path / name).write_bytes(b"no model" * 100)
    refused(
        tmp_path / name,
        "got a file that starts with" if name == "model.keras" else "a damaged or truncated HDF5 file",
    )


@pytest.mark.parametrize("name", ["model.tflite", "model", "MODEL.H5"])
def test_a_file_of_another_kind_is_refused(tmp_path, name):
    (tmp_path / name).touch()
    refused(tmp_path / name, "expected one of .keras, .h5, .hdf5")


def test_a_missing_file_is_refused(tmp_path):
    refused(tmp_path / "none.keras", "none.keras")


def test_an_old_file_with_an_unsupported_layer_is_refused(tmp_path, tf_keras):
    old = tf_keras.layers
    body = [old.DepthwiseConv2D(3), old.LocallyConnected2D(3, 3, name="local"), old.Flatten()]
    tf_keras.Sequential([old.Input(IMAGE), *body, old.Dense(4)]).save(tmp_path / "old.h5")
    refused(tmp_path / "old.h5", "local")


@pytest.mark.parametrize("make", ["depthwise", "plain"])
def test_code_in_a_file_of_keras_2_never_runs(tmp_path, tf_keras, make):
    old, ran = tf_keras.layers, tmp_path / "ran"
    path = str(ran)
    first = old.DepthwiseConv2D(3) if make == "depthwise" else old.Conv2D(3, 3)
    hidden = old.Lambda(lambda x, path=path: (open(path, "w").close(), x)[1], name="hidden")
    tf_keras.Sequential([old.Input(IMAGE), first, hidden, old.Flatten(), old.Dense(4)]).save(
        tmp_path / "old.h5"
    )
    ran.unlink()
    refused(tmp_path / "old.h5", "")
    assert not ran.exists()


def test_an_operation_in_a_file_of_keras_2_never_runs(tmp_path, tf_keras):
    import tensorflow as tf

    old = tf_keras.layers
    inputs = old.Input(IMAGE)
    x = tf.nn.relu(old.DepthwiseConv2D(3)(inputs))
    tf_keras.Model(inputs, old.Dense(4)(old.Flatten()(x))).save(tmp_path / "old.h5")
    refused(tmp_path / "old.h5", "is a TFOpLambda")


def free_size():
    inputs = keras.Input((None, None, 3))
    return keras.Model(inputs, layers.Dense(3)(layers.GlobalMaxPooling2D()(layers.Conv2D(4, 3)(inputs))))


def own_code():
    class Own(keras.layers.Layer):
        def build(self, input_shape):
            self.factor = self.add_weight(name="factor", shape=())

        def call(self, inputs):
            return inputs * self.factor

    inputs = keras.Input((4,))
    return keras.Model(inputs, layers.Dense(3)(Own(name="own")(inputs)))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (free_size, "(None, None, None, 3)"),
        (own_code, "layer 'own' is a "),
    ],
)
def test_a_model_that_cannot_be_adapted_is_refused(make, text):
    model = make()
    refused("its name", text, flatten, model)


@pytest.mark.parametrize("policy", ["mixed_float16", "bfloat16"])
def test_a_half_precision_model_is_adapted_in_float32(policy, tmp_path):
    inputs = keras.Input(IMAGE, name="image")
    x = layers.BatchNormalization(dtype=policy)(layers.Conv2D(6, 3, dtype=policy)(inputs))
    x = layers.Reshape((10, 60), dtype=policy)(x)
    lstm = layers.LSTM(4, recurrent_initializer="glorot_uniform", dtype=policy)
    x = layers.Bidirectional(lstm, dtype=policy)(x)
    x = keras.ops.relu(x) * 2
    model = randomised(keras.Model(inputs, layers.Dense(4, "softmax", dtype="float32")(x)))
    model.save(tmp_path / "half.keras")
    loaded = load_keras(tmp_path / "half.keras")
    assert {layer.compute_dtype for layer in loaded.layers if isinstance(layer, layers.Layer)} == {"float32"}
    assert {weight.dtype for weight in loaded.weights} == {"float32"}
    np.testing.assert_allclose(np.asarray(loaded(images())), np.asarray(model(images())), atol=0.03)


def test_weights_that_are_not_plain_floats_are_refused(tmp_path):
    inner = layers.Dense(6, name="inner")
    model = keras.Sequential([keras.Input((8,)), inner, layers.Dense(4)])
    model.quantize("int8")
    model.save(tmp_path / "model.keras")
    refused(tmp_path / "model.keras", "'inner', which is quantized; expected float weights")


def test_a_model_without_weights_is_refused(tmp_path):
    image = keras.Input((8, 8, 3))
    x = layers.Normalization(mean=[1.0, 2.0, 3.0], variance=[1.0, 1.0, 1.0])(image)
    keras.Model(image, layers.Softmax()(layers.GlobalAveragePooling2D()(x))).save(tmp_path / "model.keras")
    refused(tmp_path / "model.keras", "a model without weights, which leaves nothing to adapt")


@pytest.mark.parametrize("saved", [True, False])
def test_the_low_rank_factors_of_lora_are_merged_into_the_kernels(tmp_path, saved):
    """Keras saves the sum of a kernel and the product of its low-rank factors."""
    tokens = keras.Input((8,), dtype="int32")
    embedding, inner, dense = layers.Embedding(9, 6), layers.Dense(6, "relu"), layers.Dense(4)
    conv = layers.Conv1D(5, 3)
    nested = keras.Sequential([keras.Input((8, 6)), inner, layers.BatchNormalization()])
    x = keras.ops.relu(conv(nested(embedding(tokens))))
    model = randomised(keras.Model(tokens, dense(layers.TimeDistributed(layers.Dense(3))(x))))
    for layer in (embedding, inner, conv, dense):
        layer.enable_lora(2, lora_alpha=3)
    for weight in model.weights:
        if "lora" in weight.name:
            weight.assign(keras.random.normal(weight.shape, seed=1))
    ids = np.arange(16).reshape(2, 8) % 9
    expected = np.asarray(model(ids))
    if saved:
        model.save(tmp_path / "model.keras")
    loaded = load_keras(tmp_path / "model.keras") if saved else flatten("model", model)
    np.testing.assert_allclose(np.asarray(loaded(ids)), expected, rtol=1e-4, atol=1e-5)
    assert not [weight.path for weight in loaded.weights if "lora" in weight.path]
    assert all(weight.trainable for weight in loaded.weights if "moving" not in weight.name)

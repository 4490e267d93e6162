"""Blocks converted to files, compared with the networks that they were made from."""

import keras
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from benchmarks.elastic.blocks import with_features
from executors.structure.blocks import blocks_of
from mistify.costs.quantization import Quantization
from mistify.package.blocks import BLOCKS, BlockStore
from mistify.package.manifest import fixed_batch_signature
from mistify_server.worker.packaging.conversion.blocks import block_store
from mistify_server.worker.packaging.tflite.runner import SIGNATURE, Runner, signatures
from tests.executors.structure.networks import randomised
from tests.support import block_stores
from tests.support.block_stores import HALVED, LAST_TWO, ORIGINAL, called, images, residual, variants

layers = keras.layers
PRECISIONS = (Quantization.NONE, Quantization.INT8)


def manifest(files):
    return BlockStore.model_validate_json(files[BLOCKS])


def run_chain(files, names, inputs, signature=SIGNATURE):
    """Run the blocks one after another, and return the outputs of the last one."""
    for name in names:
        inputs = Runner(files[name], signature)(inputs)
    return inputs["scores"]


def test_a_store_has_a_file_for_each_block_with_its_position():
    store = manifest(block_stores.files(Quantization.NONE))
    assert {variant.file: (variant.start, variant.span) for variant in store.variants} == {
        **{name: (start, 1) for start, name in enumerate(ORIGINAL)},
        HALVED: (1, 1),
        LAST_TWO: (2, 2),
    }
    assert [tensor.name for tensor in (*store.inputs, *store.positions, *store.outputs)] == [
        *("image", "stem_relu", "add_1", "flat", "scores")
    ]
    assert [tensor.shape for tensor in store.positions] == [(-1, 8, 8, 8), (-1, 8, 8, 8), (-1, 32)]


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("names", [ORIGINAL, (*ORIGINAL[:2], LAST_TWO)])
def test_a_chain_of_float_blocks_equals_the_network(names, batch):
    expected = called(residual(), images(batch))
    actual = run_chain(block_stores.files(Quantization.NONE), names, {"image": images(batch)})
    np.testing.assert_allclose(actual, expected, atol=1e-5)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_blocks_have_a_signature_for_one_example(precision):
    files = block_stores.files(precision)
    one = fixed_batch_signature(SIGNATURE)
    assert all(list(signatures(files[name])) == [SIGNATURE, one] for name in ORIGINAL)
    inputs = {"image": images(1)}
    np.testing.assert_array_equal(run_chain(files, ORIGINAL, inputs, one), run_chain(files, ORIGINAL, inputs))


def test_int8_blocks_read_the_integers_written_by_others():
    files = block_stores.files(Quantization.INT8)
    store = manifest(files)
    for variant in store.variants:
        run = Interpreter(model_content=files[variant.file]).get_signature_runner(SIGNATURE)
        for position, details in (
            (variant.start, run.get_input_details()),
            (variant.end, run.get_output_details()),
        ):
            (there,) = store.tensors_at(position)
            inner = 0 < position < store.last
            assert there.dtype == ("int8" if inner else "float32")
            assert details[there.name]["dtype"] == np.dtype(there.dtype)
            if inner:
                assert details[there.name]["quantization"] == (there.scale, there.zero_point)


def test_a_chain_of_int8_blocks_equals_the_network_within_one_step():
    blocks = blocks_of(residual(), 0.0)
    whole = Runner(with_features(blocks, {"image": images(40, seed=1)}))
    inputs = {"image": images(30, seed=2)}
    expected = whole(inputs)["scores"]
    actual = run_chain(block_stores.files(Quantization.INT8), ORIGINAL, inputs)
    step = np.diff(np.unique(expected)).min()
    assert np.abs(actual - expected).max() <= 1.01 * step
    np.testing.assert_allclose(actual, called(residual(), inputs["image"]), atol=0.1 * np.ptp(expected))


def dense_connections():
    """Return concatenations, which have one scale for inputs and outputs; added channels are small."""
    inputs = keras.Input((8, 8, 3), name="image")
    x = layers.Conv2D(6, 3, padding="same", activation="relu", name="stem")(inputs)
    for number in (1, 2):
        y = layers.Conv2D(4, 3, padding="same", activation="relu", name=f"grow_{number}")(x)
        x = layers.Concatenate(name=f"both_{number}")([x, y])
    model = keras.Model(inputs, layers.Dense(5, name="scores")(layers.GlobalAveragePooling2D()(x)))
    randomised(model)
    for number in (1, 2):
        layer = model.get_layer(f"grow_{number}")
        layer.set_weights([weight / 10 for weight in layer.get_weights()])
    return model


@pytest.mark.slow
def test_int8_blocks_with_concatenations_equal_the_network_within_one_step():
    examples = {"image": images(40, seed=1)}
    blocks = blocks_of(dense_connections(), 0.0)
    files = block_store(blocks, Quantization.INT8, examples)
    expected = Runner(with_features(blocks, examples))(examples)["scores"]
    actual = run_chain(files, [block.file for block in blocks], examples)
    assert np.abs(actual - expected).max() <= 1.01 * np.diff(np.unique(expected)).min()


def test_a_variant_of_another_range_writes_integers_of_the_same_scale():
    """Its own scale would be half as large, but the next block reads that of the original."""
    files = block_stores.files(Quantization.INT8)
    features = Runner(files[ORIGINAL[0]])({"image": images(40, seed=1)})
    halved = next(block for block in variants(residual()) if block.file == HALVED)
    expected = called(halved.model, features["stem_relu"])
    step = manifest(files).positions[1].scale
    assert np.abs(Runner(files[HALVED])(features)["add_1"] - expected).max() < 2 * step
    assert np.ptp(expected) > 20 * step


def test_blocks_without_integer_kernels_pass_floats():
    inputs = keras.Input((6,), name="x")
    x = keras.ops.square(layers.Dense(5, activation="sigmoid", name="first")(inputs))
    model = randomised(keras.Model(inputs, layers.Dense(3, name="scores")(x)))
    examples = {"x": np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)}
    files = block_store(blocks_of(model, 0.0), Quantization.INT8, examples)
    (passed,) = manifest(files).positions
    assert passed.dtype == "float32"
    actual = run_chain(files, ("block-00.tflite", "block-01.tflite"), examples)
    np.testing.assert_allclose(actual, called(model, examples["x"]), atol=0.05)


def test_a_feature_that_is_also_an_output_is_returned_unchanged():
    inputs = keras.Input((6,), name="x")
    x = layers.Dense(5, activation="relu", name="first")(inputs)
    model = randomised(keras.Model(inputs, [x, layers.Dense(3, name="scores")(x)]))
    examples = {"x": np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)}
    files = block_store(blocks_of(model, 0.0), Quantization.INT8, examples)
    tensors = examples
    for block in sorted(name for name in files if name != BLOCKS):
        tensors = Runner(files[block])(tensors)
    features, scores = (np.asarray(output) for output in model(examples["x"], training=False))
    by_shape = {array.shape[-1]: array for array in tensors.values()}
    np.testing.assert_allclose(by_shape[5], features, atol=0.1)
    np.testing.assert_allclose(by_shape[3], scores, atol=0.1)


def test_several_inputs_and_outputs_belong_to_the_first_and_last_block():
    left, right = keras.Input((4,), name="left"), keras.Input((4,), name="right")
    x = layers.Dense(6, activation="relu", name="first")(layers.Add(name="sum")([left, right]))
    model = randomised(
        keras.Model([left, right], [layers.Dense(2, name="a")(x), layers.Dense(3, name="b")(x)])
    )
    files = block_store(blocks_of(model, 0.0), Quantization.NONE)
    rng = np.random.default_rng(0)
    arrays = {name: rng.normal(size=(3, 4)).astype(np.float32) for name in ("left", "right")}
    passed = Runner(files["block-00.tflite"])(arrays)
    actual = Runner(files["block-01.tflite"])(passed)
    for name, expected in zip("ab", model(list(arrays.values())), strict=True):
        np.testing.assert_allclose(actual[name], expected, atol=1e-5)
    store = manifest(files)
    assert [tensor.name for tensor in store.inputs] == ["left", "right"]
    assert [tensor.name for tensor in store.outputs] == ["a", "b"]


def test_the_scale_is_taken_from_the_first_block():
    blocks = variants(residual())
    halved_first = [block for block in blocks if block.name == "halved"]
    others = [block for block in blocks if block not in halved_first and block.name != "last-two"]
    files = block_store([others[0], *halved_first, *others[1:]], Quantization.INT8, {"image": images(40, 1)})
    by_original = manifest(block_stores.files(Quantization.INT8)).positions[1].scale
    assert manifest(files).positions[1].scale < 0.8 * by_original

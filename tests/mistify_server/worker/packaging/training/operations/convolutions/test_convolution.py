"""Every layout of a convolution equals TensorFlow's convolution, including gradients."""

import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

from mistify.package.training import KD_WEIGHT
from mistify_server.worker.packaging.training.network import TrainingNetwork
from mistify_server.worker.packaging.training.operations.builtins import in_builtins
from mistify_server.worker.packaging.training.operations.convolutions import column_pairs, window_products
from mistify_server.worker.packaging.training.operations.windows import WindowAxis
from tests.mistify_server.worker.packaging.training.networks import (
    lesson_of,
    network,
    objectives_of,
    tuning_of,
)

#: Kernels, strides and dilations, with the rows and columns of the images.
MOVEMENTS = [
    *((kernel, 1, 1) for kernel in (1, 2, 3, 5)),
    *((kernel, stride, 1) for kernel in (1, 2, 3, 5) for stride in (2, 3)),
    *((3, 1, 2), (2, 1, 3)),
]
SIZES = [(9, 8), *(pytest.param(size, marks=pytest.mark.slow) for size in ((7, 7), (6, 10)))]


def difference(layout, image, kernel, movement, padding):
    """Return the largest relative differences of the convolution and both gradients.

    The gradient of `tf.nn.conv2d` supports dilation only with oneDNN, that of `tf.nn.convolution` always.
    """
    size, stride, dilation = movement
    rows, columns = (WindowAxis.of(size, stride, dilation, length, padding) for length in image.shape[1:3])
    image, kernel = tf.constant(image), tf.constant(kernel)
    with tf.GradientTape() as tape:
        tape.watch([image, kernel])
        made = tf.nn.convolution(image, kernel, stride, padding, dilations=dilation)
        upstream = tf.constant(np.random.default_rng(1).normal(size=made.shape).astype(np.float32))
        product = tf.reduce_sum(made * upstream)
    expected = [made, *tape.gradient(product, [image, kernel])]
    actual = [
        layout.convolved(image, kernel[None], rows, columns),
        layout.image_gradient(upstream, kernel[None], rows, columns),
        layout.kernel_gradient(image, upstream, kernel[None], rows, columns)[0],
    ]
    return [
        np.abs(ours - theirs).max() / np.abs(theirs).max()
        for ours, theirs in zip(actual, expected, strict=True)
    ]


def tensors(images, size, channels, made, kernel):
    rng = np.random.default_rng(0)
    shapes = ((images, *size, channels), (kernel, kernel, channels, made))
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("movement", MOVEMENTS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(("channels", "made"), [(3, 33), (16, 5), (40, 20)])
def test_gathered_windows_equal_a_convolution(movement, size, padding, channels, made):
    for images in (1, 3):
        image, kernel = tensors(images, size, channels, made, movement[0])
        assert max(difference(window_products, image, kernel, movement, padding)) < 1e-5


@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(("images", "size"), [(1, (9, 8)), (3, (5, 10)), (24, (24, 24))])
def test_column_pairs_equal_a_convolution(kernel, padding, images, size):
    """The largest batch is computed in three parts."""
    image, weights = tensors(images, size, 16, 9, kernel)
    axes = [WindowAxis.of(kernel, 1, 1, length, padding) for length in size]
    assert column_pairs.fits((1, *weights.shape), *axes)
    assert max(difference(column_pairs, image, weights, (kernel, 1, 1), padding)) < 1e-5


@pytest.mark.parametrize(
    ("shape", "stride", "width"),
    [
        ((1, 3, 3, 16, 16), 1, 9),
        ((1, 3, 3, 16, 16), 2, 8),
        ((1, 1, 1, 16, 16), 1, 8),
        ((2, 3, 3, 8, 8), 1, 8),
        ((1, 3, 3, 3, 16), 1, 8),
        ((1, 3, 3, 16, 32), 1, 8),
        ((1, 2, 2, 16, 16), 1, 8),
    ],
)
def test_convolutions_unsuitable_for_column_pairs_are_recognised(shape, stride, width):
    axes = [WindowAxis.of(shape[1], stride, 1, length, "SAME") for length in (8, width)]
    assert not column_pairs.fits(shape, *axes)


@pytest.mark.parametrize("layout", [column_pairs, window_products])
def test_a_free_batch_size_is_supported(layout):
    image, kernel = (tf.constant(tensor) for tensor in tensors(3, (6, 8), 16, 16, 3))
    rows, columns = (WindowAxis.of(3, 1, 1, length, "SAME") for length in (6, 8))

    @tf.function(input_signature=[tf.TensorSpec((None, 6, 8, 16))], autograph=False)
    def convolved(images):
        return layout.convolved(images, kernel[None], rows, columns)

    for count in (1, 3):
        expected = tf.nn.conv2d(image[:count], kernel, 1, "SAME")
        np.testing.assert_allclose(convolved(image[:count]), expected, atol=1e-4)


def test_frozen_kernels_stay_convolutions_and_pass_on_gradients():
    model = network("convolution 3 same stride 2 dilation 1")
    stem = model.get_layer("stem")
    made = TrainingNetwork(model, {"stem/kernel": stem.kernel}, objectives_of(model), tuning_of())
    lesson = {name: tf.constant(array) for name, array in lesson_of(model).items()}
    lesson[KD_WEIGHT] = tf.constant(0.5)
    weights = [tf.constant(stem.kernel.numpy())]

    def loss_of(weights, lesson):
        return made.loss(made.call(weights, lesson), lesson)

    @tf.function(autograph=False)
    def actual(weights, lesson):
        return tf.gradients(in_builtins(loss_of)(weights, lesson), weights)

    with tf.GradientTape() as tape:
        tape.watch(weights)
        loss = loss_of(weights, lesson)
    (expected,) = tape.gradient(loss, weights)
    operations = actual.get_concrete_function(weights, lesson).graph.get_operations()
    types = [operation.type for operation in operations if operation.type.startswith("Conv2D")]
    assert types == ["Conv2D", "Conv2DBackpropInput"], "only of the frozen convolution"
    np.testing.assert_allclose(
        actual(weights, lesson)[0], expected, atol=1e-5 * float(tf.reduce_max(tf.abs(expected)))
    )


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_gradients_of_frozen_convolutions_agree_with_tensorflow_in_litert(padding):
    """LiteRT's transposed convolution pads on its own, at every stride and kernel size."""
    kernels = {movement: tensors(1, (1, 1), 5, 4, movement[0])[1] for movement in MOVEMENTS}
    image = np.random.default_rng(2).normal(size=(3, 9, 8, 5)).astype(np.float32)

    def convolved(image, convolution=tf.nn.convolution):
        return {
            f"{at}": convolution(image, kernels[movement], movement[1], padding, dilations=movement[2])
            for at, movement in enumerate(MOVEMENTS)
        }

    @tf.function(input_signature=[tf.TensorSpec(image.shape, name="images")], autograph=False)
    def gradients(images):
        made = in_builtins(lambda images: convolved(images, tf.nn.conv2d))(images)
        return {name: tf.gradients(tf.reduce_sum(one * one), images)[0] for name, one in made.items()}

    module = tf.Module()
    module.gradients = gradients
    concrete = gradients.get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete], module)
    runner = Interpreter(model_content=converter.convert()).get_signature_runner()
    actual = runner(images=image)
    with tf.GradientTape(persistent=True) as tape:
        constant = tf.constant(image)
        tape.watch(constant)
        losses = {name: tf.reduce_sum(one * one) for name, one in convolved(constant).items()}
    for name, loss in losses.items():
        expected = tape.gradient(loss, constant).numpy()
        np.testing.assert_allclose(actual[name], expected, atol=1e-5 * np.abs(expected).max())

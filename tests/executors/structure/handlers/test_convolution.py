import keras
import pytest

from executors.structure import analyse

layers = keras.layers


def cost_of(layer, shape, **widths):
    """Return multiply-adds and parameters of a layer with inputs of a shape."""
    inputs = keras.Input(shape)
    structure = analyse(keras.Model(inputs, layer(inputs)))
    (cost,) = structure.network(widths).layers
    return cost.multiply_adds, cost.params


@pytest.mark.parametrize(
    ("layer", "shape", "expected"),
    [
        # 3 * 16 * 9 at 8 x 8 positions; the bias adds parameters but no multiply-adds.
        (layers.Conv2D(16, 3, padding="same"), (8, 8, 3), (3 * 16 * 9 * 64, 3 * 16 * 9 + 16)),
        (layers.Conv2D(16, 3, use_bias=False), (8, 8, 3), (3 * 16 * 9 * 36, 3 * 16 * 9)),
        (layers.Conv2D(16, (3, 1), strides=2, padding="same"), (8, 6, 3), (3 * 16 * 3 * 12, 160)),
        (layers.Conv2D(16, 3, dilation_rate=2), (8, 8, 3), (3 * 16 * 9 * 16, 448)),
        (layers.Conv1D(4, 5), (9, 2), (2 * 4 * 5 * 5, 44)),
        (layers.Conv3D(2, 2), (3, 3, 3, 4), (4 * 2 * 8 * 8, 66)),
        # 4 groups: each output channel reads 2 of the 8.
        (layers.Conv2D(12, 3, groups=4), (6, 6, 8), (2 * 12 * 9 * 16, 2 * 12 * 9 + 12)),
        (layers.DepthwiseConv2D(3), (6, 6, 8), (8 * 9 * 16, 8 * 9 + 8)),
        (layers.DepthwiseConv2D(3, depth_multiplier=2), (6, 6, 8), (16 * 9 * 16, 16 * 9 + 16)),
        (layers.Conv2D(8, 3, groups=8), (6, 6, 8), (8 * 9 * 16, 8 * 9 + 8)),
        (layers.DepthwiseConv1D(3, depth_multiplier=2), (6, 4), (8 * 3 * 4, 8 * 3 + 8)),
        # Depthwise at 4 x 4, then 16 -> 5 at 4 x 4.
        (layers.SeparableConv2D(5, 3, depth_multiplier=2), (6, 6, 8), (16 * 9 * 16 + 16 * 5 * 16, 229)),
        (layers.SeparableConv1D(5, 3), (6, 4), (4 * 3 * 4 + 4 * 5 * 4, 4 * 3 + 4 * 5 + 5)),
        # Each of the 4 x 4 input positions is multiplied by the whole kernel.
        (layers.Conv2DTranspose(6, 3, strides=2), (4, 4, 5), (5 * 6 * 9 * 16, 5 * 6 * 9 + 6)),
        (layers.Conv1DTranspose(6, 3, strides=2), (4, 5), (5 * 6 * 3 * 4, 96)),
        (layers.Dense(10), (128,), (1_280, 1_290)),
        (layers.Dense(10), (7, 128), (7 * 1_280, 1_290)),
        (layers.ReLU(), (4, 4, 3), (0, 0)),
        (layers.BatchNormalization(), (4, 4, 3), (0, 12)),
        (layers.LayerNormalization(), (4, 3), (0, 6)),
        (layers.PReLU(shared_axes=[1]), (4, 3), (0, 3)),
    ],
)
def test_costs_match_values_computed_by_hand(layer, shape, expected):
    assert cost_of(layer, shape) == expected


def test_a_layer_called_twice_computes_twice_with_one_set_of_weights():
    inputs = keras.Input((4,))
    shared = layers.Dense(4)
    network = analyse(keras.Model(inputs, shared(shared(inputs)))).network()
    assert (network.flops, network.params) == (32, 20)


def resnet8():
    """Return the ResNet-8 of MLPerf Tiny: 32 x 32 x 3, stacks of 16, 32 and 64 channels, ten classes."""

    def norm(x):
        return layers.BatchNormalization()(x)

    inputs = keras.Input((32, 32, 3))
    x = layers.ReLU()(norm(layers.Conv2D(16, 3, padding="same", name="stem")(inputs)))
    for filters, strides in ((16, 1), (32, 2), (64, 2)):
        y = layers.Conv2D(filters, 3, strides, padding="same", name=f"first{filters}")(x)
        y = layers.Conv2D(filters, 3, padding="same", name=f"second{filters}")(layers.ReLU()(norm(y)))
        if strides != 1:
            x = layers.Conv2D(filters, 1, strides, padding="same", name=f"shortcut{filters}")(x)
        x = layers.ReLU()(layers.Add()([x, norm(y)]))
    x = layers.Flatten()(layers.AveragePooling2D(8)(x))
    return keras.Model(inputs, layers.Dense(10, name="logits")(x))


def test_costs_of_resnet8_match_values_computed_by_hand():
    model = resnet8()
    structure = analyse(model)
    network = structure.network()
    by_hand = (
        1024 * 9 * (3 * 16 + 2 * 16 * 16)
        + 256 * (9 * (16 * 32 + 32 * 32) + 16 * 32)
        + 64 * (9 * (32 * 64 + 64 * 64) + 32 * 64)
        + 640
    )
    assert network.flops == by_hand == 12_501_632
    assert network.params == model.count_params() == 78_666
    # Every batch norm is folded into a convolution that already has a bias.
    norms = 2 * (16 + 16 + 16 + 32 + 32 + 64 + 64)
    assert network.weight_bytes() == 4 * (78_666 - 2 * norms)
    # The stem's output for the shortcut, and both sides of the block's second convolution.
    assert network.activation_bytes() // 4 == 3 * 16 * 1024
    # Summed channels are one group: the stem with the first block, each shortcut with its block.
    assert structure.widths == {
        "stem": 16,
        "first16": 16,
        "first32": 32,
        "shortcut32": 32,
        "first64": 64,
        "shortcut64": 64,
    }


def test_costs_of_resnet8_at_half_width_match_values_computed_by_hand():
    structure = analyse(resnet8())
    network = structure.network({name: size // 2 for name, size in structure.widths.items()})
    assert network.flops == (
        1024 * 9 * (3 * 8 + 2 * 8 * 8)
        + 256 * (9 * (8 * 16 + 16 * 16) + 8 * 16)
        + 64 * (9 * (16 * 32 + 32 * 32) + 16 * 32)
        + 320
    )

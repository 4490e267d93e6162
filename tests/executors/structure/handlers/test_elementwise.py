import keras
import pytest

from executors.structure import analyse
from tests.executors.structure.networks import alternate, check_narrow, check_widen, randomised, unmasked

layers = keras.layers
IMAGE = [
    layers.AveragePooling2D(2),
    layers.Cropping2D(),
    layers.Dropout(0.5),
    layers.ELU(),
    layers.GaussianDropout(0.5),
    layers.GaussianNoise(0.5),
    layers.LeakyReLU(),
    layers.MaxPooling2D(),
    layers.PReLU(),
    layers.ReLU(),
    layers.Rescaling(2.0),
    layers.SpatialDropout2D(0.5),
    layers.UpSampling2D(),
    layers.ZeroPadding2D(),
    layers.Activation("gelu"),
    layers.ActivityRegularization(0.1),
    layers.BatchNormalization(),
]
STEPS = [
    layers.AveragePooling1D(2),
    layers.Cropping1D(),
    layers.MaxPooling1D(),
    layers.SpatialDropout1D(0.5),
    layers.UpSampling1D(),
    layers.ZeroPadding1D(),
    layers.LayerNormalization(),
]


@pytest.mark.parametrize("layer", IMAGE, ids=lambda layer: type(layer).__name__)
def test_layers_on_images_preserve_the_channel_group(layer):
    inputs = keras.Input((4, 4, 2))
    x = layers.Conv2D(3, 1, name="a")(inputs)
    assert analyse(keras.Model(inputs, layers.Dense(2)(layer(x)))).widths == {"a": 3}


@pytest.mark.parametrize("layer", STEPS, ids=lambda layer: type(layer).__name__)
def test_layers_on_sequences_preserve_the_channel_group(layer):
    inputs = keras.Input((4, 2))
    x = layers.Dense(3, name="a")(inputs)
    assert analyse(keras.Model(inputs, layers.Dense(2)(layer(x)))).widths == {"a": 3}


@pytest.mark.parametrize(
    "layer", [layers.Softmax(), layers.Activation("log_softmax"), layers.Normalization()]
)
def test_layers_that_mix_channels_fix_their_widths(layer):
    inputs = keras.Input((4,))
    x = layer(layers.Dense(3, name="a")(inputs))
    assert analyse(keras.Model(inputs, layers.Dense(2)(x))).widths == {}


@pytest.mark.parametrize("axes", [[1, 2], [1, 2, 3], [3]])
def test_slopes_are_cut_unless_shared_by_all_channels(axes):
    def build(mask):
        inputs = keras.Input((4, 4, 2))
        x = layers.PReLU(shared_axes=axes)(layers.Conv2D(3, 1, name="a")(inputs))
        return keras.Model(inputs, layers.Dense(2)(mask("a", x)))

    check_narrow(build, {"a": alternate(3)})
    check_widen(randomised(build(unmasked)))

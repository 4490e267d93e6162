import keras
import pytest

from tests.executors.structure.networks import alternate, check_narrow, check_widen, randomised, unmasked

layers = keras.layers


@pytest.mark.parametrize("merge", [layers.Add, layers.Multiply, layers.Subtract])
def test_values_without_channels_are_merged(merge):
    def build(mask):
        inputs = [keras.Input(()), keras.Input(())]
        x = layers.Dense(5, name="a")(layers.Reshape((1,))(merge()(inputs)))
        return keras.Model(inputs, layers.Dense(2)(mask("a", x)))

    check_narrow(build, {"a": alternate(5)})
    check_widen(randomised(build(unmasked)))

import keras
import pytest

from executors.structure.errors import UnsupportedLayerError
from executors.structure.handlers import elements, handler_of, positions, registered
from executors.structure.handlers.base import mixes_channels


def test_elements_and_positions_are_counted():
    assert elements((None, 4, 5, 3)) == 60
    assert positions((None, 4, 5, 3)) == 20
    assert elements((None, 7)) == 7
    assert positions((None, 7)) == 1


def test_free_sizes_have_no_elements():
    with pytest.raises(UnsupportedLayerError, match="expected fixed sizes"):
        elements((None, None, 3))


def test_only_functions_that_read_other_channels_mix_them():
    assert not mixes_channels(keras.activations.relu)
    assert not mixes_channels(keras.activations.get("swish"))
    assert mixes_channels(keras.activations.softmax)
    assert mixes_channels(keras.activations.glu)
    assert mixes_channels(lambda x: x)


@pytest.mark.parametrize("layer_class", registered())
def test_every_handler_is_found_only_for_its_layer(layer_class):
    instance = layer_class.__new__(layer_class)
    assert handler_of("layer", instance).couple.__doc__
    child = type("Child", (layer_class,), {})
    with pytest.raises(UnsupportedLayerError, match="Child"):
        handler_of("layer", child.__new__(child))

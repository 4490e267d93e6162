"""Dense layers over sequences and images are one operator of a package."""

import keras
import numpy as np
import pytest

from executors.structure import fold_batch_norm
from mistify.litert import Interpreter
from mistify_server.worker.packaging.conversion.converter import convert
from tests.executors.structure.networks import batch, outputs, randomised, same

layers = keras.layers


@pytest.mark.parametrize("shape", [(6,), (5, 6), (3, 4, 6)], ids=str)
@pytest.mark.parametrize("options", [{}, {"activation": "relu"}, {"use_bias": False}], ids=str)
def test_all_positions_are_multiplied_in_one_operator(shape, options):
    inputs = keras.Input(shape, name="x")
    model = randomised(keras.Model(inputs, layers.Dense(7, **options)(inputs)))
    arrays = batch(model)
    same(outputs(model, arrays), outputs(fold_batch_norm(model), arrays))
    interpreter = Interpreter(model_content=convert(model))
    kinds = [operator["op_name"] for operator in interpreter._get_ops_details()]
    assert kinds == ["FULLY_CONNECTED"]
    (place,) = (each["index"] for each in interpreter.get_input_details())
    interpreter.resize_tensor_input(place, arrays[0].shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(place, arrays[0].astype(np.float32))
    interpreter.invoke()
    (made,) = interpreter.get_output_details()
    same(outputs(model, arrays), [interpreter.get_tensor(made["index"])])

"""Checks of a plug-in's loss before training."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import keras
import numpy as np
import tensorflow as tf

from executors.data.dataset import Dataset
from executors.outputs.objectives import OutputObjective
from executors.outputs.plugged_in import plugged_in_loss
from executors.training.evaluation import call
from mistify.parsing.validation import InvalidValue, unknown_name

#: Number of examples for the check.
_TRIED: Final = 8


def check_output_loss(
    name: str, loss: str, objectives: Mapping[str, OutputObjective], model: keras.Model, data: Dataset
) -> None:
    """Check that an output exists, and can be trained with a plug-in's loss.

    Args:
        name: Name of the output.
        objectives: Output name -> its objective.
        data: Examples; a sample of them is used for the check.

    Raises:
        InvalidValue: There is no such output, the loss is for other kinds, it fails, it is not a finite
            number, or it has no gradient with respect to the predictions.
    """
    if name not in objectives:
        raise InvalidValue(name, *unknown_name(name, objectives))
    plugged_in = plugged_in_loss(loss)
    objective = replace(objectives[name], plugged_in=plugged_in)
    if objective.kinds.isdisjoint(plugged_in.kinds):
        kinds = " or ".join(sorted(objective.kinds))
        raise InvalidValue(loss, f"a loss of {kinds}, which {name} has", "leave it out, or use another one")
    some = data.subset(np.arange(min(len(data), _TRIED)))
    output, target = call(model, some.inputs, training=False)[name], tf.constant(some.targets[name])
    try:
        fault = _fault(objective, tf.cast(output, tf.float32), target)
    except Exception as error:  # a plug-in may raise anything
        fault = repr(error)
    if fault:
        raise InvalidValue(loss, "the name of a loss that can be used", f"fix the plug-in {loss}: {fault}")


def _fault(objective: OutputObjective, output: tf.Tensor, target: tf.Tensor) -> str:
    """Return the fault of a loss under training conditions (in a graph, with gradients); empty if none."""

    @tf.function(autograph=False)
    def differentiated(output: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
        loss = tf.convert_to_tensor(objective.loss(output, target))
        return loss, tf.gradients(loss, output)[0]

    loss, gradient = differentiated(output)
    if loss.shape != ():
        return f"it has the shape {tuple(loss.shape)}; expected a single figure"
    if gradient is None:
        return "it has no gradient with respect to the predictions"
    finite = np.isfinite(loss) and np.isfinite(gradient).all()
    return "" if finite else "it, or its gradient, is NaN or infinite for the model's predictions"

"""Pseudo-labels: a network's predictions as targets for inputs without labels."""

from collections.abc import Mapping

import numpy as np

from executors.data import Array, Dataset
from executors.data.errors import invalid
from executors.outputs.objectives import Binary, Categorical, OutputObjective, Regression
from executors.structure.signature import Activation, Output, Signature
from mistify.errors import Problem


def with_pseudo_labels(
    inputs: Mapping[str, Array],
    outputs: Mapping[str, Array],
    signature: Signature,
    *,
    source: str,
    objectives: Mapping[str, OutputObjective],
) -> Dataset:
    """Return inputs with a network's predictions as targets.

    Args:
        inputs: Input name -> [examples, ...].
        outputs: Output name -> the network's predictions [examples, ...].
        source: Name of the inputs in errors.
        objectives: Output name -> its objective, if labelled data determine it; otherwise its activation
            does.

    Returns:
        The inputs, with targets: the most probable class, 0 or 1, or the predicted figures.

    Raises:
        MistifyError: INVALID_DATASET if some of the predictions are not finite.
    """
    for name, array in (*inputs.items(), *outputs.items()):
        if not np.isfinite(array).all():
            fix = "use other data: for some of these, the model's outputs are not finite"
            raise invalid(Problem(source, f"NaN or infinity in {name}", "finite figures", fix))
    targets = {
        output.name: _target(objectives.get(output.name) or _objective(output), outputs[output.name])
        for output in signature.outputs
    }
    return Dataset(dict(inputs), targets)


def _objective(output: Output) -> OutputObjective:
    match output.activation:
        case Activation.SOFTMAX:
            return Categorical(output.activation)
        case Activation.SIGMOID:
            return Binary(output.activation)
        case _:
            return Regression(output.activation)


def _target(objective: OutputObjective, output: Array) -> Array:
    predicted = objective.predictions(output)
    if isinstance(objective, Categorical):
        return np.asarray(predicted.argmax(axis=-1), np.int64)
    return np.asarray(predicted >= 0.5, np.int64) if isinstance(objective, Binary) else predicted

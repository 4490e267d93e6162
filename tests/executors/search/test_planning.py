"""Which edges are planned before anything is cut; what is planned, tests/executors/test_morphnet.py has."""

import keras
import pytest

from executors.base import Assignment
from executors.morphnet import MorphNetExecutor
from executors.params import MorphNetParams, TrainingParams
from executors.structure import analyse, residual_blocks
from executors.training.setup import TrainingSetup
from mistify.costs.axes import costs_of
from mistify.costs.catalogue import HOST
from mistify.costs.profiles import NominalProfile


@pytest.mark.parametrize(
    ("axis", "planned"),
    [
        ("latency_ms@host", True),
        ("size_bytes@dynamic", True),  # kernels below 1,024 weights stay float32, and are larger
        ("size_bytes@int8", False),
        ("flops", False),
    ],
)
def test_what_falls_in_steps_is_planned(axis: str, planned: bool, trained, training_setup) -> None:
    structure = analyse(trained)
    whole = costs_of(structure.network(), (HOST,))
    for share, expected in ((0.7, planned), (1.0, False)):
        assignment = Assignment(trained, {axis: share * whole[axis]}, (HOST,), training_setup, 0, structure)
        network = MorphNetExecutor(MorphNetParams()).preview(assignment)
        assert (network is not None) is expected
        if network is not None:
            assert costs_of(analyse(network).network(), (HOST,))[axis] <= share * whole[axis]


def test_a_network_without_groups_cannot_be_planned(digits) -> None:
    """Its one layer makes the outputs, which stay."""
    inputs = keras.Input((8, 8, 1), name="image")
    outputs = keras.layers.Dense(10, "softmax", name="digit")(keras.layers.Flatten()(inputs))
    model = keras.Model(inputs, outputs)
    setup = TrainingSetup(*digits, None, TrainingParams(batch_size=32))
    structure = analyse(model)
    limit = {"latency_ms@host": 0.5 * HOST.latency_ms(structure.network())}
    assignment = Assignment(model, limit, (HOST,), setup, 0, structure)
    assert MorphNetExecutor(MorphNetParams()).preview(assignment) is None


def test_blocks_are_chosen_anew_where_the_hardware_is_much_slower_than_it_seemed(trained, training_setup):
    structure = analyse(trained)
    fast, slow = NominalProfile("board", 1.0, 0.5), NominalProfile("board", 0.1, 0.05)
    limit = {"latency_ms@board": 0.9 * fast.latency_ms(structure.network())}

    def blocks(executor, profile) -> list[str]:
        network = executor.preview(Assignment(trained, limit, (profile,), training_setup, 0, structure))
        return [block.name for block in residual_blocks(analyse(network).graph)]

    executor = MorphNetExecutor(MorphNetParams())
    assert len(blocks(executor, fast)) == 1
    assert blocks(executor, slow) == blocks(MorphNetExecutor(MorphNetParams()), slow) == []

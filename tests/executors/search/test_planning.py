"""Edges planned before the first cut; tests/executors/algorithms/morphnet/ tests the plans."""

import keras
import numpy as np
import pytest

from executors.algorithms.morphnet.executor import MorphNetExecutor
from executors.algorithms.morphnet.params import MorphNetParams
from executors.contract.assignment import Assignment
from executors.pruning.state import PruningState
from executors.search.planning import weights_of
from executors.structure import analyse, copied, removable_blocks, residual_blocks
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup
from mistify.costs.axes import costs_of
from mistify.costs.budget import FLOPS
from mistify.costs.catalogue import HOST
from mistify.costs.profiles import NominalProfile
from tests.executors.conftest import small_resnet


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("axis", "planned"),
    [
        ("latency_ms@host", True),
        ("size_bytes@dynamic", True),  # kernels with fewer than 1,024 weights stay float32, and are larger
        ("size_bytes@int8", False),
        ("flops", False),
    ],
)
def test_edges_with_stepwise_costs_are_planned(axis: str, planned: bool, trained, training_setup) -> None:
    structure = analyse(trained)
    whole = costs_of(structure.network(), (HOST,))
    for share, expected in ((0.7, planned), (1.0, False)):
        assignment = Assignment(trained, {axis: share * whole[axis]}, (HOST,), training_setup, 0, structure)
        network = MorphNetExecutor(MorphNetParams()).preview(assignment)
        assert (network is not None) is expected
        if network is not None:
            assert costs_of(analyse(network).network(), (HOST,))[axis] <= share * whole[axis]


def test_a_network_without_groups_cannot_be_planned(digits) -> None:
    """Its only layer produces the outputs, which cannot be cut."""
    inputs = keras.Input((8, 8, 1), name="image")
    outputs = keras.layers.Dense(10, "softmax", name="digit")(keras.layers.Flatten()(inputs))
    model = keras.Model(inputs, outputs)
    setup = TrainingSetup(*digits, None, TrainingParams(batch_size=32))
    structure = analyse(model)
    limit = {"latency_ms@host": 0.5 * HOST.latency_ms(structure.network())}
    assignment = Assignment(model, limit, (HOST,), setup, 0, structure)
    assert MorphNetExecutor(MorphNetParams()).preview(assignment) is None


@pytest.mark.slow
def test_blocks_are_chosen_again_if_the_hardware_is_much_slower_than_predicted(trained, training_setup):
    structure = analyse(trained)
    fast, slow = NominalProfile("board", 1.0, 0.5), NominalProfile("board", 0.1, 0.05)
    limit = {"latency_ms@board": 0.9 * fast.latency_ms(structure.network())}

    def blocks(executor, profile) -> list[str]:
        network = executor.preview(Assignment(trained, limit, (profile,), training_setup, 0, structure))
        return [block.name for block in residual_blocks(analyse(network).graph)]

    executor = MorphNetExecutor(MorphNetParams())
    assert len(blocks(executor, fast)) == 1
    assert blocks(executor, slow) == blocks(MorphNetExecutor(MorphNetParams()), slow) == []


def test_the_weight_of_a_group_is_the_loss_of_cutting_it_by_half(trained, training_setup):
    """Half of one group is dead, so that cutting it loses nothing; the other groups count more."""
    model = small_resnet()
    model.set_weights(trained.get_weights())
    structure = analyse(model)
    spare, *others = structure.groups
    group = structure.groups[spare]
    for slot in group.slots:
        variable = structure.graph.layers[slot.layer].weights[slot.weight]
        values = np.moveaxis(np.asarray(variable).copy(), slot.axis, 0)
        values[slot.positions[: group.size // 2].ravel()] = 0
        variable.assign(np.moveaxis(values, 0, slot.axis))
    assignment = Assignment(model, {FLOPS: 1.0}, (), training_setup, 0, structure)
    weights, blocks = weights_of(PruningState.of(copied(model), assignment, lambda _: None))
    assert set(blocks) == {block.name for block in removable_blocks(structure)}
    assert set(weights) == set(structure.groups)
    assert weights[spare] == pytest.approx(0.1 * max(weights.values()))
    assert min(weights[name] for name in others) > 1.5 * weights[spare]

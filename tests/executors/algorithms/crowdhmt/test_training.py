"""Variants that others surpass are dropped after distillation."""

import numpy as np
import pytest

from executors.algorithms.adaptivenet.space import SupernetSpace, VariantSpan
from executors.algorithms.adaptivenet.supernet import Supernet
from executors.algorithms.crowdhmt.executor import CrowdHmtExecutor
from executors.algorithms.crowdhmt.params import CrowdHmtParams
from executors.algorithms.crowdhmt.training import FamilyTraining, unsurpassed
from executors.contract.assignment import Assignment
from executors.contract.preparation import PreparationProgress
from executors.structure import analyse
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup
from mistify.costs.budget import FLOPS
from tests.executors.algorithms.adaptivenet.conftest import deep_resnet

BLOCKS = [VariantSpan(f"block-{number}", number, 1) for number in range(4)]

#: Loss, milliseconds and multiply-adds of each block of the network.
OWN = [[0.0, 2.0, 10.0]] * 4

PARAMS = CrowdHmtParams(
    merge=(), shrink=(0.5,), variants={"ghost": (0.5,), "separable": (1,)}, distil_steps=8, path_steps=8
)


@pytest.fixture(scope="module")
def assignment(digits):
    model = deep_resnet()
    setup = TrainingSetup(*digits, None, TrainingParams(batch_size=32))
    return Assignment(model, {FLOPS: 1.0}, (), setup, 3, analyse(model))


@pytest.mark.parametrize(
    ("variants", "kept"),
    [
        ({"a": (1, 1, 0.5, 1.0, 5.0), "b": (1, 1, 0.4, 1.0, 4.0)}, "b"),
        ({"a": (1, 1, 0.5, 1.0, 5.0), "b": (1, 1, 0.4, 1.1, 4.0)}, "ab"),  # b is slower
        ({"a": (1, 1, 0.5, 1.0, 5.0), "b": (2, 1, 0.4, 1.0, 4.0)}, "ab"),  # in another place
        ({"a": (1, 1, 0.5, 1.0, 5.0), "b": (1, 2, 0.4, 1.0, 4.0)}, "ab"),  # replaces more
        ({"a": (1, 1, 0.5, 1.0, 5.0), "b": (1, 1, 0.5, 1.0, 5.0)}, "a"),
        ({"a": (1, 1, 0.5, 1.0, 5.0), "b": (2, 1, 0.5, 2.1, 11.0)}, "a"),  # b saves nothing
        ({"a": (1, 2, 0.5, 3.9, 21.0), "b": (1, 2, 0.1, 4.1, 21.0)}, "a"),  # of the sum of two blocks
        ({"a": (1, 1, 0.5, 2.1, 11.0)}, "a"),  # nothing else is left
    ],
)
def test_only_variants_that_nothing_surpasses_are_kept(variants, kept):
    places = [VariantSpan(name, start, span) for name, (start, span, *_) in variants.items()]
    space = SupernetSpace((*BLOCKS, *places), 4)
    figures = np.array(OWN + [figures for _, _, *figures in variants.values()])
    assert "".join(space.places[number].name for number in unsurpassed(space, figures)) == kept


def test_dropped_variants_are_neither_trained_further_nor_packaged(assignment, monkeypatch):
    """The others have the losses that they have in the smaller supernet."""
    seen = []

    def every_second(training, losses):
        seen.append(list(losses))
        return range(training._supernet.space.blocks, len(losses), 2)

    monkeypatch.setattr(FamilyTraining, "worthwhile", every_second)
    progress = PreparationProgress()
    content = CrowdHmtExecutor(PARAMS).prepare(assignment, progress)
    supernet, losses = Supernet.loaded(content, assignment.source, PARAMS.largest)
    whole = Supernet.expanded(assignment.source, PARAMS, assignment.setup.train)
    names = [place.name for place in whole.space.places]
    blocks = whole.space.blocks
    assert [place.name for place in supernet.space.places] == names[:blocks] + names[blocks::2]
    assert len(losses) == len(supernet.space.places) < len(seen[0]) == len(names)
    assert len(seen) == 1
    inputs = assignment.setup.validation.subset(np.arange(20)).inputs
    for number in range(blocks, len(losses)):
        outputs = supernet.predictions(inputs, supernet.space.with_one(number))["digit"]
        assert np.isfinite(outputs).all()


def test_a_supernet_with_fewer_variants_gives_the_same_outputs(assignment):
    whole = Supernet.expanded(assignment.source, PARAMS, assignment.setup.train)
    blocks = whole.space.blocks
    numbers = [blocks + 1, blocks + 3]
    part = whole.keeping(numbers, assignment.source, PARAMS.largest)
    inputs = assignment.setup.validation.subset(np.arange(20)).inputs
    for place, number in enumerate(numbers, blocks):
        assert part.space.places[place] == whole.space.places[number]
        np.testing.assert_allclose(
            part.predictions(inputs, part.space.with_one(place))["digit"],
            whole.predictions(inputs, whole.space.with_one(number))["digit"],
            atol=1e-5,
        )

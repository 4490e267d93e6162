"""The operator families: which blocks they change, and the shapes and costs of their variants."""

import keras
import numpy as np
import pytest

from executors.algorithms.adaptivenet.params import VARIANTS
from executors.structure import analyse, fold_batch_norm
from mistify.plugins import plug_ins
from tests.executors.algorithms.crowdhmt.conftest import BLOCKS, block, examples

#: Family -> an amount, and the share of multiply-adds that remains of each block with such variants.
SHARES = {
    ("depth", 3): {"residual": 0.375, "strided": 0.4, "inverted": 0.643, "feed_forward": 0.125},
    ("fire", 0.5): {"residual": 0.336, "strided": 0.422},
    ("ghost", 0.5): {"residual": 0.573, "strided": 0.59, "inverted": 0.982, "plain": 0.574},
    ("kernel", 1): {"residual": 0.556, "strided": 0.573},
    ("low-rank", 0.5): {
        "residual": 0.396, "strided": 0.42, "inverted": 0.667, "plain": 0.387, "feed_forward": 0.469,
    },
    ("noise", 0.5): {
        "residual": 0.5, "strided": 0.52, "inverted": 0.5, "plain": 0.5, "feed_forward": 0.5,
        "attention": 0.375,
    },
    ("resolution", 0.5): {"residual": 0.25, "inverted": 0.25},
    ("separable", 1): {"residual": 0.257, "strided": 0.287, "plain": 0.478},
}  # fmt: skip


def maker(name):
    return plug_ins(VARIANTS)[name].load()()


@pytest.mark.parametrize("family", SHARES, ids=str)
def test_variants_are_cheaper_and_keep_the_shapes(family, made):
    name, amount = family
    shares = {}
    for kind in BLOCKS:
        model = block(kind)
        variant = made(model, maker(name), amount)
        if variant is not None:
            assert variant.output_shape == model.output_shape
            shares[kind] = analyse(variant).network().flops / analyse(model).network().flops
            assert shares[kind] < 1
    assert shares == pytest.approx(SHARES[family], abs=5e-4)


@pytest.mark.parametrize(("name", "amount"), SHARES, ids=str)
def test_batch_norms_of_variants_are_folded(name, amount, made):
    model = block("residual")
    variant = made(model, maker(name), amount)
    folded = fold_batch_norm(variant)
    assert not [layer for layer in folded.layers if isinstance(layer, keras.layers.BatchNormalization)]
    inputs = examples(model)
    np.testing.assert_allclose(folded(inputs), variant(inputs), atol=1e-4)

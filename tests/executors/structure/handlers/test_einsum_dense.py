import keras
import pytest

from executors.structure import UnsupportedLayerError, analyse
from executors.structure.handlers import handler_of
from tests.executors.structure.networks import (
    alternate,
    check_clone,
    check_narrow,
    check_widen,
    randomised,
    unmasked,
)

layers = keras.layers
STEPS, READ, MADE, HEADS = 4, 6, 8, 2

#: Name -> equation, shape of the output, axes of the bias, and the shape of the input.
CASES = {
    "dense": ("ab,bc->ac", (MADE,), "c", (READ,)),
    "of steps": ("abc,cd->abd", (STEPS, MADE), "d", (STEPS, READ)),
    "with an ellipsis": ("...x,xy->...y", MADE, "y", (STEPS, READ)),
    "without bias": ("abc,cd->abd", (None, MADE), None, (STEPS, READ)),
    "with a kernel per step": ("abc,bcd->abd", (STEPS, MADE), "bd", (STEPS, READ)),
    "into heads": ("btd,dnh->btnh", (STEPS, HEADS, MADE), "nh", (STEPS, READ)),
    "into heads with one bias": ("btd,dnh->btnh", (STEPS, HEADS, MADE), "h", (STEPS, READ)),
    "out of heads": ("btnh,nhd->btd", (STEPS, MADE), "d", (STEPS, HEADS, READ)),
    "transposed": ("abc,dc->adb", (MADE, STEPS), "d", (STEPS, READ)),
    "scaling": ("abc,c->abc", (STEPS, READ), "c", (STEPS, READ)),
    "of a step": ("abc,bd->adc", (MADE, READ), None, (STEPS, READ)),
    "of first axes": ("ab...,bc->ac...", (MADE,), None, (STEPS, READ)),
}


#: Names of products that make channels of their own.
MAKERS = [name for name in CASES if name not in ("transposed", "scaling", "of a step", "of first axes")]


def product(name, **options):
    equation, shape, bias, _ = CASES[name]
    return layers.EinsumDense(equation, shape, bias_axes=bias, name="product", **options)


def network(name):
    """Return a builder of a product of the channels of a dense layer."""

    def build(mask):
        inputs = keras.Input((*CASES[name][-1][:-1], 3))
        x = product(name, activation="relu")(mask("before", layers.Dense(READ, name="before")(inputs)))
        x = mask("product" if name in MAKERS else "before", x) if name in (*MAKERS, "scaling") else x
        x = layers.Dense(3, name="after")(x)
        return keras.Model(inputs, layers.Dense(2, name="out")(x))

    return build


@pytest.mark.parametrize("name", CASES)
def test_cutting_channels_equals_masking(name):
    widths = {"before": READ} if name not in MAKERS else {"before": READ, "product": MADE}
    keep = {group: alternate(width, number) for number, (group, width) in enumerate(widths.items())}
    structure, _ = check_narrow(network(name), keep)
    assert structure.widths == {**widths, "after": 3}


@pytest.mark.parametrize("name", CASES)
def test_widening_and_cloning_do_not_change_the_outputs(name):
    check_widen(randomised(network(name)(unmasked)))
    check_clone(randomised(network(name)(unmasked)))


def test_multiply_adds_match_values_computed_by_hand():
    counted = {}
    for name in CASES:
        costs = {layer.name: layer for layer in analyse(network(name)(unmasked)).network().layers}
        counted[name] = costs["product"].multiply_adds
    of_heads = dict.fromkeys(("into heads", "into heads with one bias", "out of heads"), 4 * 2 * 6 * 8)
    others = {"dense": 6 * 8, "scaling": 4 * 6}
    assert counted == dict.fromkeys(CASES, 4 * 6 * 8) | of_heads | others


def test_a_kernel_of_channels_alone_can_be_fitted_as_a_whole():
    windows = {}
    for name in CASES:
        structure = analyse(network(name)(unmasked))
        (node,) = (node for node in structure.graph.nodes if node.name == "product")
        products = handler_of("product", node.layer).products(node)
        windows[name] = [product.window is not None for product in products]
    whole = {"dense", "of steps", "with an ellipsis", "without bias"}
    apart = {"into heads", "into heads with one bias", "out of heads", "transposed"}
    assert windows == {name: [name in whole] if name in whole | apart else [] for name in CASES}


def test_a_product_that_moves_the_batch_is_refused():
    inputs = keras.Input(batch_shape=(5, 5))
    layer = layers.EinsumDense("ab,bc->ca", (5,), name="product")
    with pytest.raises(
        UnsupportedLayerError, match="'product' has the equation 'ab,bc->ca'; expected the batch"
    ):
        analyse(keras.Model(inputs, layer(inputs)))

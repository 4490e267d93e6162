import keras
import numpy as np
import pytest
import tensorflow as tf

from executors.structure import (
    Role,
    analyse,
    fold_batch_norm,
    narrow,
    narrow_arrays,
    trainable_weights,
    widen,
    widened,
)
from mistify.costs.axes import costs_of
from mistify.costs.catalogue import HOST
from tests.executors.structure.architectures import FAMILIES, MOSTLY_SLOW_FAMILIES
from tests.executors.structure.networks import (
    alternate,
    batch,
    check_clone,
    check_fold,
    check_narrow,
    check_widen,
    conv,
    outputs,
    randomised,
    same,
    same_costs,
    unmasked,
)

layers = keras.layers


def source_of(family, seed=0):
    build, _ = FAMILIES[family]
    return randomised(build(unmasked), seed)


@pytest.mark.parametrize("family", FAMILIES)
def test_groups_match_those_named_by_a_human(family):
    _, groups = FAMILIES[family]
    assert analyse(source_of(family)).widths == groups


@pytest.mark.parametrize("family", FAMILIES)
def test_narrowed_equals_masked(family):
    build, groups = FAMILIES[family]
    check_narrow(build, {name: alternate(size, i) for i, (name, size) in enumerate(groups.items())})


@pytest.mark.parametrize("family", MOSTLY_SLOW_FAMILIES)
def test_narrowed_to_one_unit_equals_masked(family):
    build, groups = FAMILIES[family]
    check_narrow(build, {name: np.arange(size) == size - 1 for name, size in groups.items()})


@pytest.mark.parametrize("family", MOSTLY_SLOW_FAMILIES)
def test_widened_equals_source(family):
    check_widen(source_of(family))


@pytest.mark.parametrize("family", MOSTLY_SLOW_FAMILIES)
def test_folded_equals_source(family):
    check_fold(source_of(family))


@pytest.mark.parametrize("family", MOSTLY_SLOW_FAMILIES)
def test_clone_equals_source(family):
    check_clone(source_of(family))


def arrays_like(model, seed=5):
    """Return arrays with the shapes of the weights, by name, and distinct values."""
    rng, weights = np.random.default_rng(seed), trainable_weights(model)
    assert len(weights) == len(model.trainable_variables)
    return {name: rng.normal(size=variable.shape).astype("float32") for name, variable in weights.items()}


def narrowed_with_weights(source, structure, keep, arrays):
    """Return the arrays after `narrow` has cut them as weights of the source."""
    kept = source.get_weights()
    for name, variable in trainable_weights(source).items():
        variable.assign(arrays[name])
    small = narrow(structure, keep)
    source.set_weights(kept)
    return {name: variable.numpy() for name, variable in trainable_weights(small).items()}


@pytest.mark.parametrize("family", MOSTLY_SLOW_FAMILIES)
def test_arrays_are_cut_like_the_weights(family):
    """Every group separately, and all groups at once."""
    _, groups = FAMILIES[family]
    source = source_of(family)
    structure, arrays = analyse(source), arrays_like(source)
    masks = {name: alternate(size, i) for i, (name, size) in enumerate(groups.items())}
    for keep in [masks, *({name: mask} for name, mask in masks.items())]:
        expected = narrowed_with_weights(source, structure, keep, arrays)
        actual = narrow_arrays(structure, keep, arrays)
        assert actual.keys() == expected.keys()
        for name, array in actual.items():
            np.testing.assert_array_equal(array, expected[name], name)


def test_some_arrays_are_cut_without_the_others():
    source = source_of("residual_identity")
    structure, arrays = analyse(source), arrays_like(source)
    keep = {"stem": alternate(6), "a1": alternate(5)}
    expected = narrowed_with_weights(source, structure, keep, arrays)
    some = {name: arrays[name] for name in ("a2/0", "stem_bn/1", "b1/0")}
    actual = narrow_arrays(structure, keep, some)
    assert actual.keys() == some.keys()
    for name, array in actual.items():
        np.testing.assert_array_equal(array, expected[name], name)


def test_arrays_without_cut_channels_are_not_changed():
    source = source_of("chain")
    structure, arrays = analyse(source), arrays_like(source)
    before = {name: array.copy() for name, array in arrays.items()}
    weights = source.get_weights()
    actual = narrow_arrays(structure, {"a": alternate(6)}, arrays)
    changed = {name for name in arrays if actual[name].shape != arrays[name].shape}
    assert changed == {"a/0", "b/0", "a_bn/0", "a_bn/1"}
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, before[name])
        if name not in changed:
            np.testing.assert_array_equal(actual[name], array)
    for old, new in zip(weights, source.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def perceptron(with_input=False, affine=True):
    """Return Dense -> LayerNormalization -> Dense; the norm may also cover the input."""
    inputs = keras.Input((4,))
    x = layers.Dense(6, activation="tanh", name="a")(inputs)
    if with_input:
        x = layers.Concatenate()([x, inputs])
    x = layers.LayerNormalization(center=affine, scale=affine, name="norm")(x)
    return randomised(keras.Model(inputs, layers.Dense(3, name="logits")(x)))


def perceptron_by_hand(source, x, keep):
    """Compute the same in NumPy with only the kept units before the norm."""
    kernel, bias = source.get_layer("a").get_weights()
    hidden = np.tanh(x @ kernel + bias)[:, keep]
    norm = source.get_layer("norm")
    spread = np.sqrt(hidden.var(axis=1, keepdims=True) + norm.epsilon)
    hidden = (hidden - hidden.mean(axis=1, keepdims=True)) / spread
    if norm.scale:
        gamma, beta = norm.get_weights()
        hidden = hidden * gamma[keep] + beta[keep]
    kernel, bias = source.get_layer("logits").get_weights()
    return hidden @ kernel[keep] + bias


@pytest.mark.parametrize("affine", [True, False])
def test_a_narrowed_layer_norm_has_the_statistics_of_the_kept_channels(affine):
    source = perceptron(affine=affine)
    keep = alternate(6)
    inputs = batch(source)
    small = narrow(analyse(source), {"a": keep})
    same([perceptron_by_hand(source, inputs[0], keep)], outputs(small, inputs))
    same_costs(analyse(source), {"a": 4}, small)


@pytest.mark.parametrize("affine", [True, False])
def test_a_layer_norm_is_widened_by_integer_factors(affine):
    source = perceptron(affine=affine)
    check_widen(source)
    assert analyse(widen(analyse(source), 1.3)).widths == {"a": 12}


@pytest.mark.parametrize("affine", [True, False])
def test_a_layer_norm_over_fixed_channels_is_not_widened(affine):
    source = perceptron(with_input=True, affine=affine)
    check_widen(source)
    assert analyse(widen(analyse(source), 2.0)).widths == {"a": 6}


def test_two_groups_before_one_layer_norm_are_widened_together():
    inputs = keras.Input((4,))
    a, b = layers.Dense(5, name="a")(inputs), layers.Dense(3, name="b")(inputs)
    x = layers.LayerNormalization()(layers.Concatenate()([a, b]))
    check_widen(randomised(keras.Model(inputs, layers.Dense(2)(x))))


@pytest.mark.parametrize("fixed_first", [True, False])
def test_groups_that_share_a_layer_norm_with_fixed_groups_are_not_widened(fixed_first):
    """`a` is normalised together with the inputs, `b` with `a`, and `c` with `b`; `d` is separate."""
    inputs = keras.Input((4,), name="given")
    a, b, c, d = (layers.Dense(5, name=name)(inputs) for name in "abcd")
    together = [(inputs, a), (a, b), (b, c)]
    normed = [
        layers.LayerNormalization()(layers.Concatenate()(pair))
        for pair in (together if fixed_first else together[::-1])
    ]
    model = randomised(keras.Model(inputs, layers.Dense(2)(layers.Concatenate()([*normed, d]))))
    check_widen(model)
    assert widened(analyse(model), 1.5) == {"a": 5, "b": 5, "c": 5, "d": 8}


def test_the_widths_of_a_widened_model_are_predicted():
    for model in (source_of("chain"), perceptron(), perceptron(with_input=True)):
        structure = analyse(model)
        for factor in (1.0, 1.3, 2.0):
            assert widened(structure, factor) == analyse(widen(structure, factor)).widths


@pytest.mark.parametrize(
    "family", ["chain", "depthwise_multiplier", "residual_identity", "flattened", "grouped"]
)
def test_new_units_are_not_identical_to_existing_ones_in_training(family):
    """At twice the width, every unit has a neighbouring variant with different gradients."""
    wide = widen(analyse(source_of(family)), 2.0, seed=3)
    inputs = batch(wide, size=8)
    targets = np.random.default_rng(0).integers(0, 3, 8)
    with tf.GradientTape() as tape:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(targets, wide(inputs[0]))
    paths = [variable.path for variable in wide.trainable_variables]
    gradients = dict(zip(paths, tape.gradient(loss, wide.trainable_variables), strict=True))

    def pairs(slot, array):
        units = np.moveaxis(np.asarray(array), slot.axis, 0)[slot.positions]
        units = units.reshape(len(slot.positions), -1)
        return units[0::2], units[1::2]

    for group in analyse(wide).groups.values():
        for slot in group.slots:
            variable = wide.get_layer(slot.layer).weights[slot.weight]
            if slot.role is Role.MAKES and len(variable.shape) > 1:
                old, new = pairs(slot, variable)
                assert np.linalg.norm(old - new, axis=1).min() > 0.1 * old.std()
            if slot.role is Role.SUMS:
                old, new = pairs(slot, gradients[variable.path])
                assert (np.linalg.norm(new, axis=1) > 1e-6).mean() > 0.5
                both = np.linalg.norm(old, axis=1) > 1e-6
                assert np.linalg.norm(old - new, axis=1)[both].min() > 1e-6


def test_copies_before_a_layer_norm_split_weights_unequally():
    """The statistics of the norm are only preserved if new units are copies."""
    inputs = keras.Input((4,))
    x = layers.LayerNormalization(name="norm")(layers.Dense(5, name="a")(inputs))
    wide = widen(analyse(randomised(keras.Model(inputs, layers.Dense(3, name="b")(x)))), 2.0, seed=3)
    made, summed = wide.get_layer("a").get_weights()[0], wide.get_layer("b").get_weights()[0]
    np.testing.assert_array_equal(made[:, 0::2], made[:, 1::2])
    assert np.abs(summed[0::2] / summed[1::2] - 1).min() > 1e-3


def test_widening_depends_only_on_its_seed():
    structure = analyse(source_of("chain"))
    first, again, other = (widen(structure, 1.5, seed).get_weights() for seed in (1, 1, 2))
    assert all(np.array_equal(left, right) for left, right in zip(first, again, strict=True))
    assert not all(np.array_equal(left, right) for left, right in zip(first, other, strict=True))


def test_the_source_is_not_changed():
    source = source_of("residual_identity")
    before = source.get_weights()
    small = narrow(analyse(source), {"stem": alternate(6)})
    wide = widen(analyse(source), 1.3)
    for model in (small, wide, fold_batch_norm(source)):
        model.set_weights([np.zeros_like(weight) for weight in model.get_weights()])
    assert all(np.array_equal(left, right) for left, right in zip(before, source.get_weights(), strict=True))


def test_options_of_layers_are_preserved():
    inputs = keras.Input((4,), name="features")
    x = layers.Dense(3, name="frozen", trainable=False)(inputs)
    x = layers.Dense(5, name="a", kernel_regularizer="l2")(x)
    x = layers.BatchNormalization(momentum=0.8, epsilon=0.01, name="bn")(x)
    source = randomised(keras.Model(inputs, layers.Dense(2)(x), name="net"))
    small = narrow(analyse(source), {"a": alternate(5)})
    assert (small.name, small.inputs[0].name) == ("net", "features")
    assert not small.get_layer("frozen").trainable
    assert small.get_layer("frozen").units == 3
    assert small.get_layer("a").kernel_regularizer is not None
    assert (small.get_layer("bn").momentum, small.get_layer("bn").epsilon) == (0.8, 0.01)


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        ({"nobody": np.ones(3, bool)}, r"keep\['nobody'\] is .*; expected one of \['a', 'b', 'c'\]"),
        ({"a": np.ones(3, bool)}, r"keep\['a'\] is .*; expected 6 booleans, one at least true"),
        ({"a": np.zeros(6, bool)}, r"keep\['a'\] is .*; expected 6 booleans, one at least true"),
    ],
)
def test_impossible_masks_are_refused(keep, message):
    with pytest.raises(ValueError, match=message):
        narrow(analyse(source_of("chain")), keep)


def test_widening_by_less_than_one_is_refused():
    with pytest.raises(ValueError, match=r"factor is 0\.5; expected at least 1"):
        widen(analyse(source_of("chain")), 0.5)


def test_a_cut_network_can_be_cut_again():
    """Cutting in two steps gives the same result as cutting once."""
    structure = analyse(source_of("squeeze_excite_reshape"))
    first, then = np.array([1, 1, 0, 1, 1, 1], bool), np.array([0, 1, 1, 0, 1], bool)
    at_once = np.array([0, 1, 0, 1, 0, 1], bool)
    twice = narrow(analyse(narrow(structure, {"a": first})), {"a": then})
    once = narrow(structure, {"a": at_once})
    assert all(np.array_equal(a, b) for a, b in zip(twice.get_weights(), once.get_weights(), strict=True))


class RandomNetwork:
    """A network of random blocks, identical at every `build`, with masks on the channels of blocks."""

    def __init__(self, seed):
        self.seed = seed
        self.groups = {}

    def build(self, mask):
        rng = np.random.default_rng(self.seed)
        inputs = keras.Input((6, 6, 2))
        self.groups = {}
        x, group = self._convolved(mask, inputs, rng)
        for _ in range(3):
            block = rng.choice([self._convolved, self._residual, self._depthwise, self._gated, self._plain])
            x, group = block(mask, x, rng, group)
        flat = layers.Flatten()(x) if rng.integers(2) else layers.GlobalMaxPooling2D()(x)
        return keras.Model(inputs, layers.Dense(3)(flat))

    def _new(self, rng, size=None):
        name = f"g{len(self.groups)}"
        self.groups[name] = size or int(rng.integers(2, 6))
        return name

    def _convolved(self, mask, x, rng, _group=None):
        name = self._new(rng)
        options = {"strides": int(rng.integers(1, 3))}
        return mask(name, conv(self.groups[name], name, **options)(x)), name

    def _plain(self, mask, x, rng, _group):
        name = self._new(rng)
        x = layers.SeparableConv2D(self.groups[name], 3, padding="same", activation="relu", name=name)(x)
        return mask(name, x), name

    def _residual(self, mask, x, rng, group):
        inner = self._new(rng)
        y = mask(inner, conv(self.groups[inner], inner)(x))
        y = mask(group, layers.Conv2D(x.shape[-1], 3, padding="same", name=f"{inner}_out")(y))
        return layers.Add()([x, y]), group

    def _depthwise(self, mask, x, _rng, group):
        y = layers.DepthwiseConv2D(3, padding="same")(x)
        return mask(group, layers.ReLU()(layers.BatchNormalization()(y))), group

    def _gated(self, mask, x, rng, group):
        name = self._new(rng)
        gate = layers.GlobalAveragePooling2D(keepdims=True)(x)
        gate = mask(name, layers.Dense(self.groups[name], activation="relu", name=name)(gate))
        return layers.Multiply()([layers.Dense(x.shape[-1], activation="sigmoid")(gate), x]), group


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(12))
def test_random_networks_are_narrowed_and_widened_correctly(seed):
    network = RandomNetwork(seed)
    source = randomised(network.build(unmasked), seed)
    assert analyse(source).widths == network.groups
    rng = np.random.default_rng(seed + 100)
    keep = {name: rng.random(size) < 0.6 for name, size in network.groups.items()}
    for mask in keep.values():
        mask[rng.integers(len(mask))] = True
    keep["g0"][:1] = False
    keep["g0"][1:] = True
    check_narrow(network.build, keep, seed)
    check_widen(source)
    check_fold(source)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_network_without_a_group_has_lower_costs(family):
    """Such costs are computed for the last unit of a group."""
    structure = analyse(source_of(family))
    whole = costs_of(structure.network(), [HOST])
    for group in structure.groups:
        without = costs_of(structure.network({**structure.widths, group: 0}), [HOST])
        assert without["params"] < whole["params"]
        assert without["latency_ms@host"] <= whole["latency_ms@host"]

import keras
import numpy as np
import pytest

from executors.structure import UnsupportedLayerError, analyse, narrow
from executors.structure.reading.composites import expanded
from tests.executors.structure.networks import alternate, batch, outputs, randomised, same

layers = keras.layers


class Block(layers.Layer):
    """A typical custom layer: two dense layers and a shortcut."""

    def __init__(self, width, **kwargs):
        super().__init__(**kwargs)
        self.first = layers.Dense(width, activation="relu", name="first")
        self.dropped = layers.Dropout(0.5, name="dropped")
        self.second = layers.Dense(4, name="second")

    def build(self, input_shape):
        self.first.build(input_shape)
        self.second.build((*input_shape[:-1], self.first.units))

    def call(self, inputs, gate=None, training=None):
        x = self.second(self.dropped(self.first(inputs), training=training))
        return inputs + (x if gate is None else x * gate)


def model_with(block, gated=False):
    inputs = keras.Input((4,), name="given")
    gate = keras.Input((4,), name="gate")
    x = layers.Dense(4, name="stem")(inputs)
    x = block(x, gate=gate) if gated else block(x)
    arrays = [inputs, gate] if gated else inputs
    return keras.Model(arrays, layers.Dense(2, name="out")(x))


def randomly_weighted(model):
    rng = np.random.default_rng(0)
    model.set_weights([rng.normal(0, 0.5, weight.shape) for weight in model.get_weights()])
    return model


@pytest.mark.parametrize("gated", [False, True])
def test_the_layers_inside_a_composite_layer_are_cut(gated):
    source = randomly_weighted(model_with(Block(6, name="block"), gated))
    structure, keep = analyse(source), alternate(6)
    assert structure.widths["block_first"] == 6
    arrays = batch(source)
    small = narrow(structure, {"block_first": keep})
    block = source.get_layer("block")
    kernel, bias = block.second.get_weights()
    block.second.set_weights([kernel * keep[:, None], bias])
    same(outputs(source, arrays), outputs(small, arrays))
    assert not any(isinstance(layer, Block) for layer in small.layers)


def test_layers_inside_respect_the_training_flag():
    small = narrow(analyse(randomly_weighted(model_with(Block(200, name="block")))), {})
    arrays = np.ones((3, 4), np.float32)
    keras.utils.set_random_seed(0)
    trained, again = (np.asarray(small(arrays, training=True)) for _ in range(2))
    assert np.abs(trained - again).max() > 1e-3


def test_a_shared_composite_layer_has_one_set_of_weights():
    block = Block(6, name="block")
    inputs = keras.Input((4,))
    source = randomly_weighted(keras.Model(inputs, layers.Dense(2)(block(block(inputs)))))
    small = narrow(analyse(source), {"block_first": alternate(6)})
    assert [layer.name for layer in small.layers if layer.weights and layer.name.startswith("block")] == [
        "block_first",
        "block_second",
    ]


def test_nested_composite_layers_are_cut():
    class Tower(layers.Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.blocks = [Block(5, name="a"), Block(6, name="b")]

        def call(self, inputs):
            for block in self.blocks:
                inputs = block(inputs)
            return inputs

    inputs = keras.Input((4,))
    source = keras.Model(inputs, layers.Dense(2)(Tower(name="tower")(inputs)))
    assert analyse(source).widths == {"tower_a_first": 5, "tower_b_first": 6}
    same(outputs(source, batch(source)), outputs(narrow(analyse(source), {}), batch(source)))


def test_a_layer_of_only_operations_is_supported():
    class Halved(layers.Layer):
        def call(self, inputs):
            return keras.ops.relu(inputs) / 2

    source = randomised(model_with(Halved(name="halved")))
    assert analyse(source).widths == {"stem": 4}


@pytest.mark.parametrize("nested", [False, True])
def test_a_subclassed_model_is_cut(nested):
    class Own(keras.Model):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.hidden = layers.Dense(5, activation="relu", name="hidden")
            self.out = layers.Dense(4, name="out")

        def call(self, reading, training=None):
            return self.out(self.hidden(reading))

    source = Own(name="own")
    source(np.ones((1, 4)))
    randomly_weighted(source)
    arrays = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
    inputs = keras.Input((4,))
    structure = analyse(keras.Model(inputs, source(inputs)) if nested else source)
    name, keep = "own_hidden" if nested else "hidden", alternate(5)
    assert structure.widths == {name: 5}
    assert nested or list(structure.graph.inputs.values()) == ["reading"]
    small = narrow(structure, {name: keep})
    kernel, bias = source.out.get_weights()
    source.out.set_weights([kernel * keep[:, None], bias])
    same([np.asarray(source(arrays))], [np.asarray(small(arrays))])


def test_operations_in_the_call_of_a_model_are_read():
    class Tripled(keras.Model):
        def call(self, inputs):
            return 3 * super().call(inputs)

    inputs = keras.Input((4,))
    hidden = layers.Dense(5, name="hidden")(inputs)
    source = randomised(Tripled(inputs, layers.Dense(3)(hidden)))
    structure = analyse(source)
    assert structure.widths == {"hidden": 5}
    same(outputs(source, batch(source)), outputs(narrow(structure, {}), batch(source)))


def test_an_unbuilt_model_is_refused():
    class Own(keras.Model):
        def call(self, inputs):
            return inputs

    with pytest.raises(UnsupportedLayerError, match=r"'mine' .* never built on one input"):
        analyse(Own(name="mine"))


class Branching(layers.Layer):
    def call(self, inputs):
        return inputs if float(keras.ops.sum(inputs)) > 0 else -inputs


class Noisy(layers.Layer):
    def call(self, inputs, training=None):
        return inputs + keras.random.normal((4,)) if training else inputs


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (Branching(name="odd"), "cannot be called on symbolic tensors"),
        (Noisy(name="odd"), "differently in training"),
    ],
)
def test_a_call_that_cannot_be_traced_is_refused(layer, reason):
    inputs = keras.Input((4,))
    arguments = keras.layers.Identity()(inputs)._keras_history.operation._inbound_nodes[0].arguments
    with pytest.raises(UnsupportedLayerError, match=f"layer 'odd' is a .*{reason}.*register"):
        expanded("odd", layer, arguments)


class Tied(layers.Layer):
    """A layer with tied weights: `back` uses the kernel of `there`."""

    def __init__(self, back, **kwargs):
        super().__init__(**kwargs)
        self.there, self.back = layers.Dense(4, name="there"), back

    def build(self, input_shape):
        self.there.build(input_shape)

    def call(self, inputs):
        return self.back(self.there(inputs), self.there.kernel)


class Drawing(layers.Layer):
    """A layer that adds random noise."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense, self.seed = layers.Dense(4), keras.random.SeedGenerator(0)

    def build(self, input_shape):
        self.dense.build(input_shape)

    def call(self, inputs):
        return self.dense(inputs) + keras.random.normal((4,), seed=self.seed)


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (
            Tied(lambda x, kernel: keras.ops.matmul(x, keras.ops.transpose(kernel)), name="odd"),
            "there/kernel",
        ),
        (Tied(lambda x, kernel: x * kernel[:, 0], name="odd"), "there/kernel"),
        (Drawing(name="odd"), "seed_generator_state"),
    ],
)
def test_a_call_that_reads_variables_directly_is_refused(layer, reason):
    """The variables would become constants that are neither cut nor trained with their layers."""
    with pytest.raises(UnsupportedLayerError, match=f"layer 'odd' is a .* reads .*{reason}.*register"):
        analyse(model_with(layer))


@pytest.mark.parametrize("nested", [False, True])
def test_an_operation_on_a_weight_is_refused(nested):
    inputs = keras.Input((4,), name="given")
    hidden = layers.Dense(4, name="hidden")
    x = hidden(inputs)
    outputs_ = Tied(keras.ops.matmul, name="odd")(x) if nested else x @ hidden.kernel
    name, weight = ("odd_matmul.*", "odd/there/kernel") if nested else ("matmul.*", "hidden/kernel")
    with pytest.raises(UnsupportedLayerError, match=f"'{name}' is given the weight '{weight}'"):
        analyse(keras.Model(inputs, layers.Dense(2)(outputs_)))


def test_a_subclassed_model_with_its_own_weights_is_refused():
    class Own(keras.Model):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.out = layers.Dense(4, name="out")
            self.offset = self.add_weight(shape=(4,), name="offset")

        def call(self, inputs):
            return self.out(inputs) + self.offset

    source = Own(name="own")
    source(np.ones((1, 4)))
    with pytest.raises(UnsupportedLayerError, match=r"given the weight '.*offset'"):
        analyse(source)


def test_an_implicit_mask_is_refused():
    inputs = keras.Input((5,), dtype="int32")
    x = layers.Embedding(7, 4, mask_zero=True)(inputs)
    source = keras.Model(inputs, layers.Dense(2)(Block(6, name="block")(x)))
    with pytest.raises(UnsupportedLayerError, match=r"'block' .* mask of an Embedding"):
        analyse(source)


DIVISIONS = {
    "equal parts": (lambda x: keras.ops.split(x, 3, axis=-1), [2, 2, 2]),
    "parts of given sizes": (lambda x: keras.ops.split(x, [1, 3], axis=2), [1, 2, 3]),
    "steps": (lambda x: keras.ops.unstack(x, axis=1), [6, 6, 6, 6]),
}


@pytest.mark.parametrize("name", DIVISIONS)
def test_a_tensor_is_divided_by_selecting_its_parts(name):
    divide, sizes = DIVISIONS[name]
    inputs = keras.Input((4, 3))
    x = layers.Dense(6, name="hidden")(layers.Dense(5, name="before")(inputs))
    parts = divide(keras.ops.tanh(x))
    assert [part.shape[-1] for part in parts] == sizes
    heads = [layers.Dense(2, name=f"head{number}")(part) for number, part in enumerate(parts)]
    source = randomised(keras.Model(inputs, heads))
    structure = analyse(source)
    assert structure.widths == {"before": 5} | ({"hidden": 6} if name == "steps" else {})
    arrays = batch(source)
    same(outputs(source, arrays), outputs(narrow(structure, {}), arrays))

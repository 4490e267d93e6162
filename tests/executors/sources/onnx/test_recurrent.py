"""Recurrent networks, against ONNX Runtime."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper

from executors.sources.onnx.loading import load_onnx
from executors.structure import analyse
from mistify.errors import MistifyError
from tests.support.onnx_files import Array, model, node, normal, outputs_of, written

STEPS, FEATURES, UNITS = 4, 5, 6
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}

#: The outputs of a node that the network returns.
READ = {"sequence": "y - -", "last": "- y -", "both": "y y2 -", "memory": "- - y", "all": "y y2 y3"}


def weights_of(kind: str, direction: str = "forward", bias: bool = True) -> dict[str, Array]:
    rows, count = GATES[kind] * UNITS, DIRECTIONS[direction]
    weights = {"w": normal(count, rows, FEATURES), "r": normal(count, rows, UNITS)}
    return weights | ({"b": normal(count, 2 * rows, seed=1)} if bias else {})


def check(tmp_path: Path, proto: Any, *data: Array) -> keras.Model:
    """Compare a network with ONNX Runtime on data in ONNX's order, in which the batch is the second axis."""
    path = written(tmp_path / "net.onnx", proto)
    network = load_onnx(path)
    names = [each.name for each in proto.graph.input]
    expected = outputs_of(path, dict(zip(names, data, strict=True)))
    made = keras.tree.flatten(network([np.moveaxis(each, 1, 0) for each in data], training=False))
    assert len(made) == len(expected)
    for own, other in zip(made, expected, strict=True):
        batch = other.shape.index(data[0].shape[1])
        np.testing.assert_allclose(own, np.moveaxis(other, batch, 0), rtol=1e-5, atol=1e-6)
    return network


def of_node(proto_node: Any, weights: dict[str, Array], **inputs: list[Any]) -> Any:
    outputs = [name for name in proto_node.output if name]
    return model([proto_node], inputs or {"x": [STEPS, "n", FEATURES]}, weights, outputs=outputs, opset=14)


def node_of(kind: str, inputs: str, outputs: str, **options: Any) -> Any:
    """Return a recurrent node; `-` is no input, and no output."""
    made = node(kind, inputs, "y", hidden_size=UNITS, **options)
    names = ["" if name == "-" else name for name in outputs.split()]
    made.output[:] = names if kind == "LSTM" else names[:2]
    return made


SEQUENCES = normal(STEPS, 3, FEATURES, scale=1.0)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("read", ["sequence", "last", "both"])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("LSTM", {}),
        ("GRU", {"linear_before_reset": 1}),
        ("GRU", {"linear_before_reset": 0}),
        ("RNN", {}),
    ],
    ids=["LSTM", "GRU", "early GRU", "RNN"],
)
def test_layers_are_those_of_keras(
    tmp_path: Path, kind: str, options: dict[str, Any], direction: str, read: str
) -> None:
    made = node_of(kind, "x w r b", READ[read], direction=direction, **options)
    network = check(tmp_path, of_node(made, weights_of(kind, direction)), SEQUENCES)
    expected = "Bidirectional" if direction == "bidirectional" else kind.replace("RNN", "SimpleRNN")
    assert [type(layer).__name__ for layer in network.layers if layer.weights] == [expected]


@pytest.mark.parametrize("kind", GATES)
def test_layers_without_biases_and_with_zeros_as_states(tmp_path: Path, kind: str) -> None:
    states = {"h": np.zeros((1, 1, UNITS), np.float32)} | (
        {"c": np.zeros((1, 1, UNITS), np.float32)} if kind == "LSTM" else {}
    )
    lengths = np.full(1, STEPS, np.int32)
    made = node_of(kind, "x w r - l h c" if kind == "LSTM" else "x w r - l h", READ["both"])
    weights = {**weights_of(kind, bias=False), **states, "l": lengths}
    check(tmp_path, of_node(made, weights, x=[STEPS, 1, FEATURES]), SEQUENCES[:, :1])


def test_a_simple_layer_with_relu(tmp_path: Path) -> None:
    made = node_of("RNN", "x w r b", READ["both"], activations=["Relu"])
    check(tmp_path, of_node(made, weights_of("RNN")), SEQUENCES)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("read", ["memory", "all"])
def test_the_memory_of_an_lstm_is_returned(tmp_path: Path, direction: str, read: str) -> None:
    made = node_of("LSTM", "x w r b", READ[read], direction=direction)
    check(tmp_path, of_node(made, weights_of("LSTM", direction)), SEQUENCES)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_gates_read_the_memory_through_peepholes(tmp_path: Path, direction: str) -> None:
    made = node_of("LSTM", "x w r b - - - p", READ["all"], direction=direction)
    peepholes = normal(DIRECTIONS[direction], 3 * UNITS, scale=1.0)
    check(tmp_path, of_node(made, {**weights_of("LSTM", direction), "p": peepholes}), SEQUENCES)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("LSTM", {}),
        ("GRU", {"linear_before_reset": 1}),
        ("GRU", {"linear_before_reset": 0}),
        ("RNN", {}),
        ("RNN", {"activations": ["Relu"]}),
    ],
    ids=["LSTM", "GRU", "early GRU", "RNN", "RNN with ReLU"],
)
def test_states_are_inputs_and_outputs(
    tmp_path: Path, kind: str, options: dict[str, Any], direction: str
) -> None:
    count = DIRECTIONS[direction]
    options = {key: value * count if key == "activations" else value for key, value in options.items()}
    names = {"h": [count, "n", UNITS]} | ({"c": [count, "n", UNITS]} if kind == "LSTM" else {})
    made = node_of(kind, " ".join(["x w r b -", *names]), READ["all"], direction=direction, **options)
    proto = of_node(made, weights_of(kind, direction), x=[STEPS, "n", FEATURES], **names)
    states = [normal(count, 3, UNITS, scale=0.5, seed=index) for index, _ in enumerate(names)]
    network = check(tmp_path, proto, SEQUENCES, *states)
    assert [tensor.name for tensor in network.inputs] == ["x", *names]


def test_learned_initial_states(tmp_path: Path) -> None:
    weights = {**weights_of("GRU"), "h": np.repeat(normal(1, 1, UNITS), 3, axis=1)}
    made = node_of("GRU", "x w r b - h", READ["both"], linear_before_reset=1)
    check(tmp_path, of_node(made, weights, x=[STEPS, 3, FEATURES]), SEQUENCES)


def test_steps_of_an_lstm_can_be_cut(tmp_path: Path) -> None:
    nodes = [
        node_of("LSTM", "x w r b", READ["memory"].replace("y", "c")),
        node("Squeeze", "c first", "s"),
        node("Gemm", "s k", "y"),
    ]
    weights = {**weights_of("LSTM"), "first": np.array([0]), "k": normal(UNITS, 3)}
    network = check(tmp_path, model(nodes, {"x": [STEPS, "n", FEATURES]}, weights), SEQUENCES)
    groups = analyse(network).groups.values()
    assert [group.size for group in groups] == [UNITS]
    cut = {slot.layer for group in groups for slot in group.slots}
    assert cut == {layer.name for layer in network.layers if layer.weights}


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_data_with_the_batch_first(tmp_path: Path, direction: str) -> None:
    """ONNX Runtime has no such layers on CPUs; the same weights make the same outputs with steps first."""
    made = node_of("LSTM", "x w r b", READ["both"], direction=direction, layout=1)
    weights = weights_of("LSTM", direction)
    path = written(tmp_path / "first.onnx", of_node(made, weights, x=["n", STEPS, FEATURES]))
    outputs = load_onnx(path)(np.moveaxis(SEQUENCES, 1, 0), training=False)
    made = node_of("LSTM", "x w r b", READ["both"], direction=direction)
    sequence, last = outputs_of(written(tmp_path / "net.onnx", of_node(made, weights)), {"x": SEQUENCES})
    np.testing.assert_allclose(outputs[0], sequence.transpose(2, 0, 1, 3), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(outputs[1], last.transpose(1, 0, 2), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("inputs", "options", "shape", "reason"),
    [
        ("x w r b l", {}, [STEPS, "n", FEATURES], "has sequences of lengths other than 4"),
        ("x w r b", {"clip": 1.0}, [STEPS, "n", FEATURES], "has a clip, or one"),
        ("x w r b", {"input_forget": 1}, [STEPS, "n", FEATURES], "or one gate for input and forgetting"),
        (
            "x w r b", {"activations": ["HardSigmoid", "Tanh", "Tanh"]}, [STEPS, "n", FEATURES],
            "has the activations hardsigmoid, tanh, tanh",
        ),
    ],
)  # fmt: skip
def test_options_that_keras_lacks_are_refused(
    tmp_path: Path, inputs: str, options: dict[str, Any], shape: list[Any], reason: str
) -> None:
    weights = {**weights_of("LSTM"), "l": np.array([4, 2], np.int32)}
    proto = of_node(node_of("LSTM", inputs, READ["sequence"], **options), weights, x=shape)
    with pytest.raises(MistifyError, match=f"node LSTM .*which .*{reason}"):
        load_onnx(written(tmp_path / "net.onnx", proto))


def test_the_batch_is_no_sequence(tmp_path: Path) -> None:
    nodes = [node("Tanh", "x", "t"), node_of("LSTM", "t w r b", READ["sequence"])]
    proto = model(nodes, {"x": ["n", STEPS, FEATURES]}, weights_of("LSTM"))
    with pytest.raises(MistifyError, match="has the steps of its sequences along the batch"):
        load_onnx(written(tmp_path / "net.onnx", proto))


def test_a_free_number_of_steps_is_given(tmp_path: Path) -> None:
    proto = of_node(node_of("LSTM", "x w r b", READ["last"]), weights_of("LSTM"), x=["steps", "n", FEATURES])
    path = written(tmp_path / "net.onnx", proto)
    with pytest.raises(MistifyError, match=r"net\.onnx\?x=224,5"):
        load_onnx(path)
    (expected,) = outputs_of(path, {"x": SEQUENCES})
    made = load_onnx(path, {"x": [STEPS, FEATURES]})(np.moveaxis(SEQUENCES, 1, 0), training=False)
    np.testing.assert_allclose(made[:, 0], expected[0], rtol=1e-5, atol=1e-6)


def test_long_sequences_with_a_state_are_refused(tmp_path: Path) -> None:
    made = node_of("LSTM", "x w r b", READ["memory"])
    proto = of_node(made, weights_of("LSTM"), x=[65, "n", FEATURES])
    with pytest.raises(MistifyError, match="with 65 steps; expected at most 64"):
        load_onnx(written(tmp_path / "net.onnx", proto))


def test_a_detector_keeps_its_state_and_takes_a_rate(tmp_path: Path) -> None:
    """As in voice detectors: a chunk of a signal, states of both kinds in one tensor, a sampling rate."""
    nodes = [
        node("Unsqueeze", "x one", "signal"),
        node("Conv", "signal kernel", "made", strides=[4]),
        *(node("Transpose", "made", "sequence", perm=[2, 0, 1]), node("Split", "state", "h c", axis=0)),
        node_of("LSTM", "sequence w r b - h c", "- last memory"),
        *(node("Concat", "last memory", "kept", axis=0), node("Squeeze", "last zero", "end")),
        *(node("Gemm", "end k", "logit"), node("Sigmoid", "logit", "y")),
        *(node("Cast", "rate", "number", to=TensorProto.FLOAT), node("Mul", "number nothing", "none")),
        node("Add", "kept none", "next"),
    ]
    weights = {
        **weights_of("LSTM"),
        "kernel": normal(FEATURES, 1, 4),
        "k": normal(UNITS, 1),
        "zero": np.array([0]),
        "one": np.array([1]),
        "nothing": np.float32(0),
    }
    inputs = {"x": ["n", 8], "state": [2, "n", UNITS]}
    proto = model(nodes, inputs, weights, outputs=["y", "next"], opset=13)
    proto.graph.input.append(helper.make_tensor_value_info("rate", TensorProto.INT64, []))
    path = written(tmp_path / "net.onnx", proto)
    with pytest.raises(MistifyError, match=r"an input 'rate' that is a single number.*net\.onnx\?rate=1"):
        load_onnx(path)
    network = load_onnx(path, {"rate": [16_000]})
    assert [tensor.shape for tensor in network.inputs] == [(None, 8), (None, 2, UNITS)]
    x, state = normal(3, 8, scale=1.0), normal(2, 3, UNITS)
    expected = outputs_of(path, {"x": x, "state": state, "rate": np.array(16_000)})
    made = network([x, np.moveaxis(state, 1, 0)], training=False)
    np.testing.assert_allclose(made[0], expected[0], rtol=1e-5)
    np.testing.assert_allclose(made[1], np.moveaxis(expected[1], 1, 0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("inputs", "moved"),
    [
        ({"x": ["n", 6], "s": [2, "n", 6]}, True),  # by its name
        ({"s": [2, None, 6], "x": [None, 6]}, True),  # by the only free size
        ({"x": [1, 6], "s": [2, 1, 6]}, True),  # by its size
        ({"x": ["n", 6], "s": ["n", 2, 6]}, False),
        ({"x": [2, 6], "s": [2, 1, 6]}, False),
    ],
    ids=["name", "free", "size", "first", "fixed"],
)
def test_the_batch_of_a_state_is_found(tmp_path: Path, inputs: dict[str, Any], moved: bool) -> None:
    axis = 0 if moved else 1
    nodes = [
        *(node("ReduceSum", "s axis", "t", keepdims=0), node("Add", "t x", "z"), node("Gemm", "z k", "y")),
    ]
    weights = {"axis": np.array([axis]), "k": normal(6, 3)}
    path = written(tmp_path / "net.onnx", model(nodes, inputs, weights))
    network, count = load_onnx(path), 1 if inputs["x"][0] == 1 else 2
    x, state = normal(count, 6), normal(*((2, count, 6) if moved else (count, 2, 6)))
    if inputs["s"] == [2, 1, 6] and not moved:
        state = normal(2, 1, 6)
    (expected,) = outputs_of(path, {"x": x, "s": state})
    given = {"x": x, "s": np.moveaxis(state, 1, 0) if moved else state}
    made = network([given[tensor.name] for tensor in network.inputs], training=False)
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)


def test_a_free_length_is_no_batch(tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "r"), node("Gemm", "r k", "y")]
    path = written(tmp_path / "net.onnx", model(nodes, {"x": [4, "length"]}, {"k": normal(6, 3)}))
    with pytest.raises(MistifyError, match=r"net\.onnx\?x=224"):
        load_onnx(path)
    assert load_onnx(path, {"x": [6]}).input_shape == (None, 6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("newer", [False, True], ids=["TorchScript", "dynamo"])
def test_layers_of_pytorch(tmp_path: Path, kind: str, newer: bool) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")

    class Tagger(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words = torch.nn.Embedding(50, 8)
            options = {"num_layers": 2, "batch_first": True, "bidirectional": True}
            self.layers = getattr(torch.nn, kind)(8, 6, **options)
            self.head = torch.nn.Linear(12, 4)

        def forward(self, x: Any) -> Any:
            return self.head(self.layers(self.words(x))[0])

    torch.manual_seed(0)
    network, x = Tagger().eval(), torch.randint(0, 50, (3, STEPS))
    names = {"input_names": ["x"], "output_names": ["y"], "dynamo": newer}
    free = {"dynamic_shapes": ({0: torch.export.Dim("n")},)} if newer else {"dynamic_axes": {"x": {0: "n"}}}
    torch.onnx.export(network, (x,), tmp_path / "net.onnx", **names, **free)
    made = load_onnx(tmp_path / "net.onnx")
    (expected,) = outputs_of(tmp_path / "net.onnx", {"x": x.numpy()})
    np.testing.assert_allclose(made(x.numpy(), training=False), expected, atol=1e-5)
    assert [type(layer).__name__ for layer in made.layers if layer.weights] == [
        *("Embedding", "Bidirectional", "Bidirectional", "Dense")
    ]

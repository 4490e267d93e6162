"""Files in unusual forms, and files that are damaged or made to harm."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
from onnx import TensorProto, helper, numpy_helper

from executors.inspection import SourceKind, inspect_source, onnx_file
from executors.sources.onnx.loading import load_onnx
from mistify.errors import ErrorCode, MistifyError
from tests.support.onnx_files import model, node, normal, outputs_of, written


def small(**changes: Any) -> onnx.ModelProto:
    """Return a network of one convolution and a product."""
    nodes = [
        node("Conv", "x conv.weight", "c", pads=[1, 1, 1, 1]),
        node("Relu", "c", "r"),
        node("GlobalAveragePool", "r", "g"),
        node("Flatten", "g", "f"),
        node("Gemm", "f fc.weight fc.bias", "y", transB=1),
    ]
    weights = {"conv.weight": normal(8, 3, 3, 3), "fc.weight": normal(5, 8), "fc.bias": normal(5)}
    options = {"inputs": {"x": ["n", 3, 8, 8]}, "weights": weights, **changes}
    return model(
        changes.pop("nodes", nodes), **{key: each for key, each in options.items() if key != "nodes"}
    )


def refused(text: str, path: Path, **options: Any) -> str:
    with pytest.raises(MistifyError) as caught:
        load_onnx(path, **options)
    assert caught.value.code is ErrorCode.INVALID_MODEL
    assert text in str(caught.value)
    return str(caught.value)


def with_external_data(tmp_path: Path, proto: onnx.ModelProto) -> Path:
    path = tmp_path / "exported" / "net.onnx"
    path.parent.mkdir()
    onnx.save_model(proto, path, save_as_external_data=True, location="net.data", size_threshold=0)
    return path


def test_names_are_those_of_the_weights(tmp_path: Path) -> None:
    network = load_onnx(written(tmp_path / "net.onnx", small()))
    assert [layer.name for layer in network.layers if layer.weights] == ["conv", "fc"]
    assert [tensor.name for tensor in network.inputs] == ["x"]
    assert network.layers[-1].name == "y"


def test_external_data_lie_beside_the_file(tmp_path: Path) -> None:
    path = with_external_data(tmp_path, small())
    x = normal(2, 3, 8, 8, scale=1.0)
    (expected,) = outputs_of(path, {"x": x})
    assert inspect_source(path.parent).kind is SourceKind.ONNX
    np.testing.assert_allclose(np.asarray(load_onnx(path.parent)(np.moveaxis(x, 1, -1))), expected, atol=1e-5)
    refused("expected net.onnx.data beside the model; give a directory that contains only", path)


def test_data_named_after_the_file_belong_to_it(tmp_path: Path) -> None:
    path, x = tmp_path / "net.onnx", normal(2, 3, 8, 8, scale=1.0)
    options = {"save_as_external_data": True, "size_threshold": 0}
    onnx.save_model(small(), path, location="net.onnx.data", **options)
    (tmp_path / "another.onnx").write_bytes(b"not read")
    (tmp_path / "link").hardlink_to(tmp_path / "net.onnx.data")  # as in the uploads of a server
    (expected,) = outputs_of(path, {"x": x})
    np.testing.assert_allclose(np.asarray(load_onnx(path)(np.moveaxis(x, 1, -1))), expected, atol=1e-5)
    whole = tmp_path / "elsewhere" / "whole.onnx"
    whole.parent.mkdir()
    whole.write_bytes(onnx_file.with_external_data(path) or b"")
    np.testing.assert_array_equal(outputs_of(whole, {"x": x})[0], expected)
    assert onnx_file.with_external_data(whole) is None


def test_halves_are_read_as_floats(tmp_path: Path) -> None:
    proto = small(kind=TensorProto.FLOAT16, output_kind=TensorProto.FLOAT16)
    for weight in proto.graph.initializer:
        halves = numpy_helper.to_array(weight).astype(np.float16)
        weight.CopyFrom(numpy_helper.from_array(halves, weight.name))
    path = written(tmp_path / "net.onnx", proto)
    x = normal(2, 3, 8, 8, scale=1.0).astype(np.float16)
    (expected,) = outputs_of(path, {"x": x})
    network = load_onnx(path)
    assert {weight.dtype for weight in network.weights} == {"float32"}
    np.testing.assert_allclose(
        np.asarray(network(np.moveaxis(x, 1, -1).astype(np.float32))), expected, atol=5e-3
    )


def test_simulated_quantization_is_read_as_a_float_network(tmp_path: Path) -> None:
    kernel = np.random.default_rng(0).integers(-127, 127, (8, 3, 3, 3)).astype(np.int8)
    nodes = [
        node("QuantizeLinear", "x scale zero", "q"),
        node("DequantizeLinear", "q scale zero", "d"),
        node("DequantizeLinear", "k scale zero", "w"),
        node("Conv", "d w", "y"),
    ]
    weights = {"scale": np.float32(0.02), "zero": np.int8(0), "k": kernel}
    network = load_onnx(written(tmp_path / "net.onnx", model(nodes, {"x": ["n", 3, 8, 8]}, weights)))
    x, plain = normal(2, 3, 8, 8, scale=1.0), kernel.astype(np.float32) * np.float32(0.02)
    float_file = model([node("Conv", "x w", "y")], {"x": ["n", 3, 8, 8]}, {"w": plain})
    (expected,) = outputs_of(written(tmp_path / "float.onnx", float_file), {"x": x})
    np.testing.assert_allclose(
        np.moveaxis(np.asarray(network(np.moveaxis(x, 1, -1))), -1, 1), expected, atol=1e-5
    )


def test_free_sizes_are_given(tmp_path: Path) -> None:
    path = written(tmp_path / "net.onnx", small(inputs={"x": ["n", 3, "height", "width"]}))
    message = refused("an input 'x' with free sizes ['n', 3, 'height', 'width']", path)
    assert '"net.onnx?x=3,224,224"' in message
    assert load_onnx(path, {"x": (3, 16, 12)}).input_shape == (None, 16, 12, 3)
    refused(
        "expected sizes that fit ['n', 3, 'height', 'width'] without the batch",
        path,
        sizes={"x": (16, 12, 3)},
    )
    refused("sizes of an input 'y'", path, sizes={"y": (3, 8, 8)})


def test_a_batch_of_minus_one_is_free(tmp_path: Path) -> None:
    path = written(tmp_path / "net.onnx", small(inputs={"x": [-1, 3, 8, -1]}))
    assert load_onnx(path, {"x": (3, 8, 8)}).input_shape == (None, 8, 8, 3)
    refused("an input 'x' with free sizes [-1, 3, 8, -1]", path)


def test_all_unknown_operators_are_named_at_once(tmp_path: Path) -> None:
    nodes = [
        node("Conv", "x conv.weight", "c"),
        helper.make_node("Frobnicate", ["c"], ["d"], name="first"),
        helper.make_node("Frobnicate", ["d"], ["e"], name="second"),
        helper.make_node("Own", ["e"], ["y"], name="third", domain="com.example"),
    ]
    message = refused("operators that are not supported", written(tmp_path / "net.onnx", small(nodes=nodes)))
    assert "Frobnicate (node first and 1 more), com.example.Own (node third)" in message


def test_an_unsupported_option_names_its_node(tmp_path: Path) -> None:
    nodes = [node("Conv", "x conv.weight", "c"), node("Softmax", "c", "y", axis=0, name="/head")]
    refused("node Softmax /head, which", written(tmp_path / "net.onnx", small(nodes=nodes)))


def test_the_first_node_that_differs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from executors.sources.onnx.registry import OPERATORS

    nodes = [node("Conv", "x conv.weight", "c"), node("Tanh", "c", "t"), node("Relu", "t", "y")]
    monkeypatch.setitem(OPERATORS, "Tanh", lambda _builder, _node, value: value)
    refused("first after node Tanh /Tanh_t", written(tmp_path / "net.onnx", small(nodes=nodes)))


def test_the_first_truth_values_that_differ_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from executors.sources.onnx.registry import OPERATORS

    nodes = [
        node("Conv", "x conv.weight", "c"),
        node("Greater", "c limit", "g"),
        node("Cast", "g", "y", to=TensorProto.FLOAT),
    ]
    weights = {"conv.weight": normal(8, 3, 3, 3), "limit": np.float32(0.1)}
    less = OPERATORS["Less"]
    monkeypatch.setitem(
        OPERATORS,
        "Greater",
        lambda builder, node, *arguments: less(builder, replace(node, operator="Less"), *arguments),
    )
    proto = small(nodes=nodes, weights=weights)
    refused("first after node Greater /Greater_g", written(tmp_path / "net.onnx", proto))


def test_a_nan_in_any_output_is_a_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from executors.sources.onnx.registry import OPERATORS

    nodes = [node("Conv", "x conv.weight", "c"), node("Relu", "c", "y"), node("Tanh", "c", "z")]
    proto = small(nodes=nodes, outputs=["y", "z"])
    monkeypatch.setitem(
        OPERATORS, "Tanh", lambda _builder, _node, value: value.with_tensor(value.tensor * np.nan)
    )
    refused(
        "differ from ONNX's by nan of the largest value, first after node Tanh",
        written(tmp_path / "net.onnx", proto),
    )


@pytest.mark.parametrize(("rows", "equal"), [(2, True), (300, False)])
def test_rows_of_tables_are_compared_as_far_as_they_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, equal: bool
) -> None:
    from executors.sources.onnx.registry import OPERATORS

    proto = model(
        [node("Gather", "table x", "y")], {"x": ["n", 9]}, {"table": normal(rows, 3)}, kind=TensorProto.INT64
    )
    path, gather = written(tmp_path / "net.onnx", proto), OPERATORS["Gather"]
    load_onnx(path)
    monkeypatch.setitem(
        OPERATORS,
        "Gather",
        lambda builder, node, table, rows: gather(
            builder, node, table * (np.arange(len(table)) < 2)[:, None], rows
        ),
    )
    if equal:
        load_onnx(path)
    else:
        refused("first after node Gather", path)


def test_rows_of_a_large_constant_table_are_constants(tmp_path: Path) -> None:
    nodes = [node("Gather", "table rows", "p"), node("MatMul", "x w", "a"), node("Add", "a p", "y")]
    weights = {"table": normal(512, 600), "rows": np.arange(128)[None], "w": normal(8, 600)}
    path, x = written(tmp_path / "net.onnx", model(nodes, {"x": ["n", 128, 8]}, weights)), normal(2, 128, 8)
    (expected,) = outputs_of(path, {"x": x})
    np.testing.assert_allclose(np.asarray(load_onnx(path)(x)), expected, atol=1e-5)


def _escaping(proto: onnx.ModelProto, path: Path) -> None:
    proto.graph.initializer[0].external_data[0].value = "../secret.data"


def _absolute(proto: onnx.ModelProto, path: Path) -> None:
    proto.graph.initializer[0].external_data[0].value = str(path.parent / "net.data")


def _link(proto: onnx.ModelProto, path: Path) -> None:
    (path.parent / "net.data").rename(path.parent.parent / "elsewhere")
    os.symlink(path.parent.parent / "elsewhere", path.parent / "net.data")


def _missing(proto: onnx.ModelProto, path: Path) -> None:
    (path.parent / "net.data").unlink()


def _short(proto: onnx.ModelProto, path: Path) -> None:
    (path.parent / "net.data").write_bytes(b"\0" * 10)


def _too_large(proto: onnx.ModelProto, path: Path) -> None:
    proto.graph.initializer[0].dims[0] = 10**6


def _texts(proto: onnx.ModelProto, path: Path) -> None:
    _escaping(proto, path)
    proto.graph.initializer[0].data_type = TensorProto.STRING


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (_texts, "of texts in another file"),
        (_escaping, "with its data in '../secret.data'"),
        (_absolute, "expected the name of a file beside the model"),
        (_link, "which is a link or a device"),
        (_missing, "no file net.data"),
        (_short, "in a file of 10 bytes"),
        (_too_large, "expected 108,000,000 bytes within the file"),
    ],
)
def test_external_data_elsewhere_are_refused(
    tmp_path: Path, change: Callable[[onnx.ModelProto, Path], None], text: str
) -> None:
    path = with_external_data(tmp_path, small())
    proto = onnx.load(path, load_external_data=False)
    change(proto, path)
    refused(text, written(path, proto).parent)


def _exploding(proto: onnx.ModelProto) -> None:
    proto.graph.initializer.append(numpy_helper.from_array(np.array([10**5, 10**5]), "large"))
    proto.graph.node.insert(0, node("ConstantOfShape", "large", "zeros"))


def _repeating(proto: onnx.ModelProto) -> None:
    proto.graph.initializer.append(numpy_helper.from_array(np.array([10**9]), "many"))
    proto.graph.node.insert(0, node("Tile", "fc.bias many", "tiled"))


def _constants(kind: str, *arrays: Any, **attributes: Any) -> Callable[[onnx.ModelProto], None]:
    """Return a change that adds a node on constants."""

    def change(proto: onnx.ModelProto) -> None:
        names = [f"constant{index}" for index in range(len(arrays))]
        stored = map(numpy_helper.from_array, map(np.asarray, arrays), names)
        proto.graph.initializer.extend(stored)
        proto.graph.node.insert(0, node(kind, " ".join(names), "made", **attributes))

    return change


def _many(proto: onnx.ModelProto) -> None:
    proto.graph.initializer.append(numpy_helper.from_array(np.array([2**23]), "large"))
    for index in range(5):
        proto.graph.node.insert(0, node("ConstantOfShape", "large", f"zeros{index}"))


def _huge(kind: str, *arrays: Any, **attributes: Any) -> Callable[[onnx.ModelProto], None]:
    """Return a change that adds a node on the image `r` of 8 channels, which becomes far too large."""

    def change(proto: onnx.ModelProto) -> None:
        names = [f"constant{index}" for index in range(len(arrays))]
        stored = map(numpy_helper.from_array, map(np.asarray, arrays), names)
        proto.graph.initializer.extend(stored)
        proto.graph.node.insert(2, node(kind, " ".join(["r", *names]), "huge", **attributes))
        proto.graph.node[3].input[0] = "huge"

    return change


def _function(proto: onnx.ModelProto) -> None:
    body = [node("Relu", "a", "b")]
    proto.functions.append(
        helper.make_function("own", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    )


def _sparse(proto: onnx.ModelProto) -> None:
    values = numpy_helper.from_array(np.ones(1, np.float32), "sparse")
    indices = numpy_helper.from_array(np.zeros(1, np.int64), "indices")
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [10**9]))


def _cycle(proto: onnx.ModelProto) -> None:
    proto.graph.node[1].input[0] = "y"


def _lying(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].dims[:] = [1 << 40]


def _wrong_size(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].dims[0] = 9


def _negative(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].dims[0] = -8


def _twice(proto: onnx.ModelProto) -> None:
    proto.graph.node[1].output[0] = "c"


def _other_channels(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(normal(8, 4, 3, 3), "conv.weight"))


def _nested(proto: onnx.ModelProto) -> None:
    for _ in range(20):
        graph = onnx.GraphProto()
        graph.node.extend(proto.graph.node)
        del proto.graph.node[:]
        proto.graph.node.append(helper.make_node("If", ["x"], ["y"], then_branch=graph, else_branch=graph))
        del proto.graph.node[0].attribute[1]


def _without_kernel(proto: onnx.ModelProto) -> None:
    del proto.graph.node[0].input[1]


def _wrong_attribute(proto: onnx.ModelProto) -> None:
    attribute = proto.graph.node[0].attribute[0]
    attribute.CopyFrom(helper.make_attribute(attribute.name, "around"))


def _no_groups(proto: onnx.ModelProto) -> None:
    proto.graph.node[0].attribute.append(helper.make_attribute("group", 0))


def _misfit_scales(proto: onnx.ModelProto) -> None:
    weights = {"k": np.ones((8, 3, 3, 3), np.int8), "scales": normal(5), "zeros": np.zeros(5, np.int8)}
    proto.graph.initializer.extend(numpy_helper.from_array(each, name) for name, each in weights.items())
    proto.graph.node.insert(0, node("DequantizeLinear", "k scales zeros", "dequantized", axis=0))


def _one_branch(proto: onnx.ModelProto) -> None:
    proto.graph.initializer.append(numpy_helper.from_array(np.array(False), "no"))
    branch = helper.make_graph([], "branch", [], [])
    proto.graph.node.insert(0, helper.make_node("If", ["no"], ["chosen"], "/if", then_branch=branch))


def _future(proto: onnx.ModelProto) -> None:
    proto.opset_import[0].version = 1000


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (_exploding, "makes a constant of 10,000,000,000 entries"),
        (_repeating, "makes a constant of 5,000,000,000 entries"),
        (_constants("Expand", np.float32(0), [10**5, 10**5]), "makes a constant of 10,000,000,000 entries"),
        (_constants("Range", 0, 10**9, 1), "makes a constant of 1,000,000,000 entries"),
        (_constants("Range", 0, 10**9, 0), "node Range /Range_made, which cannot be computed"),
        (_constants("Pad", np.zeros(3, np.float32), [0, 10**9]), "makes a constant of 1,000,000,003 entries"),
        (
            _constants("OneHot", np.zeros(9, np.int64), 10**9, np.float32([0, 1])),
            "makes a constant of 9,000,000,000 entries",
        ),
        (_constants("MatMul", normal(9000, 1), normal(1, 9000)), "makes a constant of 81,000,000 entries"),
        (
            _constants("Gather", normal(9, 9000), np.zeros(9000, np.int64), axis=0),
            "makes a constant of 81,000,000 entries",
        ),
        (_constants("Add", normal(9000, 1), normal(1, 9000)), "makes a constant of 81,000,000 entries"),
        (
            _huge("Resize", np.float32([]), np.float32([1, 1, 10**9, 1]), mode="linear"),
            "makes images of 8,000,000,000 x 8",
        ),
        (_huge("Pad", [0, 0, 10**9, 0, 0, 0, 0, 0], mode="edge"), "repeats a border 1,000,000,000 times"),
        (
            _huge("AveragePool", kernel_shape=[3, 3], pads=[0, 0, 10**9, 0]),
            "pads an axis to 1,000,000,008 positions",
        ),
        (_huge("Pad", [0, 0, 10**6, 0, 0, 0, 0, 10**6]), "makes a tensor of 8,000,128,000,512 entries"),
        (_many, "makes constants of more than 33,555,"),
        (_function, "a graph with functions of its own"),
        (_sparse, "got sparse weights"),
        (_cycle, "reads 'y', which no earlier node makes"),
        (_lying, "a tensor conv.weight of 1,099,511,627,776 entries"),
        (_wrong_size, "of shape [9, 3, 3, 3] with 864 bytes"),
        (_negative, "a tensor conv.weight of shape [-8, 3, 3, 3]"),
        (_twice, "makes 'c' again"),
        (_other_channels, "node Conv /Conv_c, which has inputs or attributes that do not fit"),
        (_nested, "graphs nested more deeply"),
        (_without_kernel, "has input size 1 not in range [min=2, max=3].); expected a node as in version 17"),
        (_wrong_attribute, "node /Conv_c that is not valid (Mismatched attribute type"),
        (
            _no_groups,
            "node Conv /Conv_c, which has inputs or attributes that do not fit (The number of groups",
        ),
        (_misfit_scales, "node DequantizeLinear /DequantizeLinear_dequantized, which cannot be computed"),
        (_one_branch, "node If /if, which has inputs or attributes that do not fit ('else_branch')"),
        (_future, "version 1000 of ONNX's operators"),
    ],
)
def test_a_file_that_is_no_sound_graph_is_refused(
    tmp_path: Path, change: Callable[[onnx.ModelProto], None], text: str
) -> None:
    proto = small()
    change(proto)
    refused(text, written(tmp_path / "net.onnx", proto))


@pytest.mark.parametrize("content", [b"\xff" * 100, b"PK\x03\x04" + b"\0" * 50])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "net.onnx").write_bytes(content)
    refused("net.onnx", tmp_path / "net.onnx")

"""Files in unusual forms, and files that cannot be translated."""

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


@pytest.mark.parametrize("shape", [(4, 512), (4, -1), (4, 8, -1), (4, 2, 256), (-1, 512)], ids=str)
def test_a_fixed_batch_may_be_in_a_target_shape(tmp_path: Path, shape: tuple[int, ...]) -> None:
    nodes = [
        node("Conv", "x conv.weight", "c", pads=[1, 1, 1, 1]),
        node("Reshape", "c shape", "r"),
        node("Softmax", "r", "y", axis=-1),
    ]
    weights = {"conv.weight": normal(8, 3, 3, 3), "shape": np.array(shape)}
    path, x = tmp_path / "net.onnx", normal(4, 3, 8, 8)
    written(path, small(nodes=nodes, inputs={"x": [4, 3, 8, 8]}, weights=weights))
    (expected,) = outputs_of(path, {"x": x})
    made = load_onnx(path)(np.moveaxis(x, 1, -1), training=False)
    np.testing.assert_allclose(made, expected, atol=1e-6)
    written(path, small(nodes=nodes, inputs={"x": ["n", 3, 8, 8]}, weights=weights))
    if -1 in shape[1:]:
        refused("merges the batch with another axis", path)


@pytest.mark.parametrize("imported", [[""], ["ai.onnx"], ["", "ai.onnx"], ["ai.onnx", ""]], ids=str)
@pytest.mark.parametrize("own", ["", "ai.onnx"])
def test_the_domain_of_onnx_has_two_names(tmp_path: Path, imported: list[str], own: str) -> None:
    proto = small()
    del proto.opset_import[:]
    proto.opset_import.extend(helper.make_opsetid(domain, 17) for domain in imported)
    for each in proto.graph.node:
        each.domain = own
    x, path = normal(2, 3, 8, 8), written(tmp_path / "net.onnx", proto)
    (expected,) = outputs_of(path, {"x": x})
    made = load_onnx(path)(np.moveaxis(x, 1, -1), training=False)
    np.testing.assert_allclose(made, expected, atol=1e-6)


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

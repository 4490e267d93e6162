"""Files that are damaged or made to harm are refused."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.executors.sources.onnx.test_files import refused, small, with_external_data
from tests.support.onnx_files import node, normal, written


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


def _external(key: str, value: str) -> Callable[[onnx.ModelProto, Path], None]:
    """Return a change of an entry of the first weight's external data."""

    def change(proto: onnx.ModelProto, path: Path) -> None:
        entries = proto.graph.initializer[0].external_data
        kept = [(each.key, each.value) for each in entries if each.key != key]
        del entries[:]
        for name, content in [*kept, (key, value)]:
            entries.add(key=name, value=content)

    return change


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (_external("location", "..\\secret.data"), "expected the name of a file beside the model"),
        (_external("location", ""), "with its data in ''"),
        (_external("location", ".."), "which is a link or a device"),
        (_external("offset", "-8"), "at -8+864 in a file of"),
        (_external("offset", "9" * 30), "expected 864 bytes within the file"),
        (_external("length", "8"), "+8 in a file of"),
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


def _past(proto: onnx.ModelProto) -> None:
    proto.opset_import[0].version = 6


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
        (_past, "convert_version(model, 7)"),
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

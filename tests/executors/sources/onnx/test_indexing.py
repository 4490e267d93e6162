"""Operators that select, count, repeat and remove entries, against ONNX Runtime."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto

from executors.sources.onnx.loading import load_onnx
from tests.executors.sources.onnx.test_convolutional import image_case
from tests.executors.sources.onnx.test_options import refused
from tests.support.onnx_files import model, node, normal, outputs_of, written


@pytest.mark.parametrize(
    "pads", [(0, 0, -2, -1, 0, 0, 0, -3), (0, -3, 2, -1, 0, 1, -1, 1), (0, 0, -1, 0, 0, -2, 0, 0)], ids=str
)
def test_negative_padding_removes_entries(tmp_path: Path, pads: tuple[int, ...]) -> None:
    weights = {"p": np.array(pads), "fill": np.float32(0.5)}
    image_case(tmp_path, [node("Pad", "a p fill", "y")], weights)


def test_negative_padding_of_an_early_version_names_its_axes(tmp_path: Path) -> None:
    weights = {"p": np.array([-1, 2]), "axes": np.array([-1])}
    image_case(tmp_path, [node("Pad", "a p - axes", "y")], weights, opset=18)


def test_removing_entries_at_one_end_and_mirroring_others_is_refused(tmp_path: Path) -> None:
    nodes = [node("Pad", "a p", "y", mode="reflect")]
    refused(tmp_path, nodes, {"p": np.array([0, 0, -1, 0, 0, 0, 2, 0])}, "removes entries at one end")


@pytest.mark.parametrize("repeats", [(1, 2, 1, 1), (1, 1, 3, 2)], ids=str)
def test_a_tensor_is_repeated_as_a_whole(tmp_path: Path, repeats: tuple[int, ...]) -> None:
    image_case(tmp_path, [node("Tile", "a r", "y")], {"r": np.array(repeats)})


def test_repeating_examples_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, [node("Tile", "a r", "y")], {"r": np.array([2, 1, 1, 1])}, "repeats the examples")


@pytest.mark.parametrize("options", [{}, {"exclusive": 1}, {"reverse": 1, "exclusive": 1}], ids=str)
@pytest.mark.parametrize("axis", [1, 2, -1])
def test_running_sums_along_channels_and_positions(
    tmp_path: Path, axis: int, options: dict[str, int]
) -> None:
    image_case(tmp_path, [node("CumSum", "a axis", "y", **options)], {"axis": np.array(axis)})


def test_running_sums_over_examples_are_refused(tmp_path: Path) -> None:
    refused(tmp_path, [node("CumSum", "a axis", "y")], {"axis": np.array(0)}, "combines the examples")


@pytest.mark.parametrize("size", [1, 3, 5])
def test_channels_are_divided_by_their_neighbours(tmp_path: Path, size: int) -> None:
    image_case(tmp_path, [node("LRN", "a", "y", size=size, alpha=0.7, beta=0.6, bias=1.5)], {})


@pytest.mark.parametrize("kind", ["ThresholdedRelu", "Celu"])
def test_an_activation_has_a_setting(tmp_path: Path, kind: str) -> None:
    image_case(tmp_path, [node(kind, "a", "y", alpha=0.3)], {})


@pytest.mark.parametrize("axis", [1, -1])
def test_vectors_with_a_one_have_any_place(tmp_path: Path, axis: int) -> None:
    nodes = [
        *(node("ArgMax", "a", "m", axis=1, keepdims=0), node("Sub", "m four", "i")),
        *(node("OneHot", "i depth values", "o", axis=axis), node("Cast", "o", "y", to=TensorProto.FLOAT)),
    ]
    weights = {"four": np.array(4), "depth": np.array(6), "values": np.array([2, 5])}
    image_case(tmp_path, nodes, weights)


def text_case(
    tmp_path: Path, nodes: list[Any], weights: dict[str, Any], shape: tuple[int, int] = (3, 12)
) -> Any:
    """Check nodes that follow a table of 100 words `x`, from `e` [n, words, 8] to `y`."""
    proto = model(
        [node("Gather", "table x", "e"), *nodes],
        {"x": ["n", shape[1]]},
        {"table": normal(100, 8), **weights},
        kind=TensorProto.INT64,
    )
    file = written(tmp_path / "net.onnx", proto)
    words = np.random.default_rng(0).integers(0, 3, shape)
    network = load_onnx(file)
    (expected,) = outputs_of(file, {"x": words})
    np.testing.assert_allclose(np.asarray(network(words.astype(np.int32))), expected, atol=1e-5)
    return network


def test_the_last_word_before_the_padding_is_selected(tmp_path: Path) -> None:
    """As by PyTorch's `states.gather(1, last.view(-1, 1, 1).expand(-1, 1, 8))`."""
    nodes = [
        *(node("Greater", "x zero", "g"), node("Cast", "g", "c", to=TensorProto.INT64)),
        *(
            node("ReduceSum", "c one", "s", keepdims=0),
            node("Clip", "s least", "l"),
            node("Sub", "l one", "p"),
        ),
        *(node("Reshape", "p apart", "r"), node("Expand", "r wide", "i")),
        *(node("GatherElements", "e i", "z", axis=1), node("Squeeze", "z one", "y")),
    ]
    weights = {
        "zero": np.array(0), "one": np.array([1]), "least": np.array(1), "apart": np.array([-1, 1, 1]),
        "wide": np.array([1, 1, 8]),
    }  # fmt: skip
    text_case(tmp_path, nodes, weights)


def test_places_are_counted_without_padding(tmp_path: Path) -> None:
    """As in RoBERTa, whose padding is the word 1."""
    nodes = [
        *(node("Equal", "x pad", "q"), node("Not", "q", "b"), node("Cast", "b", "m", to=TensorProto.INT32)),
        *(node("CumSum", "m axis", "s"), node("Mul", "s m", "p"), node("Add", "p pad32", "i")),
        *(node("Gather", "places i", "w"), node("Add", "e w", "y")),
    ]
    weights = {
        "pad": np.array(1), "pad32": np.array(1, np.int32), "axis": np.array(1),
        "places": normal(20, 8, seed=1),
    }  # fmt: skip
    text_case(tmp_path, nodes, weights)


def test_words_beyond_a_table_are_taken_modulo_its_size(tmp_path: Path) -> None:
    nodes = [
        *(node("Mod", "x seven", "m"), node("Gather", "other m", "w"), node("Add", "e w", "y")),
    ]
    text_case(tmp_path, nodes, {"seven": np.array(7), "other": normal(7, 8, seed=2)})

"""Operators that select, count, repeat and remove entries, against ONNX Runtime."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto

from executors.sources.onnx.loading import load_onnx
from executors.structure import analyse
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


LAST = [
    node("Greater", "x zero", "g"),
    node("Cast", "g", "c", to=TensorProto.INT64),
    node("ReduceSum", "c one", "s", keepdims=0),
    node("Sub", "s first", "last"),
    node("Shape", "x", "n", end=1),
    node("Squeeze", "n", "count"),
    node("Range", "zero count first", "examples"),
]
LAST_WEIGHTS = {"zero": np.array(0), "first": np.array(1), "one": np.array([1]), "end": np.array([-1])}


def test_a_word_of_each_example_is_selected_by_two_indices(tmp_path: Path) -> None:
    """As `states[torch.arange(n), last]` in PyTorch's newer exporter; -1 is the last word."""
    nodes = [
        *(*LAST, node("Unsqueeze", "examples end", "u"), node("Unsqueeze", "last end", "l")),
        *(node("Concat", "u l", "places", axis=-1), node("GatherND", "e places", "z")),
        node("MatMul", "z classes", "y"),
    ]
    network = text_case(tmp_path, nodes, {**LAST_WEIGHTS, "classes": normal(8, 3)})
    assert [*analyse(network).widths.values()] == [8], "the features can be cut"


def test_several_words_of_each_example_are_selected(tmp_path: Path) -> None:
    """As `states[torch.arange(n)[:, None], torch.stack([last, first], 1)]`."""
    nodes = [
        *(*LAST, node("Unsqueeze", "last end", "l"), node("Mul", "l zero", "first_place")),
        *(node("Concat", "l first_place", "both", axis=1), node("Unsqueeze", "both end", "b")),
        *(node("Unsqueeze", "examples behind", "u"), node("Concat", "n words one", "shape", axis=0)),
        *(node("Expand", "u shape", "wide"), node("Concat", "wide b", "places", axis=-1)),
        node("GatherND", "e places", "y"),
    ]
    text_case(tmp_path, nodes, {**LAST_WEIGHTS, "behind": np.array([-1, -2]), "words": np.array([2])})


def test_a_word_of_each_example_is_selected_among_the_words_of_all(tmp_path: Path) -> None:
    """As `states[torch.arange(n), last]` in PyTorch's older exporter."""
    nodes = [
        *(*LAST, node("Mul", "examples words", "starts"), node("Add", "last starts", "i")),
        *(node("Flatten", "e", "f", axis=2), node("Gather", "f i", "y", axis=0)),
    ]
    weights = {**LAST_WEIGHTS, "words": np.array(12), "least": np.array(0)}
    nodes.insert(4, node("Max", "last least", "clipped"))
    nodes[-3] = node("Add", "clipped starts", "i")
    text_case(tmp_path, nodes, weights)


def test_places_among_too_few_words_are_refused(tmp_path: Path) -> None:
    nodes = [
        *(
            node("Cast", "a", "w", to=TensorProto.INT64),
            node("ReduceMax", "w", "last", axes=[1, 2, 3], keepdims=0),
        ),
        *(node("Shape", "a", "s"), node("Gather", "s zero", "count"), node("Range", "zero count one", "r")),
        *(node("Mul", "r two", "starts"), node("Add", "last starts", "i")),
        *(node("Reshape", "a rows", "f"), node("Gather", "f i", "y", axis=0)),
    ]
    weights = {"zero": np.array(0), "one": np.array(1), "two": np.array(2), "rows": np.array([-1, 7])}
    refused(tmp_path, nodes, weights, "merges the batch")


def test_an_index_for_each_example_has_the_batch_as_a_common_axis(tmp_path: Path) -> None:
    """As `tf.gather(states, last, batch_dims=1)`."""
    nodes = [*LAST[:4], node("Unsqueeze", "last end", "l"), node("GatherND", "e l", "y", batch_dims=1)]
    text_case(tmp_path, nodes, LAST_WEIGHTS)


def test_entries_of_a_matrix_are_selected_by_constant_indices(tmp_path: Path) -> None:
    """As the products of different features in a DLRM, `z[:, rows, columns]`."""
    rows, columns = np.tril_indices(12, -1)
    nodes = [
        *(node("Transpose", "e", "t", perm=[0, 2, 1]), node("MatMul", "e t", "z")),
        *(node("Transpose", "z", "m", perm=[1, 2, 0]), node("GatherND", "m pairs", "p")),
        node("Transpose", "p", "y", perm=[1, 0]),
    ]
    text_case(tmp_path, nodes, {"pairs": np.stack([rows, columns - 12], 1)})


def test_axes_before_the_batch_are_merged(tmp_path: Path) -> None:
    """As the same products in PyTorch's older exporter."""
    rows, columns = np.tril_indices(12, -1)
    nodes = [
        *(node("Transpose", "e", "t", perm=[0, 2, 1]), node("MatMul", "e t", "z")),
        *(node("Transpose", "z", "m", perm=[1, 2, 0]), node("Flatten", "m", "f", axis=2)),
        *(node("Gather", "f pairs", "p"), node("Transpose", "p", "y", perm=[1, 0])),
    ]
    text_case(tmp_path, nodes, {"pairs": 12 * rows + columns})


def test_positions_of_an_image_are_selected_by_pairs(tmp_path: Path) -> None:
    nodes = [
        node("Transpose", "a", "t", perm=[2, 3, 0, 1]),
        *(node("GatherND", "t pairs", "g"), node("Transpose", "g", "y", perm=[1, 2, 0])),
    ]
    image_case(tmp_path, nodes, {"pairs": np.array([[0, 1], [2, 2], [-1, 0], [2, 2]])})

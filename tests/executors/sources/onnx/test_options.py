"""Options and combinations of operators that node tests do not cover, against ONNX Runtime."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from tests.executors.sources.onnx.test_convolutional import image_case
from tests.support.onnx_files import node, normal


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Identity", "t", "y")],
        [node("Softmax", "t", "y")],
        [node("Reshape", "t square", "y")],
        [node("Relu", "t", "r"), node("Gemm", "r w", "y")],
        [node("Add", "t f", "y")],
    ],
    ids=lambda nodes: nodes[-1].op_type,
)
def test_a_function_follows_a_flattened_image(tmp_path: Path, nodes: list[Any]) -> None:
    weights = {"square": np.array([0, 24, 24]), "w": normal(576, 4)}
    image_case(tmp_path, [node("Flatten", "a", "f"), node("Tanh", "f", "t"), *nodes], weights)


def test_axes_are_counted_from_the_end(tmp_path: Path) -> None:
    image_case(
        tmp_path, [node("Flatten", "a", "f", axis=-3), node("Gemm", "f w", "y")], {"w": normal(576, 4)}
    )

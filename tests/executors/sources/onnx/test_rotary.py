"""The rotation of queries and keys by their positions, against ONNX Runtime."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto

from tests.executors.sources.onnx.test_attention import CHANNELS, TOKENS, attention_case
from tests.support.onnx_files import Array, node

ANGLES = np.random.default_rng(0).uniform(0, 6, (1, 9, 3)).astype(np.float32)


def angles(half: int) -> dict[str, Array]:
    """Return the caches of the first positions [1, tokens, half], and tables of more [9, half]."""
    made = {"cos": np.cos(ANGLES[..., :half]), "sin": np.sin(ANGLES[..., :half])}
    tables = {f"{name}_table": array[0] for name, array in made.items()}
    return {name: array[:, :TOKENS] for name, array in made.items()} | tables


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("part", [0, 2])
@pytest.mark.parametrize("places", ["stored", "none", "computed"])
@pytest.mark.parametrize("flat", [False, True])
def test_entries_are_rotated_by_their_positions(
    tmp_path: Path, flat: bool, places: str, part: int, interleaved: int
) -> None:
    heads = 3
    width = CHANNELS // heads
    caches = "cos_n sin_n" if places == "none" else "cos_table sin_table"
    nodes = [
        node("Shape", "a", "n", end=1),
        *(node("Concat", f"n {rest}", f"to_{rest}", axis=0) for rest in ("tokens", "angles")),
        node("Expand", "ids to_tokens", "stored"),
        *(node("Expand", f"{name} to_angles", f"{name}_n") for name in ("cos", "sin")),
        node("ReduceSum", "x last", "total", keepdims=0),
        node("Greater", "total zero", "there"),
        node("Cast", "there", "computed", to=TensorProto.INT64),
        node("Reshape", "a heads", "r"),
        node("Transpose", "r", "t", perm=[0, 2, 1, 3]),
        node(
            "RotaryEmbedding",
            f"{'a' if flat else 't'} {caches}{'' if places == 'none' else ' ' + places}",
            "y",
            interleaved=interleaved,
            rotary_embedding_dim=part,
            num_heads=heads if flat else 0,
        ),
    ]
    half = (part or width) // 2
    stored = {
        **angles(half),
        "heads": np.array([0, TOKENS, heads, width]),
        "ids": np.array([[3, 0, 1, 8, 5, 2]]),
        "tokens": np.array([TOKENS]),
        "angles": np.array([TOKENS, half]),
    }
    attention_case(tmp_path, nodes, stored)

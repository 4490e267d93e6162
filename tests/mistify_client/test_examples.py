"""Labels in a device's data that do not match the outputs of a network."""

import numpy as np
import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import TensorInfo
from mistify.package.training import OutputEncoding
from mistify_client.examples import read_arrays

INPUTS = (TensorInfo(name="image", dtype="float32", shape=(-1, 2)),)
ANSWERS = np.arange(4) % 2


def read(tmp_path, kind, shape, labels):
    np.savez(tmp_path / "data.npz", image=np.zeros((4, 2), np.float32), answer=labels)
    outputs = (TensorInfo(name="answer", dtype="float32", shape=(-1, *shape)),)
    return read_arrays(tmp_path / "data.npz", INPUTS, outputs, {"answer": OutputEncoding(kind)})


@pytest.mark.parametrize(
    ("kind", "shape", "labels", "reported"),
    [
        (
            "softmax",
            (3,),
            np.eye(3, dtype=int)[[0, 1, 2, 0]],
            r"the shape \[4, 3\]; expected \[4\]; .*argmax",
        ),
        ("logits", (5, 5, 3), np.zeros((4, 5), int), r"the shape \[4, 5\]; expected \[4, 5, 5\]"),
        ("sigmoid", (1,), ANSWERS + 1, "classes from 1 to 2; expected 0 to 1, or -1"),
        ("logit", (1,), ANSWERS.astype(str), "labels as <U21; expected numbers"),
        ("sigmoid", (1,), np.zeros((4, 2)), r"the shape \[4, 2\]; expected \[4, 1\]"),
        (
            "figures",
            (1,),
            np.zeros((4, 3)),
            r"the shape \[4, 3\]; expected \[4, 1\]; give one for each value",
        ),
        ("figures", (2,), np.zeros((4, 2)).astype(str), "expected numbers"),
        ("softmax", (3,), np.eye(3)[[0, 1, 2, 0]], r"classes as float64; expected integers; .*\.argmax"),
        ("softmax", (3,), np.zeros(4), r"classes as float64; expected integers; .*\.astype"),
    ],
)
def test_unsuitable_labels_are_reported(tmp_path, kind, shape, labels, reported):
    with pytest.raises(MistifyError, match=reported) as caught:
        read(tmp_path, kind, shape, labels)
    assert caught.value.code is ErrorCode.INVALID_DATASET
    assert caught.value.problems[0].place == f"{tmp_path / 'data.npz'}: answer"


@pytest.mark.parametrize(
    ("kind", "shape", "labels"),
    [
        ("softmax", (3,), ANSWERS[:, None]),
        ("logits", (5, -1, 3), np.zeros((4, 5, 7), int)),
        ("sigmoid", (1,), ANSWERS.astype(np.float32)),
        ("sigmoid", (1,), ANSWERS - 1),
        ("figures", (1,), 100.0 * ANSWERS),
        ("figures", (2, 2), np.zeros((4, 4))),
    ],
)
def test_suitable_labels_are_read(tmp_path, kind, shape, labels):
    np.testing.assert_array_equal(read(tmp_path, kind, shape, labels).targets["answer"], labels)


def test_unsuitable_inputs_are_reported_with_their_file(tmp_path):
    np.savez(tmp_path / "data.npz", image=np.zeros((4, 3), np.float32), answer=ANSWERS)
    outputs = (TensorInfo(name="answer", dtype="float32", shape=(-1, 1)),)
    with pytest.raises(MistifyError, match=r"data\.npz does not fit the network\n.*image") as caught:
        read_arrays(tmp_path / "data.npz", INPUTS, outputs, {"answer": OutputEncoding.SIGMOID})
    assert caught.value.code is ErrorCode.INVALID_DATASET


@pytest.mark.parametrize("more", [{}, {"answer": ANSWERS}, {"y": ANSWERS}])
def test_labels_may_be_omitted_if_they_are_not_needed(tmp_path, more):
    assert list(read_unlabelled(tmp_path, more).targets) == (["answer"] if more else [])


def test_an_array_that_may_contain_labels_is_not_ignored(tmp_path):
    with pytest.raises(MistifyError, match=r"label: .*neither .* named like the outputs: answer; rename it"):
        read_unlabelled(tmp_path, {"label": ANSWERS})


def read_unlabelled(tmp_path, more):
    np.savez(tmp_path / "data.npz", x=np.zeros((4, 2), np.float32), **more)
    outputs = (TensorInfo(name="answer", dtype="float32", shape=(-1, 1)),)
    kinds = {"answer": OutputEncoding.SIGMOID}
    return read_arrays(tmp_path / "data.npz", INPUTS, outputs, kinds, labels_needed=False)


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        (b"a,b\n1,2\n", "a file of another format"),
        (b"", "a file of another format"),
        (None, "Is a directory"),
    ],
)
def test_a_file_without_arrays_is_reported(tmp_path, content, reported):
    path = tmp_path / "data.npz"
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(
        MistifyError, match=f"data.npz: got {reported}; expected an .npz file with arrays"
    ) as caught:
        read_arrays(path, INPUTS, (), {})
    assert caught.value.code is ErrorCode.INVALID_DATASET

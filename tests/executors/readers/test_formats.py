"""All formats, compared with the written data; and reports of invalid rows."""

from pathlib import Path

import numpy as np
import pytest

from executors.data import joined, storage
from executors.readers.loading import load_dataset
from executors.structure.signature import Activation, Input, Output
from mistify.config.data.dataset import TextSettings
from tests.executors.readers.files import (
    problem_of,
    signature,
    write_csv,
    write_images,
    write_jsonl,
    write_records,
    write_table,
)

RNG = np.random.default_rng(0)
FIGURES = Input("figures", (3,), "float32")
IMAGE = Input("image", (6, 5, 3), "float32")
TOKENS = Input("tokens", (6,), "int32")
FLOAT_TOKENS = Input("tokens", (6,), "float32", 50)
KIND = Output("kind", (3,), Activation.SOFTMAX)
TAGS = Output("tags", (6, 4), Activation.NONE)
SPAM = Output("spam", (1,), Activation.SIGMOID)
PRICE = Output("price", (1,), Activation.NONE)
FORECAST = Output("forecast", (3, 1), Activation.NONE)
HASHED = TextSettings(hashing=50)
KINDS = ["dog", "cat", "eel", "cat"]


def test_csv_columns_other_than_the_target_are_numeric_inputs(tmp_path):
    rows = [[1, 2.5, "1e3", "dog"], [4, 5, 6, "cat"], [7, 8, 9, "eel"]]
    path = write_csv(tmp_path / "t.csv", ["a", "b", "kind", "c"], [[*r[:2], r[3], r[2]] for r in rows])
    data = load_dataset(str(path), signature([FIGURES], [KIND]))
    np.testing.assert_allclose(data.inputs["figures"], [[1, 2.5, 1000], [4, 5, 6], [7, 8, 9]])
    assert data.targets["kind"].tolist() == [1, 0, 2]


def test_csv_cells_hold_several_numbers_and_labels(tmp_path):
    rows = [["1 2 3", "3 4 5", "0 1 -1"], ["0 0 .5", "7", "2"]]
    path = write_csv(tmp_path / "t.csv", ["figures", "tokens", "tags"], rows)
    data = load_dataset(str(path), signature([FIGURES, TOKENS], [TAGS]))
    np.testing.assert_allclose(data.inputs["figures"], [[1, 2, 3], [0, 0, 0.5]])
    assert data.inputs["tokens"].tolist() == [[3, 4, 5, 0, 0, 0], [7, 0, 0, 0, 0, 0]]
    assert data.targets["tags"].tolist() == [[0, 1, -1, -1, -1, -1], [2, -1, -1, -1, -1, -1]]


def test_csv_columns_are_integers_if_the_input_takes_integers(tmp_path):
    sig = signature([Input("tokens", (4,), "int32")], [SPAM])
    path = write_csv(tmp_path / "t.csv", [*"ab", "spam", *"cd"], [[1, 2, 0, 3, 4], [5, 6, 1, 7, 8]])
    assert load_dataset(str(path), sig).inputs["tokens"].tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    write_csv(path, [*"abc", "spam"], [[1, 2, 3, 0]])
    assert "row 2: tokens = figures of shape [3]; expected shape [4]" in problem_of(path, sig)
    write_csv(path, [*"abcd", "spam"], [[1, 2, 3, 4.5, 0]])
    assert "row 2: tokens = [1.0, 2.0, 3.0, 4.5]; expected whole numbers" in problem_of(path, sig)


@pytest.mark.parametrize("tokens", [TOKENS, FLOAT_TOKENS])
def test_a_text_column_among_others_has_to_be_named(tmp_path, tokens):
    path = write_csv(tmp_path / "t.csv", ["id", "text", "spam"], [[1, "play jazz", 0], [2, "play rock", 1]])
    reported = problem_of(path, signature([tokens], [SPAM]), text=HASHED)
    assert "row 2: text = 'play jazz'; expected numbers in each of the columns id and text" in reported
    assert "remove columns that are not inputs, or name the one that is tokens (or x)" in reported


@pytest.mark.parametrize("name", ["T.CSV", "T.JSONL", "T.NPZ", "T.TFRECORD-00000-of-00001"])
def test_suffixes_may_be_in_capitals(tmp_path, name):
    path, figures = tmp_path / name, np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    if name == "T.NPZ":
        with path.open("wb") as file:
            np.savez(file, figures=figures, spam=[1, 0])
    elif name.startswith("T.TFRECORD"):
        write_records(
            path, [{"figures": row, "spam": [label]} for row, label in zip(figures, (1, 0), strict=True)]
        )
    else:
        write_table(path, ["a", "b", "c", "spam"], [[1, 2, 3, 1], [4, 5, 6, 0]])
    data = load_dataset(str(path), signature([FIGURES], [SPAM]))
    np.testing.assert_array_equal(data.inputs["figures"], figures)
    assert data.targets["spam"].tolist() == [1, 0]


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_input_columns_are_in_the_order_of_the_training_data(tmp_path, suffix):
    sig = signature([FIGURES], [SPAM])
    train = write_table(tmp_path / f"train.{suffix}", ["h", "w", "d", "spam"], [[1, 2, 3, 0], [4, 5, 6, 1]])
    test = write_table(tmp_path / f"test.{suffix}", ["id", "w", "y", "h", "d"], [[9, 2, 1, 1, 3]])
    data = load_dataset(str(test), sig, train=str(train))
    assert (data.inputs["figures"].tolist(), data.targets["spam"].tolist()) == ([[1, 2, 3]], [1])
    write_table(test, ["w", "height", "d", "spam"], [[2, 1, 3, 1]])
    reported = problem_of(test, sig, train=str(train))
    assert "no column h; expected the training data's h, w and d" in reported


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_regression_targets_are_floats_and_binary_labels_are_integers(tmp_path, suffix):
    rows = [{"figures": [1, 2, 3], "spam": 1, "price": 2.5}, {"figures": [4, 5, 6], "spam": 0, "price": 4}]
    if suffix == "csv":
        cells = [[" ".join(map(str, row["figures"])), row["spam"], row["price"]] for row in rows]
        path = write_csv(tmp_path / "t.csv", list(rows[0]), cells)
    else:
        path = write_jsonl(tmp_path / "t.jsonl", rows)
    data = load_dataset(str(path), signature([FIGURES], [SPAM, PRICE]))
    assert (data.targets["spam"].tolist(), data.targets["spam"].dtype) == ([1, 0], np.int64)
    assert (data.targets["price"].tolist(), data.targets["price"].dtype) == ([2.5, 4.0], np.float32)


def test_numbers_may_be_nested(tmp_path):
    grid = Input("grid", (2, 2), "int32")
    area = Output("area", (2, 2), Activation.NONE)
    path = write_jsonl(tmp_path / "t.jsonl", [{"grid": [[1, 2], [3, 4]], "area": [[0.5, 1], [2, 3]]}])
    data = load_dataset(str(path), signature([grid], [area]))
    assert data.inputs["grid"].tolist() == [[[1, 2], [3, 4]]]
    assert data.targets["area"].tolist() == [[[0.5, 1.0], [2.0, 3.0]]]


def test_test_data_uses_the_classes_of_the_training_data(tmp_path):
    train = write_jsonl(tmp_path / "train.jsonl", [{"x": [1, 2, 3], "y": kind} for kind in KINDS])
    test = write_jsonl(tmp_path / "test.jsonl", [{"x": [1, 2, 3], "y": "eel"}])
    sig = signature([FIGURES], [KIND])
    trained = load_dataset(str(train), sig)
    assert trained.targets["kind"].tolist() == [1, 0, 2, 0]
    tested = load_dataset(str(test), sig, train=str(train))
    assert tested.targets["kind"].tolist() == [2]
    assert trained.classes == tested.classes == {"kind": ("cat", "dog", "eel")}
    assert joined(trained.subset(np.array([0])), trained).classes == trained.classes
    write_jsonl(test, [{"x": [1, 2, 3], "y": "eel"}, {"x": [1, 2, 3], "y": "emu"}])
    reported = problem_of(test, sig, train=str(train))
    assert "row 2: kind = 'emu'; expected one of the training data's cat, dog, eel" in reported


def test_words_stay_aligned_with_their_labels(tmp_path):
    rows = [{"tokens": ["Play", "jazz"], "tags": ["O", "B"]}, {"tokens": ["play"], "tags": ["O"]}]
    path = write_jsonl(tmp_path / "t.jsonl", rows)
    two = Output("tags", (6, 2), Activation.NONE)
    data = load_dataset(str(path), signature([TOKENS], [two]), text=HASHED)
    ids, tags = data.inputs["tokens"], data.targets["tags"]
    assert ids[0, 0] == ids[1, 0] != ids[0, 1]
    assert (ids[0, 2:] == 0).all()
    assert ((ids[0, :2] > 0) & (ids[0, :2] < 50)).all()
    assert tags.tolist() == [[1, 0, -1, -1, -1, -1], [1, -1, -1, -1, -1, -1]]


@pytest.mark.parametrize("tokens", [TOKENS, FLOAT_TOKENS])
def test_token_ids_are_reported_by_the_layer_that_looks_them_up(tmp_path, tokens):
    sig = signature([tokens], [SPAM])
    path = write_csv(tmp_path / "t.csv", ["tokens", "spam"], [["play jazz", 0], ["play", 1]])
    ids = load_dataset(str(path), sig, text=HASHED).inputs["tokens"]
    assert ids[0, 0] == ids[1, 0] != ids[0, 1]
    assert (ids[0, 2:] == 0).all()
    ids = write_jsonl(tmp_path / "t.jsonl", [{"tokens": [3, 4.0], "spam": 0}, {"tokens": [5], "spam": 1}])
    assert load_dataset(str(ids), sig).inputs["tokens"].tolist() == [[3, 4, 0, 0, 0, 0], [5, 0, 0, 0, 0, 0]]


@pytest.mark.parametrize("ignored", [-1, "-1"])
def test_ignored_positions_may_occur_among_class_names(tmp_path, ignored):
    rows = [{"tokens": [1, 2, 3], "tags": ["O", ignored, "B-a"]}, {"tokens": [1, 2], "tags": ["B-b", "B-c"]}]
    path = write_jsonl(tmp_path / "t.jsonl", rows)
    tags = load_dataset(str(path), signature([TOKENS], [TAGS])).targets["tags"]
    assert tags.tolist() == [[3, -1, 0, -1, -1, -1], [1, 2, -1, -1, -1, -1]]


def test_labels_at_positions_need_the_names_of_all_classes(tmp_path):
    rows = [{"tokens": [1, 2, 3], "tags": ["O", "B-a", "B-c"]}, {"tokens": [1, 2], "tags": ["O", "-1"]}]
    path = write_jsonl(tmp_path / "t.jsonl", rows)
    reported = problem_of(path, signature([TOKENS], [TAGS]))
    assert "names of 3 classes of tags; expected names of all 4" in reported
    write_jsonl(path, [{"tokens": [1, 2, 3], "tags": [2, 0, 1]}])
    assert load_dataset(str(path), signature([TOKENS], [TAGS])).targets["tags"][0, :3].tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("kinds", "spam", "reported"),
    [
        (["cat", "dog"], ["ham", "spam"], "names of 2 classes of kind; expected names of all 3"),
        (["cat", "dog", "eel"], ["spam"] * 3, "names of 1 classes of spam; expected names of all 2"),
    ],
)
def test_each_output_needs_the_names_of_all_its_classes(tmp_path, kinds, spam, reported):
    rows = [["1 2 3", *labels] for labels in zip(kinds, spam, strict=True)]
    path = write_csv(tmp_path / "t.csv", ["figures", "kind", "spam"], rows)
    assert reported in problem_of(path, signature([FIGURES], [KIND, SPAM]))


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_number_for_each_position_is_not_a_class(tmp_path, suffix):
    def written(*rows):
        if suffix == "jsonl":
            return write_jsonl(tmp_path / "t.jsonl", [{"x": [1, 2, 3], "y": row} for row in rows])
        return write_csv(tmp_path / "t.csv", ["x", "y"], [["1 2 3", " ".join(map(str, row))] for row in rows])

    sig = signature([FIGURES], [FORECAST])
    target = load_dataset(str(written([1, 2, 3], [0.7, 0.2, 1.9])), sig).targets["forecast"]
    np.testing.assert_allclose(target, [[1, 2, 3], [0.7, 0.2, 1.9]])
    assert target.dtype == np.float32
    assert "forecast of shape [2]; expected shape [3]" in problem_of(written([0.7, 0.2, 1.9], [1, 2]), sig)
    assert "forecast of shape [3]; expected shape [2]" in problem_of(written([1, 2], [0.7, 0.2, 1.9]), sig)


def test_fractions_after_many_integers_are_not_rounded_to_classes(tmp_path):
    rows = [{"tokens": [1], "tags": [2, 1]}] * 2_000 + [{"tokens": [1], "tags": [0.7, 0.2, 1.9, 0, 0, 0]}]
    path = write_jsonl(tmp_path / "t.jsonl", rows)
    reported = problem_of(path, signature([TOKENS], [TAGS]))
    assert "row 2001: tags = [0.7, 0.2, 1.9, 0.0, 0.0, 0.0]; expected whole numbers" in reported


def test_text_is_tokenized_with_a_vocabulary(tmp_path):
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing", "jazz", "!"]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens))
    path = write_csv(
        tmp_path / "t.csv", ["tokens", "spam"], [["Playing jazz!", 0], ["rock play play play play", 1]]
    )
    text = TextSettings(vocabulary=str(tmp_path / "vocab.txt"))
    data = load_dataset(str(path), signature([TOKENS], [SPAM]), text=text)
    assert data.inputs["tokens"].tolist() == [[2, 4, 5, 6, 7, 3], [2, 1, 4, 4, 4, 3]]


@pytest.mark.parametrize("suffix", ["png", "bmp"])
def test_images_of_a_folder_have_the_class_of_their_directory(tmp_path, suffix):
    pixels = {
        f"{kind}/{number}.{suffix}": RNG.integers(0, 256, (6, 5, 3), np.uint8)
        for kind in ("eel", "cat", "dog") for number in range(2)
    }  # fmt: skip
    root = write_images(tmp_path / "pets", pixels)
    (root / "cat" / "notes.txt").touch()
    data = load_dataset(str(root), signature([IMAGE], [KIND]))
    assert data.inputs["image"].dtype == np.uint8
    np.testing.assert_array_equal(data.inputs["image"], [pixels[name] for name in sorted(pixels)])
    assert data.targets["kind"].tolist() == [0, 0, 1, 1, 2, 2]


def test_images_are_converted_to_the_size_and_channels_of_the_model(tmp_path):
    plain = {
        f"{kind}/a.jpg": np.full((17, 40), level, np.uint8)
        for kind, level in zip("abc", (0, 90, 255), strict=True)
    }
    root = write_images(tmp_path / "grey", plain)
    images = load_dataset(str(root), signature([IMAGE], [KIND])).inputs["image"]
    assert images.shape == (3, 6, 5, 3)
    np.testing.assert_allclose(images.mean((1, 2, 3)), [0, 90, 255], atol=1)


def test_a_link_out_of_an_image_folder_is_refused(tmp_path):
    image = np.zeros((6, 5, 3), np.uint8)
    root = write_images(tmp_path / "pets", {"a/1.png": image, "b/1.png": image, "c/1.png": image})
    write_images(tmp_path, {"secret.png": image})
    (root / "c" / "2.png").symlink_to(tmp_path / "secret.png")
    assert "c/2.png, a link" in problem_of(root, signature([IMAGE], [KIND]))


@pytest.mark.parametrize("shards", [False, True])
def test_records_are_read_from_files_and_shards(tmp_path, shards):
    rows = [
        {
            "figures": RNG.normal(size=3).astype("float32"),
            "tokens": RNG.integers(0, 9, 6),
            "kind": kind,
            "price": 1.5,
        }
        for kind in KINDS
    ]
    if shards:
        (tmp_path / "set").mkdir()
        write_records(tmp_path / "set" / "a.tfrecord-1-of-2", rows[:3])
        write_records(tmp_path / "set" / "a.tfrecord-2-of-2", rows[3:])
    else:
        write_records(tmp_path / "set.tfrecord", rows)
    source = tmp_path / ("set" if shards else "set.tfrecord")
    data = load_dataset(str(source), signature([FIGURES, TOKENS], [KIND, PRICE]))
    np.testing.assert_array_equal(data.inputs["figures"], [row["figures"] for row in rows])
    np.testing.assert_array_equal(data.inputs["tokens"], [row["tokens"] for row in rows])
    assert data.targets["kind"].tolist() == [1, 0, 2, 0]
    assert data.targets["price"].tolist() == [1.5] * 4


def test_records_may_contain_encoded_images(tmp_path):
    pixels = RNG.integers(0, 256, (3, 6, 5, 3), np.uint8)
    files = write_images(tmp_path, {f"{number}.png": image for number, image in enumerate(pixels)})
    rows = [{"x": (files / f"{number}.png").read_bytes(), "y": number} for number in range(3)]
    path = write_records(tmp_path / "t.tfrecord", rows)
    data = load_dataset(str(path), signature([IMAGE], [KIND]))
    np.testing.assert_array_equal(data.inputs["image"], pixels)
    assert data.targets["kind"].tolist() == [0, 1, 2]


CSV_ERRORS = {
    "ragged": ([["1 2 3", 0], ["1 2", 1]], "row 3: figures = figures of shape [2]; expected shape [3]"),
    "no number": ([["1 2 3", 0], ["1 two 3", 1]], "row 3: figures = '1 two 3'; expected numbers"),
    "too few cells": ([["1 2 3", 0], ["1 2 3"]], "row 3: 1 cell; expected 2, as in the header"),
    "too many cells": ([["1 2 3", 0, 1], ["1 2 3", 0]], "row 2: 3 cells"),
    "nan": ([["1 2 3", 0], ["1 nan 3", 1], ["1 2 3", 2]], "NaN or infinity in figures[1]"),
    "range": ([["1 2 3", 0], ["1 2 3", 7]], "kind[1] = 7; expected classes 0 to 2"),
    "few names": ([["1 2 3", "a"], ["1 2 3", "c"]], "names of 2 classes of kind; expected names of all 3"),
    "nothing": ([], "no rows"),
}  # fmt: skip


@pytest.mark.parametrize("case", CSV_ERRORS)
def test_an_invalid_csv_row_is_reported(tmp_path, case):
    rows, text = CSV_ERRORS[case]
    path = write_csv(tmp_path / "t.csv", ["figures", "kind"], rows)
    assert text in problem_of(path, signature([FIGURES], [KIND]))


JSONL_ERRORS = {
    '{"x": [1, 2, 3], "y": 0}\n{"x": [1, 2': "row 2: text that is not valid JSON",
    '{"x": [1, 2, 3], "y": 0}\n[1]': "row 2: a list",
    '{"x": [1, 2, 3], "y": 0}\n{"y": 0}': "row 2: no x",
    '{"x": [[1, 2], [3]], "y": 0}': "row 1: figures = [[1, 2], [3]]; expected numbers, as many in each list",
    '{"x": [1, null, 3], "y": 0}': "row 1: figures = [1, None, 3]; expected numbers",
    '{"x": {"a": 1}, "y": 0}': "row 1: figures = {'a': 1}; expected numbers",
    '{"z": 1}': "no array figures and none kind, but z",
}


@pytest.mark.parametrize("content", JSONL_ERRORS)
def test_an_invalid_jsonl_row_is_reported(tmp_path, content):
    (tmp_path / "t.jsonl").write_text(content)
    assert JSONL_ERRORS[content] in problem_of(tmp_path / "t.jsonl", signature([FIGURES], [KIND]))


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        ("some text", "row 1: tokens = 'some text'; expected token ids, or \"text\" in the dataset"),
        ([1.5], "row 1: tokens = [1.5]; expected whole numbers"),
        ([1] * 7, "row 1: tokens = 7 values; expected at most 6"),
    ],
)
def test_unusable_token_ids_are_reported(tmp_path, ids, text):
    path = write_jsonl(tmp_path / "t.jsonl", [{"tokens": ids, "spam": 1}])
    assert text in problem_of(path, signature([TOKENS], [SPAM]))


def test_unreadable_images_and_missing_classes_are_reported(tmp_path):
    image = np.zeros((6, 5, 3), np.uint8)
    root = write_images(tmp_path / "pets", {f"{kind}/1.png": image for kind in "abc"})
    sig = signature([IMAGE], [KIND])
    (root / "b" / "2.jpg").write_bytes(b"no image")
    assert "b/2.jpg, which cannot be decoded (it is not one of AVIF, BMP" in problem_of(root, sig)
    (root / "b" / "2.jpg").unlink()
    test = write_images(tmp_path / "test", {"a/1.png": image, "z/1.png": image})
    assert "a class z; expected one of the training data's a, b, c" in problem_of(test, sig, train=str(root))
    (root / "b" / "1.png").unlink()
    folder = load_dataset(str(root), sig)
    assert folder.targets["kind"].tolist() == [0, 2]
    assert folder.classes == {"kind": ("a", "b", "c")}
    (root / "b").rmdir()
    assert "names of 2 classes of kind; expected names of all 3" in problem_of(root, sig)


def test_unreadable_records_are_reported(tmp_path):
    sig = signature([FIGURES], [KIND])
    rows = [{"x": np.ones(3), "y": kind} for kind in KINDS]
    path = write_records(tmp_path / "t.tfrecord", rows)
    content = bytearray(path.read_bytes())
    content[-20] ^= 255
    path.write_bytes(content)
    assert "t.tfrecord, record 3: unreadable" in problem_of(path, sig)
    write_records(path, [*rows[:2], {"x": np.ones(4), "y": "dog"}])
    assert "t.tfrecord, record 2: x is cannot reshape" in problem_of(path, sig)
    write_records(path, [{"x": np.ones(3), "y": np.arange(n)} for n in (1, 1, 2)])
    assert "t.tfrecord, record 2: y of shape [2]; expected shape []" in problem_of(path, sig)
    write_records(path, [*rows[:2], {"y": "dog"}])
    assert "t.tfrecord, record 2: x is nothing" in problem_of(path, sig)


def test_memory_stays_constant_while_large_data_is_read(tmp_path, monkeypatch):
    """12 MB of images are read with at most 100 kB in memory."""
    import tracemalloc

    big = Input("image", (64, 64, 3), "float32")
    pixels = np.zeros((1000, 64, 64, 3), np.uint8)
    np.savez(tmp_path / "t.npz", x=pixels, y=np.arange(1000) % 3)
    monkeypatch.setattr(storage, "IN_MEMORY_BYTES", 100_000)
    monkeypatch.setattr("executors.readers.npz._BLOCK_BYTES", 100_000)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tracemalloc.start()
    data = load_dataset(str(tmp_path / "t.npz"), signature([big], [KIND]))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < pixels.nbytes / 5
    assert isinstance(data.inputs["image"], np.memmap)
    assert list(Path(tmp_path / "cache" / "mistify").iterdir()) == []

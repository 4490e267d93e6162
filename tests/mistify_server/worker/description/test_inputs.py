"""Preparations of inputs: completed from the input's shape, and refused if unsuitable."""

import re
from pathlib import Path
from typing import Any

import pytest

from executors.structure.signature import Input
from mistify.config.data.dataset import TextSettings
from mistify.config.data.preparation import Preparation
from mistify_server.tasks.problems import ProblemCollector
from mistify_server.worker.description.inputs import (
    preparation_as_read,
    preparation_of,
    vocabularies_of,
)

INPUTS = (
    Input("photo", (8, 12, 3), "float32"),
    Input("first", (3, 8, 12), "float32"),
    Input("grey", (None, None, 1), "float32"),
    Input("ids", (5,), "int32"),
    Input("free", (None,), "int32"),
)


def prepared(name: str, **declared: Any) -> Any:
    problems = ProblemCollector()
    made = preparation_of({name: Preparation.model_validate(declared)}, INPUTS, problems)
    return [str(problem) for problem in problems.problems] or made[name].model_dump()


@pytest.mark.parametrize(
    ("name", "declared", "size", "colour"),
    [
        ("photo", {}, (8, 12), "rgb"),
        ("photo", {"colour": "bgr", "size": (8, 12)}, (8, 12), "bgr"),
        ("first", {"layout": "channels_first"}, (8, 12), "rgb"),
        ("grey", {"size": (4, 5)}, (4, 5), "grey"),
    ],
)
def test_size_and_colour_are_derived_from_the_input(name: str, declared: Any, size: Any, colour: str) -> None:
    made = prepared(name, image=declared)["image"]
    assert (made["size"], made["colour"]) == (size, colour)
    assert made == Preparation(image=declared).image.model_dump() | {"size": size, "colour": colour}  # type: ignore[union-attr]


def test_the_length_of_tokens_is_derived_from_the_input() -> None:
    tokens = {"vocabulary": "vocab.txt"}
    assert prepared("ids", tokens=tokens) == {"tokens": {"length": 5, **tokens}}
    assert prepared("free", tokens=tokens | {"length": 7}) == {"tokens": {"length": 7, **tokens}}


@pytest.mark.parametrize(
    ("name", "declared", "message"),
    [
        ("foto", {"image": {}}, 'dataset.preparation.foto: got "foto"; .*did you mean "photo"'),
        ("photo", {"image": {"colour": "grey"}}, 'got "3 channels"; expected 1 of grey'),
        ("first", {"image": {}}, 'got "12 channels"; expected 3 of rgb'),
        ("photo", {"image": {"size": (12, 8)}}, r"got \[12, 8\]; expected the input's \[8, 12\]"),
        ("photo", {"image": {"mean": (1.0,), "std": (1.0,)}}, "expected 3 values of mean and std"),
        ("grey", {"image": {}}, 'got "no size"'),
        ("ids", {"image": {}}, "expected an input with height, width and channels"),
        ("photo", {"tokens": {"vocabulary": "v"}}, r"expected an input with one token id per position"),
        ("ids", {"tokens": {"vocabulary": "v", "length": 6}}, "got 6; expected the input's 5"),
        ("free", {"tokens": {"vocabulary": "v"}}, 'got "no length"'),
    ],
)
def test_unsuitable_preparations_are_refused(name: str, declared: Any, message: str) -> None:
    (problem,) = prepared(name, **declared)
    assert re.search(message, problem)


def as_read(text: dict[str, Any] | None = None, **origins: Any) -> Any:
    settings = None if text is None else TextSettings.model_validate(text)
    made = preparation_as_read(origins, settings, INPUTS, {"taken.txt": Path("/other/taken.txt")})
    return {name: preparation.model_dump() for name, preparation in made.items()}


def test_images_are_prepared_as_the_training_data_were_read() -> None:
    assert as_read(photo="image") == {"photo": prepared("photo", image={})}


def test_texts_are_prepared_with_the_vocabulary_of_the_training_data() -> None:
    tokens = {"vocabulary": "/data/vocab.txt"}
    assert as_read(tokens, ids="text", photo="image").keys() == {"ids", "photo"}
    assert as_read(tokens | {"length": 9}, ids="text") == {"ids": {"tokens": {"length": 5, **tokens}}}
    assert as_read(tokens | {"length": 9}, free="text") == {"free": {"tokens": {"length": 9, **tokens}}}


@pytest.mark.parametrize(
    ("text", "origins"),
    [
        (None, {"grey": "image"}),  # any size
        (None, {"first": "image"}),  # 12 channels
        ({"hashing": 9}, {"ids": "text"}),
        ({"vocabulary": "/data/all words.txt"}, {"ids": "text"}),  # not the name of a file in a package
        ({"vocabulary": "/data/taken.txt"}, {"ids": "text"}),
    ],
)
def test_what_apps_cannot_prepare_is_left_out(text: Any, origins: Any) -> None:
    assert as_read(text, **origins) == {}


def vocabularies(**paths: str) -> Any:
    problems = ProblemCollector()
    tokens = {
        name: Preparation.model_validate({"tokens": {"vocabulary": path}}) for name, path in paths.items()
    }
    files = vocabularies_of(tokens, problems)
    return [str(problem) for problem in problems.problems] or files


def test_vocabularies_keep_the_names_of_their_files() -> None:
    assert vocabularies(a="/data/a/words.txt", b="/data/b/pieces.txt", c="/data/a/words.txt") == {
        "words.txt": Path("/data/a/words.txt"),
        "pieces.txt": Path("/data/b/pieces.txt"),
    }


@pytest.mark.parametrize(
    "paths",
    [
        {"a": "/data/a/words.txt", "b": "/data/b/words.txt"},
        {"b": "/data/serve.tflite"},
        {"b": "/data/all words.txt"},
    ],
)
def test_vocabularies_cannot_have_the_names_of_package_files(paths: dict[str, str]) -> None:
    (problem,) = vocabularies(**paths)
    assert problem.startswith("dataset.preparation.b.tokens.vocabulary")
    assert problem.endswith("rename it")

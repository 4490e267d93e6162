"""`mistify run` with images and texts, and the classes that it lists."""

import sys

import numpy as np
import pytest
from PIL import Image

from mistify.config.data.preparation import ImagePreparation, Preparation, TokenPreparation
from mistify.errors import ErrorCode
from mistify.package.manifest import Manifest
from mistify.package.records import PackagedFile
from mistify_client import load

GREY = {"image": Preparation(image=ImagePreparation(size=(4, 4), colour="grey", factor=1 / 255))}
NAMES = ("cat", "dog", "eel")


def declare(package, **fields):
    manifest = Manifest.model_validate(Manifest.load(package).model_dump() | fields)
    manifest.save(package)
    return package


@pytest.fixture
def pets(package):
    return declare(package, preparation=GREY, labels={"scores": NAMES})


@pytest.fixture
def photo(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (9, 7, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "photo.png")
    return pixels


def listed(text):
    """Return the classes and outputs in the text, in order."""
    rows = [line.split() for line in text.splitlines() if line.startswith("   ")]
    return [(" ".join(name), float(value)) for value, *name in rows]


def test_the_best_classes_of_an_image_are_listed(mistify, pets, photo, tmp_path):
    model = load(pets)
    (scores,) = model(model.prepare(photo))
    best = sorted(zip(NAMES, scores.tolist(), strict=True), key=lambda each: -each[1])
    result = mistify("run", pets, "--input", tmp_path / "photo.png")
    assert result.exit_code == 0, result.output
    assert [name for name, _ in listed(result.stdout)] == [name for name, _ in best]
    np.testing.assert_allclose([v for _, v in listed(result.stdout)], [v for _, v in best], rtol=1e-3)
    result = mistify("run", pets, "--input", tmp_path / "photo.png", "--top", 1)
    assert [name for name, _ in listed(result.stdout)] == [best[0][0]]
    assert listed(mistify("run", pets, "--input", tmp_path / "photo.png", "--top", 0).stdout) == []


def test_every_example_of_an_array_has_its_classes(mistify, pets, tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((12, 4, 4, 1), np.float32))
    result = mistify("run", pets, "--input", tmp_path / "x.npy", "--top", 1)
    best = load(pets)(np.load(tmp_path / "x.npy")).argmax(1)
    assert [name for name, _ in listed(result.stdout)] == [NAMES[place] for place in best[:10]]
    assert "example 9:" in result.stdout
    assert "and 2 other examples" in result.stdout


def test_classes_without_names_are_listed_by_number_on_request(mistify, package, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((1, 4, 4, 1), np.float32))
    assert listed(mistify("run", package, "--input", tmp_path / "x.npy").stdout) == []
    result = mistify("run", package, "--input", tmp_path / "x.npy", "--top", 3)
    scores = load(package)(np.load(tmp_path / "x.npy"))[0]
    assert [name for name, _ in listed(result.stdout)] == [f"class {place}" for place in np.argsort(-scores)]


def test_the_output_of_a_yes_or_no_question_is_that_of_yes(mistify, pair_package, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((1, 4), np.float32))
    inputs = ["--input", tmp_path / "x.npy"] * 2
    declare(pair_package, labels={"mix": ("no", "yes")})
    result = mistify("run", pair_package, *inputs)
    assert {name for name, _ in listed(result.stdout)} == {"no", "yes"}  # two values, one for each class


def test_texts_are_tokenized(mistify, pair_package, tmp_path):
    content = b"[UNK]\nfine\nday\n"
    (pair_package / "vocab.txt").write_bytes(content)
    tokens = Preparation(tokens=TokenPreparation(vocabulary="vocab.txt", length=4))
    files = Manifest.load(pair_package).files | {"vocab.txt": PackagedFile.of(content)}
    declare(pair_package, files=files, preparation=dict.fromkeys(("left", "right"), tokens))
    (tmp_path / "left.txt").write_text("a fine day\n")
    output = ["--output", tmp_path / "y.NPZ"]
    result = mistify("run", pair_package, "--input", tmp_path / "left.txt", "--text", "day", *output)
    assert result.exit_code == 0, result.output
    expected = load(pair_package)(
        left=np.array([[0, 1, 2, 0]], np.float32), right=np.array([[2, 0, 0, 0]], np.float32)
    )
    np.testing.assert_array_equal(np.load(tmp_path / "y.NPZ")["mix"], expected["mix"])


def test_unsuitable_inputs_are_reported(mistify, pets, pair_package, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"no image")
    np.save(tmp_path / "x.npy", np.ones((1, 4), np.float32))
    (tmp_path / "cut-off.npz").write_bytes(b"PK\3\4")
    for package, arguments, message in (
        (pets, ["--input", tmp_path / "broken.png"], "broken.png"),
        (pets, ["--input", tmp_path / "cut-off.npz"], "cut-off.npz"),
        (pets, ["--text", "a fine day"], "image: got a text; expected arrays"),
        (pets, [], "got 0 inputs; expected one for each of image"),
        (pair_package, ["--input", tmp_path / "x.npy"], "got 1 input; expected one for each of left, right"),
    ):
        result = mistify("run", package, *arguments)
        assert result.exit_code in (ErrorCode.INVALID_DATASET.exit_code, ErrorCode.NOT_FOUND.exit_code)
        assert message in " ".join(result.stderr.split())


def test_without_pillow_the_error_says_how_to_install_it(mistify, pets, photo, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    result = mistify("run", pets, "--input", tmp_path / "photo.png")
    assert result.exit_code == ErrorCode.NOT_FOUND.exit_code
    assert "pip install 'mistify-porting[images]'" in " ".join(result.stderr.split())

"""Settings that name files, and the traversal that finds them."""

from typing import Annotated, Any

import pytest
from pydantic import Field

from mistify.config.files import FileField, FileForm, PathKind, _file_fields, named_in_file, with_files
from mistify.config.porting import PortingConfig
from mistify.parsing.validation import Settings


class Page(Settings):
    image: Annotated[str, FileField()] | None = None
    title: str = ""


class Book(Settings):
    cover: Annotated[str, FileField(kind=PathKind.EITHER)] = "cover"
    author: str = "cover"
    pages: tuple[Page, ...] = ()
    notes: dict[str, Annotated[str, FileField()] | tuple[str, ...]] = Field(default_factory=dict)
    from_: Annotated[str, FileField(FileForm.CODE)] | None = Field(default=None, alias="from")


RAW: dict[str, Any] = {
    "cover": "a",
    "author": "b",
    "pages": [{"image": "c", "title": "d"}, {"title": "e"}],
    "notes": {"x": "f", "": "g", "y": ["h"]},
    "from": "i.py:j",
    "unknown": "k",
}
CHANGED: dict[str, Any] = {
    "cover": "A",
    "author": "b",
    "pages": [{"image": "C", "title": "d"}, {"title": "e"}],
    "notes": {"x": "F", "": "G", "y": ["h"]},
    "from": "I.PY:j",
    "unknown": "k",
}
PLACES = {
    ("cover",): PathKind.EITHER,
    ("pages", 0, "image"): PathKind.FILE,
    ("notes", "x"): PathKind.FILE,
    ("notes",): PathKind.FILE,  # of the only output, which has no name
    ("from",): PathKind.FILE,
}


def test_only_file_names_are_changed_in_unvalidated_settings() -> None:
    seen = {}

    def change(place: Any, field: FileField, text: str) -> str:
        seen[place] = field.kind
        return field.renamed(text, str.upper)

    assert with_files(Book, RAW, change) == CHANGED
    assert seen == PLACES
    assert RAW["cover"] == "a"


def test_file_names_are_changed_in_validated_settings() -> None:
    known = {key: value for key, value in RAW.items() if key != "unknown"}
    book = Book.model_validate(known)
    changed = with_files(Book, book, lambda _place, field, text: field.renamed(text, str.upper))
    expected = {key: value for key, value in CHANGED.items() if key != "unknown"}
    assert changed == Book.model_validate(expected)
    assert book == Book.model_validate(known)


@pytest.mark.parametrize(
    "value", [None, 5, [], "text", {"cover": 5, "pages": {"image": "a"}, "notes": ["a"]}]
)
def test_invalid_settings_are_left_unchanged(value: Any) -> None:
    assert with_files(Book, value, lambda _place, _field, text: text.upper()) == value


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        (FileForm.PATH, "a.npz", "A.NPZ"),
        (FileForm.DATA, "a.npz", "A.NPZ"),
        (FileForm.MODEL, "a.keras", "A.KERAS"),
        (FileForm.MODEL, "keras_hub/bert?sequence=64", "keras_hub/BERT?sequence=64"),
        (
            FileForm.MODEL,
            "keras.applications/Net?classes=10&weights=a%2Fb.h5",
            "keras.applications/Net?classes=10&weights=A/B.H5",
        ),
        (FileForm.MODEL, "net.onnx?image=3,8,8", "NET.ONNX?image=3,8,8"),
        (FileForm.MODEL, "a/net.py:network", "A/NET.PY:network"),
        (FileForm.MODEL, "net.py:Net?weights=a/b.pt", "NET.PY:Net?weights=A/B.PT"),
        (FileForm.MODEL, "net.py:Net?layout=channels_first", "NET.PY:Net?layout=channels_first"),
        (
            FileForm.MODEL,
            "net.py:Net?layout=channels_first&weights=b.pt",
            "NET.PY:Net?weights=B.PT&layout=channels_first",
        ),
        (FileForm.MODEL, "keras.applications/Net?weights", "KERAS.APPLICATIONS/NET?WEIGHTS"),
        (FileForm.CODE, "a.py:near", "A.PY:near"),
        (FileForm.CODE, "near", "near"),
    ],
)
def test_only_the_file_name_within_a_value_is_changed(form: FileForm, text: str, expected: str) -> None:
    assert FileField(form).renamed(text, str.upper) == expected


def test_only_a_python_file_with_a_name_is_code() -> None:
    assert named_in_file("a/b.py:near") == ("a/b.py", "near")
    assert [named_in_file(text) for text in ("a.py", "a.py:Near", "a.txt:near", 5, None)] == [None] * 5


def test_only_model_and_dataset_name_files() -> None:
    """Servers look up files only in these two settings."""
    assert set(_file_fields(PortingConfig)) == {"model", "dataset"}

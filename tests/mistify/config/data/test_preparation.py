"""Class names and input preparations in a config, and the tables in docs/reference/config.md."""

import pytest
from pydantic import ValidationError

from mistify.config.data.dataset import DataSettings
from mistify.config.data.preparation import ImagePreparation, TokenPreparation
from mistify.parsing.validation import problems_of
from tests.support.paths import REPOSITORY


def problem(**settings):
    with pytest.raises(ValidationError) as caught:
        DataSettings.model_validate(settings)
    (found,) = problems_of(caught.value, DataSettings)
    return str(found)


@pytest.mark.parametrize(
    ("labels", "by_output"),
    [
        (["cat", "dog"], {"": ("cat", "dog")}),
        ("names.txt", {"": "names.txt"}),
        ({"kind": ["cat"], "open": "open.txt"}, {"kind": ("cat",), "open": "open.txt"}),
    ],
)
def test_labels_are_a_list_or_a_file_for_one_output_or_each_output(labels, by_output):
    settings = DataSettings.model_validate({"labels": labels})
    assert settings.labels == by_output
    assert DataSettings.model_validate_json(settings.model_dump_json()) == settings


def test_settings_without_labels_are_serialized_as_before():
    assert not {"labels", "preparation"} & DataSettings().model_dump().keys()


@pytest.mark.parametrize("labels", [[], {}, 3, [1], ["cat", " "], {"kind": []}])
def test_labels_that_are_not_a_list_of_names_are_refused(labels):
    assert "a list of names, or the name of a file" in problem(labels=labels)


@pytest.mark.parametrize(
    ("preparation", "message"),
    [
        ({}, 'preparation.photo: got {}; expected either "image" or "tokens"'),
        ({"image": {}, "tokens": {"vocabulary": "v"}}, 'expected either "image" or "tokens"'),
        ({"imag": {}}, 'preparation.photo.imag: got the key "imag"; expected one of image, tokens'),
        ({"image": {"meen": [1]}}, 'preparation.photo.image.meen: got the key "meen"'),
        ({"image": {"mean": [1]}}, '"mean" and "std" of one length'),
        ({"image": {"resize": "cubic"}}, 'expected "bilinear", with antialiasing, or "nearest"'),
        ({"tokens": {}}, "preparation.photo.tokens.vocabulary: got nothing; expected a file"),
    ],
)
def test_mistakes_are_reported_at_their_places(preparation, message):
    assert message in problem(preparation={"photo": preparation})


def default_of(field):
    if field.is_required() or field.default is None:
        return ""
    return f"`{field.default}`" if isinstance(field.default, str) else f"{field.default:g}"


@pytest.mark.parametrize("settings", [ImagePreparation, TokenPreparation])
def test_the_documentation_describes_every_setting(settings):
    """Its tables are made from the fields: if this fails, paste the missing rows."""
    rows = [
        f"| `{name}` | {field.description} | {default_of(field)} |"
        for name, field in settings.model_fields.items()
    ]
    table = "\n".join(rows)
    assert table in (REPOSITORY / "docs/reference/config.md").read_text(), table

"""The record of a source's inputs and outputs is checked."""

import pytest
from pydantic import ValidationError

from mistify.package.source import SourceInterface, SourceTensor

IMAGE = {"name": "image", "source": "input.1", "axes": [0, 3, 1, 2], "dtype": "float32"}


def test_a_record_is_read_as_it_was_written() -> None:
    interface = SourceInterface(inputs=(SourceTensor.model_validate(IMAGE),), outputs=())
    assert SourceInterface.model_validate_json(interface.model_dump_json()) == interface


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"axes": [0, 3, 1, 1]}, "are not all axes"),
        ({"axes": [1, 2, 3, 4]}, "are not all axes"),
        ({"source": ""}, "at least 1 character"),
        ({"dtype": "complex64"}, "Input should be"),
    ],
)
def test_impossible_tensors_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        SourceTensor.model_validate({**IMAGE, **change})


def test_names_are_unique() -> None:
    with pytest.raises(ValidationError, match=r"several tensors are named input\.1"):
        SourceInterface.model_validate({"inputs": [IMAGE], "outputs": [{**IMAGE, "name": "other"}]})
